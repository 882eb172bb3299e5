package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"inbox/internal/disk"
)

// Scratch is where the files of running programs lie. Each process has a directory of its own in it, and holds its lock: what a process left
// that was killed is removed by the next one that opens the same place, and nothing of one that lives.
type Scratch struct {
	directory string
	lock      *disk.Lock
}

// OpenScratch makes a directory for this process in one of the server, which no one else writes to.
func OpenScratch(directory string) (_ *Scratch, err error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory for files of programs: %w", err)
	}
	gate, err := disk.OpenGate(filepath.Join(directory, "lock"))
	if err != nil {
		return nil, fmt.Errorf("open the directory for files of programs: %w", err)
	}

	s := &Scratch{}
	err = gate.Alone(func() (err error) { // no other process makes one that it has not locked yet
		if err = removeLeft(directory); err != nil {
			return err
		}
		if s.directory, err = os.MkdirTemp(directory, processPrefix); err != nil {
			return err
		}
		s.lock, err = disk.Take(s.directory)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open the directory for files of programs: %w", err)
	}
	return s, nil
}

const processPrefix = "process-"

// removeLeft removes the directories of processes that have ended.
func removeLeft(directory string) error {
	left, err := filepath.Glob(filepath.Join(directory, processPrefix+"*"))
	if err != nil {
		return err
	}

	for _, one := range left {
		lock, err := disk.Take(one)
		switch {
		case errors.Is(err, disk.ErrTaken):
			continue
		case err != nil:
			return err
		case !lock.Sole(): // without locks nothing says who lives
			continue
		}

		if err := errors.Join(os.RemoveAll(one), lock.Leave()); err != nil {
			return err
		}
	}
	return nil
}

// Close removes the directory of this process. No program may run any more.
func (s *Scratch) Close() error {
	return errors.Join(os.RemoveAll(s.directory), s.lock.Leave())
}

// parent is where a run makes its directory; empty = where the system keeps temporary files.
func (s *Scratch) parent() string {
	if s == nil {
		return ""
	}
	return s.directory
}
