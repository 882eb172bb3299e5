// Package storetest is the conformance suite of the store: every database that engine/store offers must pass it. It
// also gives tests an empty PostgreSQL database. It is for tests only.
package storetest

import (
	"context"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// DatabaseVariable names the environment variable with the URL of a PostgreSQL server that tests may use.
const DatabaseVariable = "INBOX_TEST_DATABASE_URL"

// Postgres creates an empty database on the test server and gives its URL; the database goes when the test ends.
// Without a server the test fails and says what to do.
func Postgres(t testing.TB) string {
	t.Helper()
	server := os.Getenv(DatabaseVariable)
	if server == "" {
		t.Fatalf("set %s or run make test (needs Debian package postgresql)", DatabaseVariable)
	}
	name := "inbox_test_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	administer(t, server, "CREATE DATABASE "+name)
	t.Cleanup(func() { administer(t, server, "DROP DATABASE "+name+" WITH (FORCE)") })
	u, err := url.Parse(server)
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
