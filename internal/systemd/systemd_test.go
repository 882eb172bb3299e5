package systemd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"

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
	for _, micros := range []string{"soon", "-1"} {
		t.Setenv("WATCHDOG_USEC", micros)
		if _, err := systemd.Open(); err == nil || !strings.Contains(err.Error(), "WATCHDOG_USEC") {
			t.Errorf("%s: %v", micros, err)
		}
	}

	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	if err := open(t).Notify(systemd.Ready); err == nil {
		t.Error("no one listens, and no error")
	}
}

// TestLibraryForgetsWhereToNotify: go-systemd either leaves the address to the programs that this one starts, or can tell one state only.
func TestLibraryForgetsWhereToNotify(t *testing.T) {
	heard := manager(t, filepath.Join(t.TempDir(), "notify"))
	if sent, err := daemon.SdNotify(false, daemon.SdNotifyReady); !sent || err != nil || heard() != daemon.SdNotifyReady {
		t.Fatalf("sent %v, %v", sent, err)
	}
	if os.Getenv("NOTIFY_SOCKET") == "" {
		t.Error("it hides the address from programs that this one starts: use daemon.SdNotify")
	}

	if sent, err := daemon.SdNotify(true, daemon.SdNotifyReady); !sent || err != nil || heard() != daemon.SdNotifyReady {
		t.Fatalf("sent %v, %v", sent, err)
	}
	if sent, err := daemon.SdNotify(true, daemon.SdNotifyStopping); sent || err != nil {
		t.Errorf("it tells a second state (sent %v, %v): use daemon.SdNotify", sent, err)
	}
}

// TestMain is also the program that gets sockets, which passed starts.
func TestMain(m *testing.M) {
	switch os.Getenv("INBOX_TEST_PASSED") {
	case "":
		os.Exit(m.Run())
	case "library":
		listeners, err := activation.ListenersWithNames()
		fmt.Printf("the library has %d, error %v\n", len(listeners), err)
	default:
		m, err := systemd.Open()
		fmt.Printf("left %v, error %v, environment %q\n", m.Left(), err, os.Getenv("LISTEN_PID")+os.Getenv("LISTEN_FDS")+os.Getenv("LISTEN_FDNAMES"))
		for _, name := range m.Left() {
			fmt.Printf("%s is at %s, then %v\n", name, m.Take(name).Addr(), m.Take(name))
		}
	}
}

// passed starts a program that gets sockets as systemd passes them (sd_listen_fds(3)), and returns what it prints.
func passed(t *testing.T, program, names string, sockets ...*os.File) string {
	t.Helper()
	// The shell keeps its process id for the program that it becomes.
	command := exec.CommandContext(t.Context(), "/bin/sh", "-c", `export LISTEN_PID=$$; exec "$0"`, os.Args[0])
	command.Env = append(os.Environ(), "INBOX_TEST_PASSED="+program, "LISTEN_FDS="+strconv.Itoa(len(sockets)), "LISTEN_FDNAMES="+names)
	command.ExtraFiles = sockets
	said, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	return string(said)
}

func stream(t *testing.T) (*os.File, string) {
	t.Helper()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	file, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(file.Close(), listener.Close()) })
	return file, listener.Addr().String()
}

func datagrams(t *testing.T) *os.File {
	t.Helper()
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	file, err := socket.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(file.Close(), socket.Close()) })
	return file
}

func TestSockets(t *testing.T) {
	http, address := stream(t)
	smtp, other := stream(t)
	for name, want := range map[string]struct {
		names   string
		sockets []*os.File
		said    []string
	}{
		"two":           {"http:smtp", []*os.File{http, smtp}, []string{`left [http smtp], error <nil>, environment ""`, "http is at " + address + ", then <nil>", "smtp is at " + other}},
		"without name":  {"", []*os.File{http}, []string{"left [LISTEN_FD_3], error <nil>"}},
		"one name":      {"http:http", []*os.File{http, smtp}, []string{`passed two sockets "http"`}},
		"of datagrams":  {"http", []*os.File{datagrams(t)}, []string{`the socket "http"`, "write ListenStream="}},
		"none, a name":  {"http", nil, []string{`left [], error <nil>, environment ""`}},
		"more than are": {"http", []*os.File{http, smtp}, []string{"left [LISTEN_FD_4 http], error <nil>"}},
	} {
		t.Run(name, func(t *testing.T) {
			said := passed(t, "ours", want.names, want.sockets...)
			for _, part := range want.said {
				if !strings.Contains(said, part) {
					t.Errorf("no %s in\n%s", part, said)
				}
			}
		})
	}
}

// TestLibraryLeavesOutWhatItCannotUse: a unit with ListenDatagram= would start a server that no one reaches.
func TestLibraryLeavesOutWhatItCannotUse(t *testing.T) {
	if said := passed(t, "library", "http", datagrams(t)); !strings.Contains(said, "the library has 0, error <nil>") {
		t.Errorf("use activation.ListenersWithNames:\n%s", said)
	}
}
