package disk

import (
	"fmt"
	"os"
	"sync"
)

// Gate lets either many through or one alone, among all processes that open a gate of the same file. Who dies inside has
// left. On a system or a file system without locks it divides this process only.
type Gate struct {
	path string
	mu   sync.RWMutex // of this process: who waits to be alone is not starved, as flock(2) would allow
}

// OpenGate makes the file where it is missing. It is never removed: a lock on a removed file would exclude no other process.
func OpenGate(path string) (*Gate, error) {
	g := &Gate{path: path}
	file, err := g.open()
	if err != nil {
		return nil, err
	}
	return g, file.Close()
}

func (g *Gate) open() (*os.File, error) {
	file, err := os.OpenFile(g.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the gate: %w", err)
	}
	return file, nil
}

// Together runs the work while other callers of Together may do theirs, and none of Alone.
func (g *Gate) Together(work func() error) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.pass(false, work)
}

// Alone runs the work while no other caller is inside.
func (g *Gate) Alone(work func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pass(true, work)
}

func (g *Gate) pass(alone bool, work func() error) error {
	file, err := g.open()
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // returns the lock
	_ = waitFor(file, alone)            // no locks here: the mutex is all there is
	return work()
}
