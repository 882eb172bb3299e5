package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrTaken reports that another process, or another part of this one, has the directory.
var ErrTaken = errors.New("another process serves this directory")

// lockFile is locked, never removed: a lock on a removed file would exclude no other process.
const lockFile = "inbox.lock"

// Lock is the right to be the only one that serves a directory. The operating system releases it when the process dies,
// however it dies.
type Lock struct{ file *os.File }

// Take takes the directory for this process. The error is ErrTaken while another one has it. A file system without locks,
// or a system that we have none for, returns a lock that is not Sole.
func Take(directory string) (*Lock, error) { return TakeFile(filepath.Join(directory, lockFile)) }

// TakeFile is Take for a lock with a file of its own, which is made when it is missing and never removed.
func TakeFile(path string) (*Lock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the operator named the directory
	if err != nil {
		return nil, fmt.Errorf("open the lock %s: %w", path, err)
	}

	switch err := lock(file); {
	case errors.Is(err, errHeld):
		return nil, errors.Join(ErrTaken, file.Close())
	case err != nil:
		return &Lock{}, file.Close()
	}
	return &Lock{file: file}, nil
}

// Sole reports whether no other process can have the directory now.
func (l *Lock) Sole() bool { return l != nil && l.file != nil }

// Leave returns the directory. It is harmless to leave twice, and from no lock.
func (l *Lock) Leave() error {
	if !l.Sole() {
		return nil
	}
	file := l.file
	l.file = nil
	return file.Close()
}
