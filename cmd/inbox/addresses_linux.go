package main

import (
	"errors"
	"fmt"
	"syscall"
)

// leastAddresses is the address space that a server needs at least: the Go runtime reserves most of it and does not use it.
const leastAddresses = 2 << 30

// checkAddresses refuses a limit of the address space under which the Go runtime would end the process with a stack trace, sooner or later.
func checkAddresses() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_AS, &limit); err != nil {
		return errors.Join(errors.New("read the limit of the address space"), err)
	}
	if limit.Cur < leastAddresses {
		return fmt.Errorf("this process may reserve %d MiB of addresses (ulimit -v, LimitAS=) and needs %d MiB, of which it uses a small part: "+
			"remove that limit, and limit the memory by MemoryMax= of systemd or by the container, with GOMEMLIMIT a tenth below", limit.Cur>>20, leastAddresses>>20)
	}
	return nil
}
