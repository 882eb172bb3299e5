package command

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

const limitsMemory = true

// attributes put the program into a session and a process group of its own and kill it when the server dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

const (
	idTypePID = 1       // P_PID
	exited    = 4       // WEXITED
	noReap    = 1 << 24 // WNOWAIT
)

// end waits for the end of the program, kills what it left behind and reaps it.
func (g *group) end() (*os.ProcessState, error) {
	awaitEnd(g.process)
	g.mu.Lock()
	defer g.mu.Unlock()
	killGroup(g.process)
	g.reaped = true
	return g.process.Wait()
}

// awaitEnd waits for the end of the program without reaping it, so that nobody else gets its number before the rest of
// its group is dead.
func awaitEnd(process *os.Process) {
	var information [128]byte
	for {
		_, _, failure := syscall.Syscall6(syscall.SYS_WAITID, idTypePID, uintptr(process.Pid),
			uintptr(unsafe.Pointer(&information)), exited|noReap, 0, 0) //nolint:gosec // the kernel writes a siginfo_t there, which has 128 bytes
		if failure != syscall.EINTR {
			return
		}
	}
}

// limitMemory limits the private memory of the process and of those that it starts from now on, and forbids core files,
// in which messages would stay. Address space is not limited: runtimes reserve far more of it than they use.
func limitMemory(pid int, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	if err := setLimit(pid, syscall.RLIMIT_CORE, 0); err != nil {
		return err
	}
	return setLimit(pid, syscall.RLIMIT_DATA, uint64(bytes))
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
