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

// waitFor waits for flock(2) of the file: alone, or together with others that want it together.
func waitFor(file *os.File, alone bool) error {
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	for {
		if err := syscall.Flock(int(file.Fd()), how); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
