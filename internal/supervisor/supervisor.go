//go:build unix

// Package supervisor runs a program whose descendants all end with it: those that stay, those that began a session of their
// own (setsid) and those of a parent that died. It imports little, because each program is preceded by a start of this binary.
package supervisor

import (
	"strconv"
	"syscall"
)

// End is how a program ended.
type End struct{ Status syscall.WaitStatus }

// Success reports whether the program ended with exit code 0.
func (e End) Success() bool { return e.Status.Exited() && e.Status.ExitStatus() == 0 }

// ExitCode returns the exit code; -1 when a signal ended the program.
func (e End) ExitCode() int {
	if !e.Status.Exited() {
		return -1
	}
	return e.Status.ExitStatus()
}

// String says it for the operator, such as "exit status 3" or "signal: killed".
func (e End) String() string {
	if e.Status.Signaled() {
		return "signal: " + e.Status.Signal().String()
	}
	return "exit status " + strconv.Itoa(e.ExitCode())
}

// NotStartedError reports that the program could not be started.
type NotStartedError struct{ Number syscall.Errno }

// Error returns the reason of the operating system.
func (e *NotStartedError) Error() string { return e.Number.Error() }

// Unwrap returns the reason of the operating system.
func (e *NotStartedError) Unwrap() error { return e.Number }
