package systemd_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"inbox/internal/await"
	"inbox/internal/systemd"
)

// manager listens as systemd does.
func manager(t *testing.T, name string) (heard func() string) {
	t.Helper()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return func() string {
		t.Helper()
		if err := socket.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
			t.Fatal(err)
		}
		said := make([]byte, 4096)
		n, err := socket.Read(said)
		if err != nil {
			t.Fatal(err)
		}
		return string(said[:n])
	}
}

func open(t *testing.T) *systemd.Manager {
	t.Helper()
	m, err := systemd.Open()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestNotify(t *testing.T) {
	for name, address := range map[string]string{
		"a file": filepath.Join(t.TempDir(), "notify"), "an abstract name": "@inbox-test-" + strconv.Itoa(os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			heard := manager(t, address)
			t.Setenv("WATCHDOG_USEC", "30000")
			m := open(t)
			if os.Getenv("NOTIFY_SOCKET") != "" || os.Getenv("WATCHDOG_USEC") != "" {
				t.Error("programs that this one starts would speak for it")
			}
			if err := m.Notify(systemd.Ready); err != nil {
				t.Fatal(err)
			}
			if said := heard(); said != "READY=1\n" {
				t.Errorf("heard %q", said)
			}

			if err := m.Notify(systemd.Reloading()...); err != nil {
				t.Fatal(err)
			}
			said := heard()
			micros, found := strings.CutPrefix(said, "RELOADING=1\nMONOTONIC_USEC=")
			if since, err := strconv.ParseInt(strings.TrimSpace(micros), 10, 64); !found || err != nil || since <= 0 {
				t.Errorf("heard %q", said)
			}

			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { m.Watch(ctx); close(ended) }()
			for range 2 {
				if said := heard(); said != "WATCHDOG=1\n" {
					t.Errorf("heard %q", said)
				}
			}
			stop()
			await.Receive(t, ended, "the end of the watch")
		})
	}
}

func TestWithoutManager(t *testing.T) {
	for name, environment := range map[string]map[string]string{
		"none":                       {},
		"one of another process":     {"LISTEN_PID": "1", "LISTEN_FDS": "1", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
		"a watchdog without address": {"WATCHDOG_USEC": "1000"},
	} {
		t.Run(name, func(t *testing.T) {
			for key, value := range environment {
				t.Setenv(key, value)
			}
			m := open(t)
			m.Watch(t.Context()) // returns at once
			if m.Take("http") != nil || len(m.Left()) != 0 || m.Notify(systemd.Ready) != nil {
				t.Error("there is a manager")
			}
		})
	}
}

func TestNonsense(t *testing.T) {
	for name, want := range map[string]string{"many": "LISTEN_FDS", "-1": "LISTEN_FDS", "65": "LISTEN_FDS"} {
		t.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
		t.Setenv("LISTEN_FDS", name)
		if _, err := systemd.Open(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}

	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	if err := open(t).Notify(systemd.Ready); err == nil {
		t.Error("no one listens, and no error")
	}
}
