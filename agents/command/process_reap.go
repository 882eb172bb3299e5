//go:build !linux

package command

import "os"

const limitsMemory = false

// end waits for the end of the program and kills what it left behind.
func (g *group) end() (*os.ProcessState, error) {
	state, err := g.process.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reaped = true
	killGroup(g.process)
	return state, err
}

// limitMemory is never asked for a limit: New refuses it.
func limitMemory(int, int64) error { return nil }
