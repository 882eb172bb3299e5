package postfix

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// watch runs a command when a process is gone, however it ended.
const watch = `parent=$1; shift; while kill -0 "$parent" 2>/dev/null; do sleep 2; done; exec "$@"`

// guard runs the command when this process is gone, unless stop is called before. It takes the place of package children:
// the master of Postfix leaves its parent, and the kernel forgets the death signal of a program that changes its user.
func guard(command ...string) (stop func(), err error) {
	watcher := exec.Command("sh", append([]string{"-c", watch, "guard", strconv.Itoa(os.Getpid())}, command...)...)
	watcher.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what ends our group is not to end it
	if err := watcher.Start(); err != nil {
		return nil, fmt.Errorf("start the guard of %s: %w", command[0], err)
	}
	return func() {
		_ = watcher.Process.Kill()
		_ = watcher.Wait() // its error is the kill
	}, nil
}
