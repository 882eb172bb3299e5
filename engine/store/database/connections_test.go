package database

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"inbox/engine/store/storetest"
)

// processesOf asks a database several times for the process that answers, through a pool of one connection.
func processesOf(ctx context.Context, url string, life time.Duration, times int) (processes []int, err error) {
	config, _, err := postgresConfig(url)
	if err != nil {
		return nil, err
	}

	pool := openPostgresPool(config, 1, life, nil)
	defer func() { err = errors.Join(err, pool.Close()) }()

	for range times {
		var process int
		if err := pool.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&process); err != nil {
			return nil, err
		}
		processes = append(processes, process)
	}
	return processes, nil
}

// TestOldConnectionsAreReplaced: a connection that has lived its time is not used again, and none is before.
func TestOldConnectionsAreReplaced(t *testing.T) {
	url := storetest.Postgres(t)
	for life, want := range map[time.Duration]int{time.Hour: 1, 0: 3} {
		processes, err := processesOf(t.Context(), url, life, 3)
		if err != nil {
			t.Fatal(err)
		}

		slices.Sort(processes)
		if got := len(slices.Compact(processes)); got != want {
			t.Errorf("%d connections for 3 questions with a life of %v, want %d", got, life, want)
		}
	}
}

// wantedServer returns the kind of server that a URL is taken to ask for: read-write, any or other.
func wantedServer(url string) (string, error) {
	config, _, err := postgresConfig(url)
	if err != nil {
		return "", err
	}

	pointer := func(check pgconn.ValidateConnectFunc) uintptr { return reflect.ValueOf(check).Pointer() }
	switch {
	case config.ValidateConnect == nil:
		return "any", nil
	case pointer(config.ValidateConnect) == pointer(pgconn.ValidateConnectTargetSessionAttrsReadWrite):
		return "read-write", nil
	}
	return "other", nil
}

// TestWantedServer: what the operator wrote wins over our wish for a server that can be written to.
func TestWantedServer(t *testing.T) {
	t.Setenv("PGTARGETSESSIONATTRS", "")
	for text, want := range map[string]string{
		"postgres://u@a/db":                                           "read-write",
		"postgres://u@a:5432,b:5433/db?sslmode=disable":               "read-write",
		"postgres://u@a/db?target_session_attrs=any":                  "any",
		"postgres://u@a/db?target_session_attrs=primary":              "other",
		"postgres://u@a,b/db?target_session_attrs=read-write":         "read-write",
		"postgresql:///db?host=a,b&port=1,2&target_session_attrs=any": "any",
	} {
		if got, err := wantedServer(text); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}

	t.Setenv("PGTARGETSESSIONATTRS", "any")
	if got, err := wantedServer("postgres://u@a/db"); err != nil || got != "any" {
		t.Errorf("from the environment: %q, %v", got, err)
	}
}

// TestSessionsDoNotKeepLocks: PostgreSQL ends a session whose node hangs in a transaction, and one whose machine is gone.
func TestSessionsDoNotKeepLocks(t *testing.T) {
	config, _, err := postgresConfig(storetest.EmptyPostgres(t))
	if err != nil {
		t.Fatal(err)
	}
	pool := openPostgresPool(config, 1, time.Hour, nil)
	defer pool.Close()

	for setting, want := range map[string]string{
		"idle_in_transaction_session_timeout": "1min", "tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3",
	} {
		var got string
		if err := pool.QueryRowContext(t.Context(), "SHOW "+setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", setting, got, err, want)
		}
	}
}

// TestAdviceForWhatStandsBetween: the error of a start names a pooler that loses sessions, and connections that are all in use.
func TestAdviceForWhatStandsBetween(t *testing.T) {
	config, _, err := postgresConfig("postgres://u@db1:5432/inbox")
	if err != nil {
		t.Fatal(err)
	}
	for code, want := range map[string]string{"42P05": "pool_mode = session", "26000": "pool_mode = session", "53300": "max_connections", "57P03": "check database_url"} {
		if got := unusablePostgres(config, fmt.Errorf("migrate: %w", &pgconn.PgError{Code: code})); !strings.Contains(got, want) || !strings.Contains(got, "db1:5432") {
			t.Errorf("%s: %q does not say %q", code, got, want)
		}
	}
}
