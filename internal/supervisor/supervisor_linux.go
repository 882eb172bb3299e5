package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// marker is the name under which this binary is started to supervise a program.
const marker = "inbox-program-supervisor"

// The supervisor's files beside the standard streams of its program.
const (
	controlFile = 3 // its end means: kill everything
	statusFile  = 4 // takes how the program ended
)

// A binary that links this package is the supervisor when it is started under the marker's name: before main, and before the
// packages that take long to start.
var _ = superviseWhenAsked()

func superviseWhenAsked() bool {
	if len(os.Args) >= 3 && os.Args[0] == marker {
		os.Exit(supervise(os.Args[1], os.Args[2:]))
	}
	return false
}

// Program is a program that runs under a supervisor.
type Program struct {
	supervisor *exec.Cmd
	status     *os.File

	mu      sync.Mutex
	control *os.File // nil when it was closed
}

// Start starts the command under a supervisor: this binary again, between the server and the program. The supervisor is the
// subreaper of everything below it (prctl(2), PR_SET_CHILD_SUBREAPER), and kills it all when the program ends, when Kill is
// called, and when this process ends in whatever way. The command's Stdin, Stdout and Stderr are files. memory bounds the
// private memory of each process in bytes (RLIMIT_DATA); 0 = no limit. An error of the program's start is that of exec.
func Start(command *exec.Cmd, memory int64) (*Program, error) {
	theirControl, control, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirControl.Close() }()

	status, theirStatus, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, control.Close())
	}
	defer func() { _ = theirStatus.Close() }()

	supervisor := &exec.Cmd{
		Path: "/proc/self/exe", Args: append([]string{marker, strconv.FormatInt(memory, 10), command.Path}, command.Args[1:]...),
		Env: command.Env, Dir: command.Dir, Stdin: command.Stdin, Stdout: command.Stdout, Stderr: command.Stderr,
		ExtraFiles: []*os.File{theirControl, theirStatus}, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}

	if err := supervisor.Start(); err != nil {
		return nil, errors.Join(err, control.Close(), status.Close())
	}

	return &Program{supervisor: supervisor, status: status, control: control}, nil
}

// Kill ends the program and everything below it. It may come at any time, and again.
func (p *Program) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.control != nil {
		_ = p.control.Close()
		p.control = nil
	}
}

// Wait waits until the program and everything below it has ended. It is called once.
func (p *Program) Wait() (End, error) {
	said, err := io.ReadAll(io.LimitReader(p.status, 4<<10))
	_ = p.status.Close()
	ended := p.supervisor.Wait()
	p.Kill()
	if err != nil {
		return End{}, err
	}

	kind, rest, _ := bytes.Cut(bytes.TrimSpace(said), []byte(" "))
	number, conversion := strconv.Atoi(string(rest))
	switch {
	case conversion == nil && string(kind) == "ended":
		return End{syscall.WaitStatus(number)}, nil
	case conversion == nil && string(kind) == "errno":
		return End{}, &NotStartedError{syscall.Errno(number)}
	case ended != nil:
		return End{}, fmt.Errorf("the supervisor of the program ended with %w", ended)
	}

	return End{}, errors.New("the supervisor of the program said nothing")
}

// supervise runs the program and kills what it leaves. It returns the exit code of the supervisor.
func supervise(memory string, command []string) int {
	syscall.CloseOnExec(controlFile)
	syscall.CloseOnExec(statusFile)
	control, status := os.NewFile(controlFile, "control"), os.NewFile(statusFile, "status")

	// A signal for a group reaches the supervisor, too; it must live longest. A handler is not inherited, unlike SIG_IGN.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	const setChildSubreaper = 36
	if _, _, failure := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); failure != 0 {
		fmt.Fprintf(status, "errno %d\n", int(failure))
		return 1
	}

	runtime.LockOSThread()                                             // the program dies with the thread that started it
	program, err := os.StartProcess(command[0], command, &os.ProcAttr{ //nolint:gosec // the operator's program, as the server passed it
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Env: os.Environ(),
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err == nil {
		err = limitMemory(program.Pid, memory)
	}
	if err != nil {
		var number syscall.Errno
		if !errors.As(err, &number) {
			number = syscall.EINVAL
		}
		killAll()
		fmt.Fprintf(status, "errno %d\n", int(number))
		return 1
	}

	var over atomic.Bool
	go func() {
		_, _ = control.Read(make([]byte, 1)) // nothing is ever written: it ends
		over.Store(true)
		killAll()
	}()

	// The program keeps its number until its end is known here, and what it started is killed before that is told.
	var ended syscall.WaitStatus
	for {
		var one syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &one, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // ECHILD: nothing is left
			fmt.Fprintf(status, "ended %d\n", int(ended))
			return 0
		case pid == program.Pid:
			ended = one
			over.Store(true)
			killAll()
		case over.Load(): // what one of the killed left came here meanwhile
			killAll()
		}
	}
}

const maxRounds = 64 // of looking for processes that were started meanwhile

// killAll kills everything below this process. It stops it first, so that what starts processes in a loop starts no more.
func killAll() {
	stopped := map[int]bool{}
	for range maxRounds {
		fresh := false
		for _, pid := range descendants() {
			if !stopped[pid] {
				stopped[pid], fresh = true, true
				_ = syscall.Kill(pid, syscall.SIGSTOP)
			}
		}

		if !fresh {
			break
		}
	}

	for _, pid := range descendants() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// descendants returns the numbers of all processes below this one.
func descendants() (found []int) {
	parents := processes()
	self := os.Getpid()
	for pid := range parents {
		for up, steps := pid, 0; steps < len(parents); steps++ {
			parent, known := parents[up]
			if !known {
				break
			}
			if parent == self {
				found = append(found, pid)
				break
			}
			up = parent
		}
	}

	return found
}

// processes returns the parent of each living process: zombies are left out.
func processes() map[int]int {
	parents := map[int]int{}
	directory, err := os.Open("/proc")
	if err != nil {
		return parents
	}
	defer func() { _ = directory.Close() }()

	names, _ := directory.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}

		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}

		end := bytes.LastIndexByte(stat, ')') // the name before may hold anything
		fields := bytes.Fields(stat[end+1:])
		if len(fields) < 2 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
			continue
		}

		if parent, err := strconv.Atoi(string(fields[1])); err == nil {
			parents[pid] = parent
		}
	}

	return parents
}

// limitMemory limits the private memory of the process and of those that it starts from now on, and forbids core files,
// in which messages would stay. Address space is not limited: runtimes reserve far more of it than they use.
func limitMemory(pid int, text string) error {
	limit, err := strconv.ParseUint(text, 10, 63)
	if err != nil || limit == 0 {
		return err
	}
	if err := setLimit(pid, syscall.RLIMIT_CORE, 0); err != nil {
		return err
	}
	return setLimit(pid, syscall.RLIMIT_DATA, limit)
}

func setLimit(pid, resource int, value uint64) error {
	limit := syscall.Rlimit{Cur: value, Max: value}
	_, _, failure := syscall.Syscall6(syscall.SYS_PRLIMIT64, uintptr(pid), uintptr(resource),
		uintptr(unsafe.Pointer(&limit)), 0, 0, 0) //nolint:gosec // the kernel reads one struct rlimit64, which Rlimit is
	if failure != 0 && failure != syscall.ESRCH {
		return fmt.Errorf("prlimit: %w", failure)
	}
	return nil
}
