package command

import (
	"errors"
	"os/exec"

	"inbox/internal/supervisor"
)

const limitsMemory = true

// group is the program and everything that it started, wherever that went.
type group struct{ program *supervisor.Program }

// start starts the program under a supervisor, which kills all of it at the end of the run and at the end of the server.
func start(command *exec.Cmd, memory int64) (*group, error) {
	program, err := supervisor.Start(command, memory)
	return &group{program}, err
}

func (g *group) kill() { g.program.Kill() }

// end waits until nothing is left of the program.
func (g *group) end() (ending, error) {
	end, err := g.program.Wait()
	return end, err
}

// isNotStarted reports whether the program did not begin to run.
func isNotStarted(err error) bool {
	_, is := errors.AsType[*supervisor.NotStartedError](err)
	return is
}
