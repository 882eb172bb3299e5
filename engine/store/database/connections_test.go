package database

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"inbox/engine/store/storetest"
	"inbox/internal/await"
)

// TestOldConnectionsAreReplaced: a connection that has lived its time is not used again, and none is before.
func TestOldConnectionsAreReplaced(t *testing.T) {
	config, _, err := postgresConfig(storetest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	process := func(t *testing.T, pool *pgxpool.Pool) (process int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&process); err != nil {
			t.Fatal(err)
		}
		return process
	}
	open := func(t *testing.T, life time.Duration) *pgxpool.Pool {
		t.Helper()
		config := config.Copy()
		config.MaxConnLifetime, config.MaxConnLifetimeJitter = life, 0
		pool, err := openPostgresPool(config, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return pool
	}

	young := open(t, time.Hour)
	if first, second := process(t, young), process(t, young); first != second {
		t.Errorf("processes %d and %d answered on a connection that lives for an hour", first, second)
	}
	old := open(t, 100*time.Millisecond)
	first := process(t, old)
	await.Until(t, "another connection", func() bool { return process(t, old) != first })
}

// TestLivesOfConnections: the URL sets the lifetime and the idle time of connections; without it, our defaults apply.
func TestLivesOfConnections(t *testing.T) {
	for parameters, want := range map[string][3]time.Duration{
		"":                                 {30 * time.Minute, 10 * time.Minute, 5 * time.Minute},
		"?pool_max_conn_lifetime=1h":       {time.Hour, 20 * time.Minute, 5 * time.Minute},
		"?pool_max_conn_idle_time=30m":     {30 * time.Minute, 10 * time.Minute, 30 * time.Minute},
		"?pool_max_conn_lifetime_jitter=0": {30 * time.Minute, 0, 5 * time.Minute},
	} {
		config, _, err := postgresConfig("postgres://u@a/db" + parameters)
		if err != nil {
			t.Errorf("%q: %v", parameters, err)
			continue
		}
		if got := [3]time.Duration{config.MaxConnLifetime, config.MaxConnLifetimeJitter, config.MaxConnIdleTime}; got != want {
			t.Errorf("%q: %v, want %v", parameters, got, want)
		}
	}
}

// TestPeriodOfHealthChecks: the pool would end the process with a panic.
func TestPeriodOfHealthChecks(t *testing.T) {
	for _, period := range []string{"0s", "-1s"} {
		if _, _, err := postgresConfig("postgres://u@a/db?pool_health_check_period=" + period); err == nil || !strings.Contains(err.Error(), "pool_health_check_period") {
			t.Errorf("%s: error %v", period, err)
		}
	}
}

// wantedServer returns the kind of server that a URL is taken to ask for: read-write, any or other.
func wantedServer(url string) (string, error) {
	pool, _, err := postgresConfig(url)
	if err != nil {
		return "", err
	}
	config := pool.ConnConfig

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
	pool, err := openPostgresPool(config, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()

	for setting, want := range map[string]string{
		"idle_in_transaction_session_timeout": "1min", "tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3",
	} {
		var got string
		if err := pool.QueryRow(t.Context(), "SHOW "+setting).Scan(&got); err != nil || got != want {
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
		if got := unusablePostgres(config.ConnConfig, fmt.Errorf("migrate: %w", &pgconn.PgError{Code: code})); !strings.Contains(got, want) || !strings.Contains(got, "db1:5432") {
			t.Errorf("%s: %q does not say %q", code, got, want)
		}
	}
}
