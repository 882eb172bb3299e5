package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"inbox/agents"
	"inbox/agents/upstream"
)

// result is what a run left behind.
type result struct {
	stdout, stderr []byte
	dropped        int64 // bytes of the standard error before those that were kept
}

// grace is how long the pipes of a dead process group may stay open: a process that left the group can hold them.
const grace = time.Second

// run starts the program, feeds it and waits for its end. Its errors are faults, except for the end of ctx. When it
// returns, the process group is dead and all goroutines have ended.
func (a *Agent) run(ctx context.Context, turn agents.Turn, input []byte) (result, error) {
	if ctx.Err() != nil {
		return result{}, fmt.Errorf("run program: %w", context.Cause(ctx))
	}
	runtime.LockOSThread() // the program dies with the thread that started it
	defer runtime.UnlockOSThread()

	command := exec.Command(a.options.Program, a.options.Arguments...) //nolint:gosec,noctx // the operator's program; the end of ctx kills its whole group
	command.Dir = a.options.Directory
	command.Env = a.environment(turn)
	command.SysProcAttr = attributes()
	pipes, err := open(command)
	if err != nil {
		return result{}, notStarted(err)
	}
	defer pipes.close()
	if err := command.Start(); err != nil {
		return result{}, notStarted(err)
	}
	pipes.started()

	group := newGroup(command.Process)
	if err := limitMemory(command.Process.Pid, a.options.MemoryBytes); err != nil {
		group.kill()
		_, _ = group.end()
		return result{}, upstream.NotUsable(fmt.Errorf("limit the memory of the program: %w", err))
	}
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

	ended := result{stdout: stdout.bytes(), stderr: stderr.bytes(), dropped: stderr.dropped()}
	switch {
	case stdout.over:
		return ended, upstream.NotUsable(fmt.Errorf("the program wrote more than %d bytes", a.options.MaxOutputBytes))
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

// group is the program and what it started. kill may come at any time; after the program is reaped it does nothing,
// because its number could be somebody else's by then.
type group struct {
	mu      sync.Mutex
	process *os.Process
	reaped  bool
}

func newGroup(process *os.Process) *group { return &group{process: process} }

func (g *group) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.reaped {
		killGroup(g.process)
	}
}
