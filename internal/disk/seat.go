package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrTaken says that another process, or another part of this one, has the directory.
var ErrTaken = errors.New("another process serves this directory")

// seatFile is locked, never removed: a lock on a removed file would keep nobody out.
const seatFile = "inbox.lock"

// Seat is the right to be the only one that serves a directory. The operating system gives it back when the process dies,
// however it dies.
type Seat struct{ file *os.File }

// Sit takes the directory for this process. The error is ErrTaken while another one has it. A file system without locks,
// or a system that we have none for, gives a seat that is not Sole.
func Sit(directory string) (*Seat, error) {
	file, err := os.OpenFile(filepath.Join(directory, seatFile), os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the operator named the directory
	if err != nil {
		return nil, fmt.Errorf("open the lock of the directory: %w", err)
	}
	switch err := lock(file); {
	case errors.Is(err, errHeld):
		return nil, errors.Join(ErrTaken, file.Close())
	case err != nil:
		return &Seat{}, file.Close()
	}
	return &Seat{file: file}, nil
}

// Sole says whether nobody else can have the directory now.
func (s *Seat) Sole() bool { return s != nil && s.file != nil }

// Leave gives the directory back. It is harmless to leave twice, and from no seat.
func (s *Seat) Leave() error {
	if !s.Sole() {
		return nil
	}
	file := s.file
	s.file = nil
	return file.Close()
}
