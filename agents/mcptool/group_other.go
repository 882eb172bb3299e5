//go:build !unix

package mcptool

import "os/exec"

// Without process groups only the program itself can be ended.

func ownGroup(*exec.Cmd) {}

func askGroupToEnd(command *exec.Cmd) { killGroup(command) }
func killGroup(command *exec.Cmd)     { _ = command.Process.Kill() }
