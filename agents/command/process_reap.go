//go:build !linux

package command

import (
	"os"
	"os/exec"
	"sync"
)

const limitsMemory = false

// group is the program and what it started, as far as that stays in its process group. kill may come at any time; after the
// program is reaped it does nothing, because its number could be someone else's by then.
type group struct {
	mu      sync.Mutex
	process *os.Process
	reaped  bool
}

// start starts the program. There is no limit of memory here: New refuses it.
func start(command *exec.Cmd, _ int64) (*group, error) {
	command.SysProcAttr = attributes()
	if err := command.Start(); err != nil {
		return nil, err
	}
	return &group{process: command.Process}, nil
}

func (g *group) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.reaped {
		killGroup(g.process)
	}
}

// end waits for the end of the program and kills what it left behind.
func (g *group) end() (ending, error) {
	state, err := g.process.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reaped = true
	killGroup(g.process)
	return state, err
}

// isNotStarted is known at the start here.
func isNotStarted(error) bool { return false }
