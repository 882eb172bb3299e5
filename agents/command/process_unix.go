//go:build unix

package command

import (
	"errors"
	"syscall"
)

// passes reports whether a start failed for lack of something that may be there later.
func passes(err error) bool {
	for _, lack := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ETXTBSY} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}
