package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"inbox/agents"
)

// result is what a run left behind.
type result struct {
	stdout, stderr []byte
	over           bool  // the program was stopped, because it wrote more than stdout may have
	dropped        int64 // bytes of the standard error before those that were kept
}

// ending is how a program ended.
type ending interface {
	Success() bool
	ExitCode() int
	String() string
}

// grace is how long the pipes of a dead program may stay open: where there is no supervisor, a process that left the program's
// group can hold them.
const grace = time.Second

// run starts the program, feeds it and waits for its end. Its errors are faults, except for the end of ctx. When it
// returns, everything that the program started is dead and all goroutines have ended.
func (a *Agent) run(ctx context.Context, turn agents.Turn, input []byte, files placed) (result, error) {
	if ctx.Err() != nil {
		return result{}, fmt.Errorf("run program: %w", context.Cause(ctx))
	}

	command := exec.Command(a.options.Program, a.options.Arguments...) //nolint:gosec,noctx // the operator's program; the end of ctx kills its whole group
	command.Dir = a.options.Directory
	command.Env = a.environment(turn, files)
	pipes, err := open(command)
	if err != nil {
		return result{}, notStarted(err)
	}
	defer pipes.close()

	group, err := start(command, a.options.MemoryBytes)
	if err != nil {
		return result{}, notStarted(err)
	}

	pipes.started()

	stdout, stderr := &head{limit: a.options.MaxOutputBytes, full: group.kill}, &tail{}
	var streams sync.WaitGroup
	streams.Go(func() { _, _ = pipes.input.Write(input); _ = pipes.input.Close() }) // a program need not read it
	streams.Go(func() { _, _ = io.Copy(stdout, pipes.output) })
	streams.Go(func() { _, _ = io.Copy(stderr, pipes.errors) })
	stopKilling := context.AfterFunc(ctx, group.kill)
	state, err := group.end()
	stopKilling()
	pipes.expire(time.Now().Add(grace))
	streams.Wait()

	ended := result{stdout: stdout.bytes(), stderr: stderr.bytes(), over: stdout.over, dropped: stderr.dropped()}
	switch {
	case stdout.over: // what it wrote until then is the answer
		return ended, nil
	case err != nil && isNotStarted(err):
		return ended, notStarted(err)
	case err != nil:
		return ended, unreachable(fmt.Errorf("wait for the program: %w", err))
	case !state.Success() && ctx.Err() != nil:
		return ended, fmt.Errorf("run program: %w", context.Cause(ctx))
	}

	return ended, verdict(state, ended.stderr)
}

// pipes are our ends of the standard streams, and the program's until it has started.
type pipes struct {
	input, output, errors *os.File
	theirs                []*os.File
}

func open(command *exec.Cmd) (*pipes, error) {
	made := &pipes{}
	for _, stream := range []struct {
		ours **os.File
		give func(*os.File)
		in   bool
	}{
		{&made.input, func(file *os.File) { command.Stdin = file }, true},
		{&made.output, func(file *os.File) { command.Stdout = file }, false},
		{&made.errors, func(file *os.File) { command.Stderr = file }, false},
	} {
		reader, writer, err := os.Pipe()
		if err != nil {
			made.close()
			return nil, err
		}

		ours, theirs := reader, writer
		if stream.in {
			ours, theirs = writer, reader
		}

		*stream.ours = ours
		stream.give(theirs)
		made.theirs = append(made.theirs, theirs)
	}

	return made, nil
}

// started closes the program's ends in this process, so that ours see when the last holder is gone.
func (p *pipes) started() {
	for _, file := range p.theirs {
		_ = file.Close()
	}
	p.theirs = nil
}

func (p *pipes) expire(at time.Time) {
	for _, file := range []*os.File{p.input, p.output, p.errors} {
		_ = file.SetDeadline(at)
	}
}

func (p *pipes) close() {
	p.started()
	for _, file := range []*os.File{p.input, p.output, p.errors} {
		if file != nil {
			_ = file.Close()
		}
	}
}
