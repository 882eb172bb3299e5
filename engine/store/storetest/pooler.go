package storetest

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"inbox/internal/await"
	"inbox/internal/children"
)

// PgBouncer starts PgBouncer in front of a database, with settings such as "pool_mode = session", and returns the URL of the database through it.
// It lives as long as the test.
func PgBouncer(t testing.TB, database string, settings ...string) string {
	t.Helper()
	target, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // where a user's PATH does not lead
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatal("PgBouncer is missing; install Debian's package pgbouncer (scripts/install-test-dependencies)")
	}

	home, err := os.MkdirTemp("", "inbox-pgbouncer-*") //nolint:usetesting // t.TempDir lies in a directory that others may not enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	port := freePort(t)
	text := fmt.Sprintf("[databases]\n* = host=%s port=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = trust\nauth_file = %s\n",
		target.Hostname(), target.Port(), port, filepath.Join(home, "users"))
	text += strings.Join(append(settings, ""), "\n")
	for name, content := range map[string]string{"users": `"inbox" ""` + "\n", "pgbouncer.ini": text} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(content), 0o644); err != nil { // read by the account of the pooler
			t.Fatal(err)
		}
	}
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}

	command := exec.Command(program, filepath.Join(home, "pgbouncer.ini"))
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	command.SysProcAttr = &syscall.SysProcAttr{Credential: account(t)}
	if err := children.Start(command); err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	ended := make(chan struct{})
	go func() { _ = command.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("PgBouncer printed:\n%s", output.String())
		}
	})

	target.Host = fmt.Sprintf("127.0.0.1:%d", port)
	await.Until(t, "PgBouncer listens", func() bool {
		connection, err := net.Dial("tcp", target.Host)
		if err == nil {
			_ = connection.Close()
		}
		return err == nil
	})
	return target.String()
}
