package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"inbox/internal/await"
)

// Cluster is a PostgreSQL server of its own for tests that stop, freeze or promote it.
type Cluster struct {
	t    testing.TB
	bin  string
	home string
	port int
}

// NewCluster makes and starts a PostgreSQL server that lives as long as the test.
func NewCluster(t testing.TB) *Cluster {
	t.Helper()
	c := newCluster(t)
	c.run("initdb", "-D", c.data(), "-U", "inbox", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-instructions", "--no-sync")
	c.Start()
	return c
}

// Standby makes and starts a standby with everything that the server has now. Changes stream to it under the name "standby".
func (c *Cluster) Standby() *Cluster {
	c.t.Helper()
	standby := newCluster(c.t)
	c.run("pg_basebackup", "-D", standby.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync",
		"-d", fmt.Sprintf("host=127.0.0.1 port=%d user=inbox application_name=standby", c.port))
	standby.Start()
	return standby
}

// newCluster returns a server without files.
func newCluster(t testing.TB) *Cluster {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(found) == 0 {
		t.Fatal("the programs of PostgreSQL are missing; install Debian's package postgresql")
	}

	home, err := os.MkdirTemp("", "inbox-cluster-*") //nolint:usetesting // t.TempDir lies in a directory that others may not enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Errorf("remove the cluster: %v", err)
		}
	})
	c := &Cluster{t: t, bin: slices.Max(found), home: home, port: freePort(t)}
	if credential := account(c.t); credential != nil {
		if err := os.Chown(home, int(credential.Uid), int(credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func freePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return listener.Addr().(*net.TCPAddr).Port
}

func (c *Cluster) data() string { return filepath.Join(c.home, "data") }

// account is who runs a server or a pooler: they refuse root.
func account(t testing.TB) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if found, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(found.Uid, 10, 32)
			gid, _ := strconv.ParseUint(found.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	t.Fatal("there is no account that PostgreSQL could run under")
	return nil
}

func (c *Cluster) run(program string, arguments ...string) {
	c.t.Helper()
	command := exec.Command(filepath.Join(c.bin, program), arguments...)
	command.Dir = c.home
	command.SysProcAttr = &syscall.SysProcAttr{Credential: account(c.t)}
	var output bytes.Buffer // a server that pg_ctl starts would hold a pipe open
	file, err := os.OpenFile(filepath.Join(c.home, "commands"), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer file.Close()
	command.Stdout, command.Stderr = file, file
	if err := command.Run(); err != nil {
		if text, readErr := os.ReadFile(file.Name()); readErr == nil {
			output.Write(text)
		}
		c.t.Fatalf("%s %q: %v\n%s", program, arguments, err, output.String())
	}
}

// Start starts the server, also after Stop.
func (c *Cluster) Start() {
	c.t.Helper()
	c.run("pg_ctl", "-D", c.data(), "-l", filepath.Join(c.home, "log"), "-w", "-t", "60", "-o",
		fmt.Sprintf("-h 127.0.0.1 -p %d -c unix_socket_directories= -c fsync=off -c max_wal_senders=4 -c shared_buffers=16MB", c.port), "start")
	process := c.process()
	c.t.Cleanup(func() {
		if err := syscall.Kill(process, syscall.SIGCONT); err == nil {
			_ = syscall.Kill(process, syscall.SIGQUIT) // all of the server ends at once
		}
	})
}

// Stop stops the server at once, as a crash does.
func (c *Cluster) Stop() { c.run("pg_ctl", "-D", c.data(), "-m", "immediate", "-w", "stop") }

// Promote makes a standby a primary.
func (c *Cluster) Promote() { c.run("pg_ctl", "-D", c.data(), "-w", "promote") }

// Freeze stops all processes of the server where they are; Thaw lets them continue.
func (c *Cluster) Freeze() { c.signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func (c *Cluster) Thaw() { c.signal(syscall.SIGCONT) }

func (c *Cluster) signal(signal syscall.Signal) {
	c.t.Helper()
	parent := c.process()
	processes := []int{parent}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	if err != nil {
		c.t.Fatal(err)
	}
	for field := range strings.FieldsSeq(string(children)) {
		if child, err := strconv.Atoi(field); err == nil {
			processes = append(processes, child)
		}
	}
	for _, process := range processes {
		if err := syscall.Kill(process, signal); err != nil {
			c.t.Fatalf("signal %v to %d: %v", signal, process, err)
		}
	}
}

func (c *Cluster) process() int {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if err != nil {
		c.t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	process, err := strconv.Atoi(first)
	if err != nil {
		c.t.Fatal(err)
	}
	return process
}

// Host is the address of the server in a URL.
func (c *Cluster) Host() string { return "127.0.0.1:" + strconv.Itoa(c.port) }

// URL names servers in the order in which they are to be tried, and the database inbox makes its tables in.
func URL(servers ...*Cluster) string {
	hosts := make([]string, len(servers))
	for i, one := range servers {
		hosts[i] = one.Host()
	}
	return "postgres://inbox@" + strings.Join(hosts, ",") + "/postgres?sslmode=disable&connect_timeout=2"
}

// Set changes settings of the whole server and waits until new sessions have them.
func (c *Cluster) Set(settings map[string]string) {
	c.t.Helper()
	for name, value := range settings {
		c.Ask("ALTER SYSTEM SET " + name + " = '" + value + "'")
	}
	c.Ask("SELECT pg_reload_conf()")
	for name, value := range settings {
		await.Until(c.t, name+" = "+value, func() bool { return c.Ask("SHOW "+name) == value })
	}
}

// Ask executes a statement on a connection of its own and returns its first value; empty = it has no rows.
func (c *Cluster) Ask(statement string) string {
	c.t.Helper()
	connection, err := pgconn.Connect(c.t.Context(), URL(c))
	if err != nil {
		c.t.Fatal(err)
	}
	results, err := connection.Exec(c.t.Context(), statement).ReadAll()
	if err := errors.Join(err, connection.Close(c.t.Context())); err != nil {
		c.t.Fatalf("%s: %v", statement, err)
	}
	if len(results) == 0 || len(results[0].Rows) == 0 {
		return ""
	}
	return string(results[0].Rows[0][0])
}
