package e2e

import (
	"bytes"
	"net"
	"net/http"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/internal/await"
	"inbox/internal/children"
)

// TestServiceManager starts the program as systemd does: it takes the sockets that it gets, and says when it is ready and when it stops.
func TestServiceManager(t *testing.T) {
	t.Parallel()
	s := newServer(t, instance.Settings{})
	storeKeys(t, s.Instance)

	address := filepath.Join(t.TempDir(), "notify")
	notices, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notices.Close()
	heard := func() string {
		t.Helper()
		_ = notices.SetReadDeadline(time.Now().Add(patience))
		said := make([]byte, 4096)
		n, err := notices.Read(said)
		if err != nil {
			t.Fatal(err)
		}
		return string(said[:n])
	}

	sockets := map[string]string{}
	command := exec.Command("sh", "-c", `LISTEN_PID=$$ exec "$0" serve --config "$1"`, s.Binary, s.ConfigFile())
	for _, name := range []string{"http", "smtp", "odd"} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		file, err := listener.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		sockets[name] = listener.Addr().String()
		command.ExtraFiles = append(command.ExtraFiles, file)
		t.Cleanup(func() { _ = file.Close() })
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
	}
	command.Env = append(os.Environ(), "NOTIFY_SOCKET="+address, "LISTEN_FDS=3", "LISTEN_FDNAMES=http:smtp:odd")
	var log bytes.Buffer
	command.Stderr = &log
	if err := children.Start(command); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		if t.Failed() {
			t.Log(log.String())
		}
	})

	if said := heard(); said != "READY=1\n" {
		t.Fatalf("heard %q", said)
	}
	answer, err := http.Get("http://" + sockets["http"] + "/healthz")
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("the socket that was passed: %v, %v", answer, err)
	}
	_ = answer.Body.Close()
	mail, err := textproto.Dial("tcp", sockets["smtp"])
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := mail.ReadResponse(220); err != nil {
		t.Error(err)
	}
	_ = mail.Close()
	if other, err := net.DialTimeout("tcp", s.Settings.HTTP, time.Second); err == nil {
		_ = other.Close()
		t.Error("the server has opened http.listen as well")
	}

	if err := command.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if said := heard(); !strings.HasPrefix(said, "RELOADING=1\nMONOTONIC_USEC=") {
		t.Errorf("heard %q", said)
	}
	if said := heard(); said != "READY=1\n" {
		t.Errorf("heard %q", said)
	}
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if said := heard(); said != "STOPPING=1\n" {
		t.Errorf("heard %q", said)
	}
	if err := await.Receive(t, ended, "the end of the server"); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "names=odd") {
		t.Error("a socket that no listener takes is not named in the log")
	}
}

// TestUnits: systemd understands the units of releases and those that inbox init writes, and finds the service well closed.
func TestUnits(t *testing.T) {
	t.Parallel()
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	for kind, mail := range map[string]string{"echo": "mx", "command": "none"} {
		written := t.TempDir()
		initialize := exec.CommandContext(t.Context(), binary, "init", "--yes", "--dir", written, "--domain", "agents.example", "--email", "-",
			"--agent", "helper", "--kind", kind, "--mail", mail, "--address", "192.0.2.1")
		if kind == "command" {
			initialize.Args = append(initialize.Args, "--backend", "/bin/cat")
		}
		if said, err := initialize.CombinedOutput(); err != nil {
			t.Fatalf("inbox init: %v\n%s", err, said)
		}
		if mail != "none" { // a database with keys says who made them
			list := exec.CommandContext(t.Context(), binary, "audit", "list", "--json", "--config", filepath.Join(written, "inbox.toml"))
			if said, err := list.Output(); err != nil || strings.Count(string(said), `"operator:command.init"`) != 1 {
				t.Errorf("on record after inbox init: %s, %v", said, err)
			}
		}
		unit := filepath.Join(written, "inbox.service")
		analyze(t, "verify", "--man=no", unit)
		analyze(t, "security", "--offline=true", "--threshold=20", "--no-pager", unit)
	}

	directory := t.TempDir()
	units, err := filepath.Glob(filepath.Join("..", "docs", "ops", "inbox*.*"))
	if err != nil {
		t.Fatal(err)
	}
	var copied []string
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(directory, filepath.Base(unit))
		text = bytes.ReplaceAll(text, []byte("/usr/local/bin/inbox"), []byte(binary))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		copied = append(copied, file)
	}
	if len(copied) != 6 {
		t.Fatalf("found %v", copied)
	}

	analyze(t, append([]string{"verify", "--man=no"}, copied...)...)
	for _, unit := range []string{"inbox.service", "inbox-backup.service"} {
		analyze(t, "security", "--offline=true", "--threshold=20", "--no-pager", filepath.Join(directory, unit))
	}
}

func analyze(t *testing.T, arguments ...string) {
	t.Helper()
	if said, err := exec.CommandContext(t.Context(), "systemd-analyze", arguments...).CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze %s: %v (Debian package systemd)\n%s", arguments, err, said)
	}
}
