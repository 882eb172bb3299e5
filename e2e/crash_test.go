package e2e

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/blob/blobtest"
)

const (
	crashSenders = 200
	crashes      = 10
)

// TestNothingIsLostWhenKilled kills the server again and again under load. Afterwards every message that it
// acknowledged has exactly one reply, and every file to which a row refers is there: beside SQLite in a directory, beside PostgreSQL in a
// bucket.
func TestNothingIsLostWhenKilled(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		files, keys, directory := "", "", ""
		if database != "" {
			server := blobtest.StartServer(t)
			files, directory = server.URL("of/inbox"), filepath.Join(server.Directory, "of", "inbox")
			keys = fmt.Sprintf("[blob]\naccess_key = %q\nsecret_key = %q\n", blobtest.AccessKey, blobtest.SecretKey)
		}
		w := newStormIn(t, database, files, keys)
		w.large = true
		w.begin(crashSenders)
		for range crashes {
			w.progress()
			if err := w.s.Kill(); err != nil {
				t.Fatal(err)
			}
			w.s.start()
		}
		w.progress()
		w.finish()
		w.judge()
		w.s.stop()
		w.filesAreThere(cmp.Or(directory, filepath.Join(w.s.Directory, "data", "blobs")))
	})
}

// filesAreThere looks for the files of all large originals.
func (w *storm) filesAreThere(directory string) {
	w.t.Helper()
	digests, err := w.s.Column(w.t.Context(), "SELECT digest FROM originals WHERE encoding = 'blob'")
	if err != nil {
		w.t.Fatal(err)
	}
	if len(digests) == 0 {
		w.t.Error("no message has a file")
	}
	for _, digest := range digests {
		inBucket, _ := filepath.Glob(filepath.Join(directory, digest[:2], digest+".*"))
		inDirectory, _ := filepath.Glob(filepath.Join(directory, digest[:2], digest[2:4], digest))
		if len(inBucket)+len(inDirectory) == 0 {
			w.t.Errorf("the original %s is lost", digest)
		}
	}
}

// progress lets the storm go on for a random while in which the server takes at least some messages.
func (w *storm) progress() {
	w.t.Helper()
	before := w.acknowledged.Load()
	<-time.After(500*time.Millisecond + rand.N(2*time.Second))
	eventually(w.t, "the server takes messages", func() bool { return w.acknowledged.Load() > before+50 })
}

// TestGracefulStopUnderLoad stops the server as an operator does, twice, while everybody writes.
func TestGracefulStopUnderLoad(t *testing.T) {
	w := newStorm(t, "")
	w.begin(60)
	for range 2 {
		w.progress()
		w.s.stop() // demands exit code 0
		w.s.start()
	}
	w.progress()
	w.finish()
	w.judge()
}

// The limits of a server on the internet, which the servers of these tests do not have by themselves.
const usualLimits = `[limits]
sender = ["30/1m", "300/1h"]
host = ["600/1m"]
agent = ["1200/1m"]
total = ["3000/1m"]
thread = ["60/1h"]
mail_sender = ["20/1h"]
mail_pace = "5s"
http = ["3000/1m"]
`

// TestAcknowledgedIsAnsweredAfterRefusals: while the database refuses, peers of all protocols repeat the same messages far
// more often than any limit allows, as real ones do. What is acknowledged afterwards is answered, once, and never kept
// in silence; nothing but stored messages used up a limit.
func TestAcknowledgedIsAnsweredAfterRefusals(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		w := newStormWith(t, database, usualLimits)
		const senders, outages = 12, 2
		w.most = 4
		allow, err := w.s.Refuse(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.begin(senders)
		for outage := range outages {
			before := w.retries.Load()
			eventually(t, "each sender was refused 40 times", func() bool { return w.retries.Load() >= before+40*senders })
			taken := w.acknowledged.Load() // now, while it stays as it is
			if err := allow(t.Context()); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the server takes messages again", func() bool { return w.acknowledged.Load() >= min(taken+senders, int64(senders*w.most)) })
			if outage == outages-1 {
				break
			}
			if allow, err = w.s.Refuse(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "every message is acknowledged", func() bool { return w.acknowledged.Load() == int64(senders*w.most) })
		w.finish()
		w.judge()
		w.allAnswered(senders * w.most)
	})
}

// allAnswered demands that every stored message has its agent's answer: a notice or silence is none.
func (w *storm) allAnswered(messages int) {
	w.t.Helper()
	found := states(w.t, w.s.Instance)
	unanswered := slices.DeleteFunc(slices.Clone(found), func(state string) bool { return state == exchange.StateAnswered })
	if len(found) != messages || len(unanswered) > 0 {
		reasons, _ := w.s.Column(w.t.Context(), "SELECT state || ': ' || reason FROM turns WHERE state <> 'answered' LIMIT 20")
		w.t.Errorf("%d messages are stored, want %d; not answered: %v", len(found), messages, reasons)
	}
}

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
	removeFilesOf(t, own)
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
