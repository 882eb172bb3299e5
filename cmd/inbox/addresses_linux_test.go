package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestServeUnderALimitOfAddresses: a limit under which the runtime would fail is refused with a sentence, and not with a stack trace.
func TestServeUnderALimitOfAddresses(t *testing.T) {
	program := filepath.Join(t.TempDir(), "inbox")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	command := exec.CommandContext(t.Context(), "bash", "-c", "ulimit -v 1500000; exec "+program+" serve")
	command.Dir, command.Env = t.TempDir(), append(os.Environ(), "GOMAXPROCS=1")
	out, err := command.CombinedOutput()
	if text := string(out); err == nil || !strings.Contains(text, "1464 MiB of addresses") || !strings.Contains(text, "needs 2048 MiB") || strings.Contains(text, "goroutine") {
		t.Errorf("%v: %s", err, out)
	}
}
