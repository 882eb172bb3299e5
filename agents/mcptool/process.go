package mcptool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// passed are the variables without which hardly a program finds its files.
var passed = []string{"PATH", "HOME", "LANG", "TMPDIR"}

const (
	writeLimit = 10 * time.Second // a program that reads nothing for so long is stuck
	tailBytes  = 2 << 10          // what is kept of the program's complaints
)

// process is a program with its three pipes. It is reaped whatever happens, and its children end with it.
type process struct {
	command               *exec.Cmd
	stdin, stdout, stderr *os.File
	grace                 time.Duration

	complaints tail
	asked      sync.Once
	ending     chan struct{} // we want it to end
	drained    chan struct{} // all of stdout was read
	complained chan struct{} // all of stderr was read
	exited     chan struct{} // the program is reaped, its group killed
	gone       chan struct{} // the pipes are closed, too
}

func startProcess(settings Server, grace time.Duration) (*process, error) {
	p := &process{
		command: exec.Command(settings.Command, settings.Arguments...), //nolint:gosec,noctx // the operator wrote the command; it outlives every context and is ended by stop
		grace:   grace, ending: make(chan struct{}), drained: make(chan struct{}), complained: make(chan struct{}),
		exited: make(chan struct{}), gone: make(chan struct{}),
	}

	p.command.Dir = settings.Directory
	p.command.Env = environment(settings.Environment)
	ownGroup(p.command)
	theirs, err := p.openPipes()
	if err != nil {
		return nil, err
	}

	err = p.command.Start()
	closeAll(theirs...)
	if err != nil {
		closeAll(p.stdin, p.stdout, p.stderr)
		return nil, fmt.Errorf("start program: %w", err)
	}

	go p.keepComplaints()
	go p.reap()
	return p, nil
}

// openPipes connects the program by files of the operating system: exec.Cmd starts no goroutine for them, and a
// child that keeps one open holds up no one.
func (p *process) openPipes() (theirs []*os.File, err error) {
	var ours []*os.File
	pair := func() (read, write *os.File) {
		if err != nil {
			return nil, nil
		}
		read, write, err = os.Pipe()
		return read, write
	}

	inRead, inWrite := pair()
	outRead, outWrite := pair()
	errRead, errWrite := pair()
	theirs, ours = []*os.File{inRead, outWrite, errWrite}, []*os.File{inWrite, outRead, errRead}
	if err != nil {
		closeAll(append(theirs, ours...)...)
		return nil, fmt.Errorf("open pipes: %w", err)
	}

	p.stdin, p.stdout, p.stderr = inWrite, outRead, errRead
	p.command.Stdin, p.command.Stdout, p.command.Stderr = inRead, outWrite, errWrite
	return theirs, nil
}

func closeAll(files ...*os.File) {
	for _, file := range files {
		if file != nil {
			_ = file.Close()
		}
	}
}

// environment builds the program's variables from those that it may have.
func environment(allowed []string) []string {
	var variables []string
	for _, entry := range append(append([]string{}, passed...), allowed...) {
		name, _, set := strings.Cut(entry, "=")
		if set {
			variables = append(variables, entry)
		} else if value, known := os.LookupEnv(name); known {
			variables = append(variables, name+"="+value)
		}
	}
	return variables
}

// reap waits for the program, ends the children that it left behind, lets what they wrote be read, and closes the pipes,
// which a child that escaped may hold.
func (p *process) reap() {
	_ = p.command.Wait() // how it ended is in ProcessState
	killGroup(p.command)
	close(p.exited)

	select {
	case <-p.drained:
	case <-p.ending: // no reader is left
	case <-time.After(p.grace):
	}

	select {
	case <-p.complained:
	case <-time.After(p.grace):
	}

	closeAll(p.stdin, p.stdout, p.stderr)
	<-p.complained
	close(p.gone)
}

func (p *process) keepComplaints() {
	defer close(p.complained)
	_, _ = io.Copy(&p.complaints, p.stderr)
}

// begin starts to end the program and returns at once: the SDK holds a lock while it closes.
func (p *process) begin() {
	p.asked.Do(func() {
		close(p.ending)
		go p.end()
	})
}

// stop ends the program and waits until it and its children are gone.
func (p *process) stop() {
	p.begin()
	<-p.gone
}

// end follows the MCP specification: end of input, then SIGTERM, then SIGKILL.
func (p *process) end() {
	_ = p.stdin.Close()
	for _, signal := range []func(*exec.Cmd){askGroupToEnd, killGroup} {
		select {
		case <-p.exited:
			return
		case <-time.After(p.grace):
			signal(p.command)
		}
	}
}

// Write passes a message to the program. One that does not read loses its connection.
func (p *process) Write(message []byte) (int, error) {
	if err := p.stdin.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return 0, fmt.Errorf("write to program: %w", err)
	}
	return p.stdin.Write(message)
}

// Close lets the program end.
func (p *process) Close() error {
	p.begin()
	return nil
}

// why says how the program ended and what it complained about last, for the operator.
func (p *process) why() error {
	<-p.gone
	text := "the program ended: " + p.command.ProcessState.String()
	if said := p.complaints.String(); said != "" {
		text += "; its last output: " + said
	}
	return errors.New(text)
}

// tail keeps the end of what is written to it.
type tail struct {
	mutex sync.Mutex
	bytes []byte
}

// Write never fails.
func (t *tail) Write(text []byte) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.bytes = append(t.bytes, text[max(0, len(text)-tailBytes):]...)
	t.bytes = t.bytes[max(0, len(t.bytes)-tailBytes):]
	return len(text), nil
}

// String returns printable text only.
func (t *tail) String() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return plain(string(t.bytes))
}
