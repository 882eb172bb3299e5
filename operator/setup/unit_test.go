package setup_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inbox/internal/golden"
	"inbox/operator/setup"
)

//go:generate go test -run ^TestUnitOfReleases$ . -update

// TestUnitOfReleases: the unit of releases and of make install is the one that inbox init writes into /etc/inbox.
func TestUnitOfReleases(t *testing.T) {
	directory := t.TempDir()
	unit := strings.ReplaceAll(unitOf(t, setup.Setup{Directory: directory, Program: "/usr/local/bin/inbox", User: setup.ServiceUser}), directory, "/etc/inbox")
	file := filepath.Join("..", "..", "docs", "ops", "inbox.service")
	if *golden.Update {
		if err := os.WriteFile(file, []byte(unit), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if held, err := os.ReadFile(file); err != nil || string(held) != unit {
		t.Errorf("%s is not what inbox init writes: go generate ./operator/setup (%v)", file, err)
	}
}

// TestUnitOfHomesAndPrograms: files below a home stay readable, and only agents of kind command may compile while they run.
func TestUnitOfHomesAndPrograms(t *testing.T) {
	for name, c := range map[string]struct {
		setup setup.Setup
		want  []string
	}{
		"outside":        {setup.Setup{Program: "/usr/bin/inbox"}, []string{"\nProtectHome=yes\n", "\nMemoryDenyWriteExecute=yes\n"}},
		"program at me":  {setup.Setup{Program: "/home/me/inbox"}, []string{"\nProtectHome=read-only\n"}},
		"home of root":   {setup.Setup{Program: "/root/inbox"}, []string{"\nProtectHome=read-only\n"}},
		"like a home":    {setup.Setup{Program: "/homes/inbox"}, []string{"\nProtectHome=yes\n"}},
		"command":        {setup.Setup{Program: "/x", Agent: setup.AgentTable{Kind: "command", Backend: "/bin/cat"}}, []string{"\n#MemoryDenyWriteExecute=yes\n"}},
		"odd characters": {setup.Setup{Program: `/a b/%h`}, []string{`ExecStart="/a b/%%h" serve`}},
	} {
		c.setup.Directory, c.setup.User = t.TempDir(), "me"
		unit := unitOf(t, c.setup)
		for _, want := range c.want {
			if !strings.Contains(unit, want) {
				t.Errorf("%s lacks %q:\n%s", name, want, unit)
			}
		}
		if strings.Contains(unit, "{{") {
			t.Errorf("%s: a place is empty:\n%s", name, unit)
		}
	}
}

func unitOf(t *testing.T, s setup.Setup) string {
	t.Helper()
	s.Domain, s.Mail, s.Agent.Name = "agents.example", setup.MailNone, "helper"
	if s.Agent.Kind == "" {
		s.Agent.Kind = "echo"
	}
	if _, err := s.Write(nil); err != nil {
		t.Fatal(err)
	}
	unit, err := os.ReadFile(filepath.Join(s.Directory, "inbox.service"))
	if err != nil {
		t.Fatal(err)
	}
	return string(unit)
}
