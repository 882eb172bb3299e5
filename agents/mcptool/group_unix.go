//go:build unix

package mcptool

import (
	"os/exec"
	"syscall"
)

// ownGroup puts the program into a process group of its own, so that a signal reaches its children, too.
func ownGroup(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

func askGroupToEnd(command *exec.Cmd) { signalGroup(command, syscall.SIGTERM) }
func killGroup(command *exec.Cmd)     { signalGroup(command, syscall.SIGKILL) }

func signalGroup(command *exec.Cmd, signal syscall.Signal) {
	_ = syscall.Kill(-command.Process.Pid, signal) // no process left is what we want
}
