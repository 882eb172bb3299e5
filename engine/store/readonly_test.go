package store_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/internal/await"
	"inbox/internal/fault"
)

// on executes statements on a connection of its own.
func on(t *testing.T, database string, statements ...string) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}

	for _, statement := range statements {
		if _, err = connection.Exec(t.Context(), statement); err != nil {
			break
		}
	}

	if err := errors.Join(err, connection.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// with adds a parameter to a database URL and returns the name of the database.
func with(t *testing.T, database, name, value string) (text, databaseName string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}

	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
	return u.String(), strings.TrimPrefix(u.Path, "/")
}

// TestReadOnlySessionsHeal: a database that was read-only for a while, as around a failover, is written to again without a
// restart, whether the sessions of that time were refused or taken.
func TestReadOnlySessionsHeal(t *testing.T) {
	for _, attributes := range []string{"", "any"} {
		t.Run("target_session_attrs="+attributes, func(t *testing.T) {
			database := storetest.Postgres(t)
			address, name := with(t, database, "application_name", "test")
			if attributes != "" {
				address, _ = with(t, database, "target_session_attrs", attributes)
			}

			s := openWith(t, store.Options{URL: address})
			on(t, database, "ALTER DATABASE "+name+" SET default_transaction_read_only = on")
			terminateOthers(t, database)
			var group sync.WaitGroup
			for n := range 8 { // several sessions
				group.Go(func() {
					if err := accept(t.Context(), s, sample(int64(n))); !fault.Is(err, fault.Unavailable) {
						t.Errorf("accept while the database is read-only: %v", err)
					}
				})
			}

			await.Done(t, group.Wait, "the answers to all callers")
			if err := s.Probe(t.Context()); !fault.Is(err, fault.Unavailable) {
				t.Errorf("probe while the database is read-only: %v", err)
			}

			on(t, database, "SET default_transaction_read_only = off", "ALTER DATABASE "+name+" RESET default_transaction_read_only")
			for n := range 8 {
				if err := accept(t.Context(), s, sample(int64(100+n))); err != nil {
					t.Fatalf("accept after the database became writable again: %v", err)
				}
			}

			if err := s.Probe(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestReadOnlySessionsAreLeft: sessions that turned read-only while the server takes changes cost no caller anything.
func TestReadOnlySessionsAreLeft(t *testing.T) {
	s := openWith(t, store.Options{URL: storetest.Postgres(t), Connections: 1})
	for n := range 3 {
		if err := s.Execute(t.Context(), "SET default_transaction_read_only = on"); err != nil {
			t.Fatal(err)
		}
		if err := accept(t.Context(), s, sample(int64(n))); err != nil {
			t.Errorf("accept: %v", err)
		}
	}
}

// TestProbeDoesNotGrow: the row of a process is one, on both databases.
func TestProbeDoesNotGrow(t *testing.T) {
	for name, address := range databases {
		t.Run(name, func(t *testing.T) {
			s := openWith(t, store.Options{URL: address(t)})
			for range 5 {
				if err := s.Probe(t.Context()); err != nil {
					t.Fatal(err)
				}
			}

			if count, err := s.State().Count(t.Context(), store.ProbeSpace); err != nil || count != 1 {
				t.Errorf("%d rows, %v", count, err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := s.Probe(ctx); !fault.Is(err, fault.Unavailable) {
				t.Errorf("a probe that was called off: %v", err)
			}
		})
	}
}

// TestSeveralHosts: the first host that can be written to is used, and all are named when none can.
func TestSeveralHosts(t *testing.T) {
	database := storetest.Postgres(t)
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}

	here := u.Host
	u.Host = "127.0.0.1:1," + here
	s := openWith(t, store.Options{URL: u.String()})
	if err := accept(t.Context(), s, sample(1)); err != nil {
		t.Error(err)
	}

	u.Host = "127.0.0.1:1,127.0.0.1:2"
	_, err = store.Open(t.Context(), store.Options{URL: u.String()})
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1, 127.0.0.1:2") {
		t.Errorf("got %v", err)
	}

	_, name := with(t, database, "x", "")
	on(t, database, "ALTER DATABASE "+name+" SET default_transaction_read_only = on")
	_, err = store.Open(t.Context(), store.Options{URL: database})
	if err == nil || !strings.Contains(err.Error(), "it is read-only: name the primary in database_url") {
		t.Errorf("got %v", err)
	}
}
