//go:build unix && !linux

package command

import (
	"os"
	"syscall"
)

// attributes put the program into a session and a process group of its own.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// killGroup kills everything in the group of the program, which leads it.
func killGroup(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGKILL) }
