//go:build linux || darwin

package disk

import (
	"errors"
	"os"
	"syscall"
)

var errHeld = errors.New("the lock is held")

// lock takes flock(2): it belongs to the open file, so that it also keeps a second part of the same process out.
func lock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errHeld
	}
	return err
}
