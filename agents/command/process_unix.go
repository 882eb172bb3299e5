//go:build unix

package command

import (
	"errors"
	"os"
	"syscall"
)

// killGroup kills everything in the group of the program, which leads it.
func killGroup(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGKILL) }

// passes says whether a start failed for lack of something that may be there later.
func passes(err error) bool {
	for _, lack := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ETXTBSY} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}
