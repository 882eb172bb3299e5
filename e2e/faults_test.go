package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/internal/await"
)

// fault harms the database of a server, of which w.s is the settings, until undo is called.
type fault func(t *testing.T, w *storm) (undo func())

// TestAcknowledgedIsAnsweredThroughFaults: the database turns read-only, stops at once or stalls, while peers of all
// protocols send and repeat. What they were told is taken is answered, once, without a restart of the server.
func TestAcknowledgedIsAnsweredThroughFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		database func(t *testing.T) (url, control string)
		fault    func(control string) fault
		times    int
	}{
		"postgres is read-only":      {besideOthers, func(string) fault { return readOnly }, 2},
		"postgres stops":             {cluster, crashed, 2},
		"postgres stalls":            {besideOthers, func(string) fault { return locked }, 1},
		"sqlite stalls":              {func(*testing.T) (string, string) { return "", "" }, func(string) fault { return locked }, 1},
		"postgres ends all sessions": {besideOthers, func(string) fault { return terminated }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database, control := c.database(t)
			w := newStorm(t, database)
			const senders = 9
			w.begin(senders)

			for range c.times {
				taken := w.acknowledged.Load()
				eventually(t, "the server takes messages", func() bool { return w.acknowledged.Load() >= taken+senders })
				failed := w.retries.Load()
				undo := sync.OnceFunc(c.fault(control)(t, w))
				t.Cleanup(undo) // a server cannot end before
				eventually(t, "peers repeat what the server could not take", func() bool { return w.retries.Load() >= failed+3 })
				undo()
			}

			taken := w.acknowledged.Load()
			eventually(t, "the server takes messages again", func() bool { return w.acknowledged.Load() >= taken+senders })
			w.finish()
			w.judge()
			w.allAnswered(int(w.acknowledged.Load()))
		})
	}
}

func besideOthers(t *testing.T) (url, control string) { return postgres(t), "" }

// execute runs statements on the server's database, over one connection that stays open until done is called.
func execute(t *testing.T, s *instance.Instance, statements ...string) (done func()) {
	t.Helper()
	database, err := s.Writable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	session, err := database.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range statements {
		if _, err := session.ExecContext(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return func() {
		if err := errors.Join(ignoreDone(session.Close()), database.Close()); err != nil {
			t.Errorf("close the session of the test: %v", err)
		}
	}
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrConnDone) {
		return nil
	}
	return err
}

const endOthers = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

// readOnly is what a server sees whose primary became a standby: its sessions end, and new ones only read.
func readOnly(t *testing.T, w *storm) (undo func()) {
	alter := "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = '||'VALUE', current_database()); END $$"
	execute(t, w.s.Instance, strings.Replace(alter, "VALUE", "on", 1), endOthers)()
	return func() {
		execute(t, w.s.Instance, "SET default_transaction_read_only = off", strings.Replace(alter, "VALUE", "off", 1))()
	}
}

// terminated ends all sessions again and again, as a pooler does that is restarted.
func terminated(t *testing.T, w *storm) (undo func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			execute(t, w.s.Instance, endOthers)()
			select {
			case <-ticker.C:
			case <-stop:
				return
			}
		}
	}()
	return func() { close(stop); await.Receive(t, stopped, "the last end of all sessions") }
}

// locked takes the lock that every message needs, as a forgotten transaction or a full disk of the database's host does.
func locked(t *testing.T, w *storm) (undo func()) {
	statements := []string{"BEGIN IMMEDIATE"}
	if w.s.Settings.Database != "" {
		statements = []string{"BEGIN", "LOCK TABLE turns IN ACCESS EXCLUSIVE MODE"}
	}
	return execute(t, w.s.Instance, statements...)
}

// cluster starts a PostgreSQL of its own, which a test may stop without harm to others.
func cluster(t *testing.T) (url, control string) {
	t.Helper()
	control = t.TempDir() + "/cluster"
	if err := os.Chmod(t.TempDir()+"/..", 0o755); err != nil { // PostgreSQL runs as an account of its own
		t.Fatal(err)
	}
	url = script(t, control, "start")
	script(t, control, "guard", strconv.Itoa(os.Getpid()))
	t.Cleanup(func() { script(t, control, "stop") })
	own, _, err := instance.NewDatabase(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return own, control
}

func script(t *testing.T, directory string, arguments ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	command := exec.CommandContext(ctx, "../scripts/test-postgres", arguments...)
	command.Env = append(os.Environ(), "INBOX_TEST_POSTGRES_DIR="+directory)
	var said, complained bytes.Buffer
	command.Stdout, command.Stderr = &said, &complained
	if err := command.Run(); err != nil {
		t.Fatalf("scripts/test-postgres %s: %v: %s", arguments, err, complained.String())
	}
	return strings.TrimSpace(said.String())
}

// crashed stops PostgreSQL in the middle of what it does; it recovers when it is started again.
func crashed(control string) fault {
	return func(t *testing.T, _ *storm) (undo func()) {
		script(t, control, "crash")
		return func() { script(t, control, "resume") }
	}
}
