//go:build unix && !linux

package command

import "syscall"

// attributes put the program into a session and a process group of its own.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
