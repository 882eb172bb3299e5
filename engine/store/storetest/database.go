// Package storetest is the conformance suite of the store: every database that engine/store offers must pass it. It
// also returns tests a PostgreSQL database of their own. It is for tests only.
package storetest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // for goose
	"github.com/pressly/goose/v3"

	"inbox/migrations"
)

// DatabaseVariable names the environment variable with the URL of a PostgreSQL server that tests may use.
const DatabaseVariable = "INBOX_TEST_DATABASE_URL"

// template is the database that all others of this process are copied from: the migrations take many times as long as the copy.
var template struct {
	once sync.Once
	name string
}

// Postgres creates a database with the newest schema and no rows on the test server and returns its URL; the database goes when
// the test ends. Without a server the test fails and names what to do.
func Postgres(t testing.TB) string {
	t.Helper()
	template.once.Do(func() { template.name = migrated(t) })
	if template.name == "" {
		t.Fatal("the template of the test databases was not made; an earlier test says why")
	}
	return create(t, "TEMPLATE "+template.name+" STRATEGY FILE_COPY") // a third of the work of copying through the log; since 15
}

// EmptyPostgres creates a database without any schema on the test server and returns its URL; it goes when the test ends.
func EmptyPostgres(t testing.TB) string {
	t.Helper()
	return create(t, "")
}

// migrated makes a template of the schema of these migrations and returns its name. It stays on the server, because the test
// processes of other packages copy it at the same time: the first one makes it, under a lock.
func migrated(t testing.TB) string {
	t.Helper()
	names, err := fs.Glob(migrations.Files, "*.sql")
	if err != nil {
		t.Fatal(err)
	}

	digest := sha256.New()
	for _, name := range names {
		text, err := fs.ReadFile(migrations.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(digest, "%s %d ", name, len(text))
		digest.Write(text)
	}

	name := "inbox_template_" + hex.EncodeToString(digest.Sum(nil)[:8])

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	connection, err := pgx.Connect(ctx, serverURL(t))
	if err != nil {
		t.Fatalf("connect to %s: %v", DatabaseVariable, err)
	}
	defer func() {
		if err := connection.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	}()

	var ready bool
	if _, err := connection.Exec(ctx, "SELECT pg_advisory_lock(hashtext($1))", name); err != nil { // goes with the connection
		t.Fatalf("wait for the template: %v", err)
	}

	// Only a finished template is marked as one: a process that was killed in the middle leaves a database without the mark.
	err = connection.QueryRow(ctx, "SELECT COALESCE(bool_or(datistemplate), false) FROM pg_database WHERE datname = $1", name).Scan(&ready)
	if err != nil {
		t.Fatalf("look for the template: %v", err)
	}
	if ready {
		return name
	}

	for _, statement := range []string{"DROP DATABASE IF EXISTS " + name, "CREATE DATABASE " + name} {
		if _, err := connection.Exec(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}

	migrate(ctx, t, databaseURL(t, name))
	if _, err := connection.Exec(ctx, "ALTER DATABASE "+name+" IS_TEMPLATE true"); err != nil {
		t.Fatalf("mark the template: %v", err)
	}

	return name
}

func migrate(ctx context.Context, t testing.TB, address string) {
	t.Helper()
	database, err := sql.Open("pgx", address)
	if err != nil {
		t.Fatal(err)
	}

	provider, err := goose.NewProvider(goose.DialectPostgres, database, migrations.For(migrations.Postgres), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.Up(ctx); err != nil {
		t.Fatalf("migrate the template: %v", err)
	}
	if err := database.Close(); err != nil { // no one may be connected to a template
		t.Fatalf("close the template: %v", err)
	}
}

func serverURL(t testing.TB) string {
	t.Helper()
	server := os.Getenv(DatabaseVariable)
	if server == "" {
		t.Fatalf("set %s or run make test (needs Debian package postgresql)", DatabaseVariable)
	}
	return server
}

func create(t testing.TB, from string) string {
	t.Helper()
	name := "inbox_test_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	administer(t, serverURL(t), "CREATE DATABASE "+name+" "+from)
	t.Cleanup(func() { administer(t, serverURL(t), "DROP DATABASE "+name+" WITH (FORCE)") })
	return databaseURL(t, name)
}

func databaseURL(t testing.TB, name string) string {
	t.Helper()
	u, err := url.Parse(serverURL(t))
	if err != nil {
		t.Fatalf("%s: %v", DatabaseVariable, err)
	}
	u.Path = "/" + name
	return u.String()
}

func administer(t testing.TB, server, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	connection, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatalf("connect to %s: %v", DatabaseVariable, err)
	}
	defer func() {
		if err := connection.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	if _, err := connection.Exec(ctx, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// newest are the files of a SQLite database that all others of this process are copied from.
var newest struct {
	once  sync.Once
	files map[string][]byte // by their names
}

// Directory returns a data directory with a SQLite database of the newest schema and no rows. open makes such a database in
// an empty directory.
func Directory(t testing.TB, open func(directory string) (io.Closer, error)) string {
	t.Helper()
	directory := t.TempDir()
	Fill(t, directory, open)
	return directory
}

// MemoryDirectory is Directory in memory, if the system has a file system there. It is for tests in virtual time: hours of it have thousands of commits, whose
// fsyncs take real time, and no such test is about what a disk keeps.
func MemoryDirectory(t testing.TB, open func(directory string) (io.Closer, error)) string {
	t.Helper()
	directory, err := os.MkdirTemp("/dev/shm", "inbox-virtual-*") //nolint:usetesting // T.TempDir is on disk
	if err != nil {
		return Directory(t, open)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(directory); err != nil {
			t.Error(err)
		}
	})
	Fill(t, directory, open)
	return directory
}

// Fill is Directory for an empty directory that is there.
func Fill(t testing.TB, directory string, open func(directory string) (io.Closer, error)) {
	t.Helper()
	newest.once.Do(func() {
		directory := t.TempDir()
		opened, err := open(directory)
		if err != nil {
			t.Fatal(err)
		}
		if err := opened.Close(); err != nil {
			t.Fatal(err)
		}

		files, err := filepath.Glob(filepath.Join(directory, "*.db"))
		if err != nil {
			t.Fatal(err)
		}
		made := map[string][]byte{}
		for _, file := range files {
			if made[filepath.Base(file)], err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
		newest.files = made
	})

	if len(newest.files) == 0 {
		t.Fatal("the template of the test databases was not made; an earlier test says why")
	}
	for name, content := range newest.files {
		if err := os.WriteFile(filepath.Join(directory, name), content, 0o600); err != nil {
			t.Fatalf("copy the template of the test databases: %v", err)
		}
	}
}
