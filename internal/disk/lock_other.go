//go:build !linux && !darwin

package disk

import (
	"errors"
	"os"
)

var errHeld = errors.New("the lock is held")

// lock is not known here.
func lock(*os.File) error { return errors.ErrUnsupported }

func waitFor(*os.File, bool) error { return errors.ErrUnsupported }
