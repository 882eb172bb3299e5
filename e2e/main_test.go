package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	"inbox/e2e/instance"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/inboxtest"
)

// scratch is a directory for what all tests share.
var scratch string

// built compiles the program under test once, for all tests.
var built func() (string, error)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	directory, err := os.MkdirTemp("", "inbox-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(directory) }()
	scratch = directory
	http.DefaultClient.Timeout = 10 * patience // also for streams, which last as long as what is streamed
	http.DefaultClient.Transport = anyHost{}
	built = sync.OnceValues(func() (string, error) { return instance.Build(context.Background(), directory) })
	return m.Run()
}

// onBothDatabases runs a test on SQLite and on PostgreSQL, at the same time: most of what a test does is to wait. The function
// gets the value of the setting database_url.
func onBothDatabases(t *testing.T, test func(t *testing.T, database string)) {
	t.Helper()
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, "") })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, postgres(t)) })
}

// onDatabasesInTurn is onBothDatabases for tests whose two runs share a peer.
func onDatabasesInTurn(t *testing.T, test func(t *testing.T, database string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, "") })
	t.Run("postgres", func(t *testing.T) { test(t, postgres(t)) })
}

// postgres returns the URL of a database of its own with the newest schema, which has no rows.
func postgres(t *testing.T) string {
	t.Helper()
	url := storetest.Postgres(t)
	removeFilesOf(t, url)
	return url
}

// emptyPostgres is postgres without the schema: the program under test makes it.
func emptyPostgres(t *testing.T) string {
	t.Helper()
	url := storetest.EmptyPostgres(t)
	removeFilesOf(t, url)
	return url
}

func removeFilesOf(t *testing.T, database string) {
	t.Helper()
	t.Cleanup(func() {
		if err := instance.RemoveFiles(database); err != nil {
			t.Error(err)
		}
	})
}

// server is an instance whose failures end the test.
type server struct {
	*instance.Instance
	t *testing.T
}

// newServer configures a server without starting it.
func newServer(t *testing.T, settings instance.Settings) *server {
	t.Helper()
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	configured, err := instance.New(binary, t.TempDir(), settings)
	if err != nil {
		t.Fatal(err)
	}
	return &server{Instance: configured, t: t}
}

// storeKeys leaves a database in which the RSA keys stand already, once for all servers of one test process.
func storeKeys(t *testing.T, configured *instance.Instance) {
	t.Helper()
	var file struct{ Agents []struct{ Name string } }
	if _, err := toml.Decode(configured.Settings.Agents, &file); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, agent := range file.Agents {
		names = append(names, agent.Name)
	}

	data := filepath.Join(configured.Directory, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if configured.Settings.Database == "" {
		storetest.Fill(t, data, func(directory string) (io.Closer, error) {
			return store.Open(t.Context(), store.Options{DataDir: directory})
		})
	}
	opened, err := store.Open(t.Context(), store.Options{URL: cmp.Or(configured.Settings.Database, "sqlite"), DataDir: data})
	if err != nil {
		t.Fatal(err)
	}
	inboxtest.StoreKeys(t, opened, names...)
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}
}

// patience is how long a test waits for anything that should happen within a moment.
const patience = 30 * time.Second

// start starts a server with ready keys, stops it at the end of the test and demands that it ends with 0.
func start(t *testing.T, settings instance.Settings) *server {
	t.Helper()
	s := newServer(t, settings)
	storeKeys(t, s.Instance)
	s.start()
	t.Cleanup(func() {
		if s.Alive() {
			s.stop()
		}
		if t.Failed() {
			t.Logf("log of the server:\n%s", tail(s.Log(), 16<<10))
		}
	})
	return s
}

func tail(text string, size int) string {
	if len(text) <= size {
		return text
	}
	return "…" + text[len(text)-size:]
}

func (s *server) start() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Start(ctx); err != nil {
		s.t.Fatal(err)
	}
}

// stop demands a graceful end.
func (s *server) stop() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	code, err := s.Stop(ctx)
	if err != nil {
		_ = s.Kill()
		s.t.Error(err)
		return
	}
	if code != 0 {
		s.t.Errorf("the server ended with %d after SIGTERM; want 0", code)
	}
}

// killed ends the server with SIGKILL and starts it again.
func (s *server) killed() {
	s.t.Helper()
	if err := s.Kill(); err != nil {
		s.t.Fatal(err)
	}
	s.start()
}

// rows counts the rows of all tables but the adapters' documents (fetched keys are kept there) and the hours of the statistics.
func (s *server) rows() map[string]int64 {
	s.t.Helper()
	counts, err := s.Rows(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	delete(counts, "documents")
	delete(counts, "counted_hours") // a row for each hour, whatever comes
	return counts
}

// inbox runs a command of the program.
func (s *server) inbox(arguments ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 4*patience)
	defer cancel()
	output, err := s.Run(ctx, arguments...)
	if err != nil {
		s.t.Fatal(err)
	}
	return output
}

// eventually polls a condition on state that only another process has (its database, its files).
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("did not happen within %s: %s", patience, what)
		}
	}
}
