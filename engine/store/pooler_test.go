package store_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/internal/await"
	"inbox/internal/fault"
)

// TestPoolerThatSharesSessionsIsNamed: PgBouncer that gives each transaction or statement another session is refused at the start, by name and
// with what to change, also if no other connection has used it before.
func TestPoolerThatSharesSessionsIsNamed(t *testing.T) {
	for name, settings := range map[string][]string{
		"transaction":          {"pool_mode = transaction"},
		"transaction, in turn": {"pool_mode = transaction", "server_round_robin = 1", "min_pool_size = 5"},
		"transaction, one":     {"pool_mode = transaction", "default_pool_size = 1"},
		"statement":            {"pool_mode = statement"},
		"transaction, schema":  {"pool_mode = transaction", "ignore_startup_parameters = search_path"},
	} {
		t.Run(name, func(t *testing.T) {
			opened, err := store.Open(t.Context(), store.Options{URL: storetest.PgBouncer(t, storetest.EmptyPostgres(t), settings...)})
			if err == nil {
				_ = opened.Close()
				t.Fatal("a pooler that shares sessions is used")
			}
			for _, want := range []string{"PgBouncer", "pool_mode = session"} {
				if text := fault.InWords(err); !strings.Contains(text, want) {
					t.Errorf("the error %q does not say %q", text, want)
				}
			}
		})
	}
}

// TestPoolerWithWholeSessions: through PgBouncer in session mode nodes store, hear of each other, and keep domains apart, although PgBouncer refuses
// search_path as a parameter of a connection.
func TestPoolerWithWholeSessions(t *testing.T) {
	database := storetest.EmptyPostgres(t)
	through := storetest.PgBouncer(t, database, "pool_mode = session", "default_pool_size = 100")
	heard := make(chan string, 100)
	node := openWith(t, store.Options{URL: through})
	other := openWith(t, store.Options{URL: through, Elsewhere: func(channel, payload string) { heard <- channel + " " + payload }})
	domain := openWith(t, store.Options{URL: through + "&search_path=inbox_b"})

	listening, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- other.Listen(listening) }()
	expect(t, heard, "job ", "turn ") // it listens
	if err := enqueueUntilStored(t, node, "kind"); err != nil {
		t.Fatal(err)
	}
	expect(t, heard, "job kind")
	stop()
	if err := await.Receive(t, ended, "the end of listening"); err != nil {
		t.Error(err)
	}

	for range 40 { // more than a node has connections
		if err := put(t, node, "here"); err != nil {
			t.Fatal(err)
		}
	}
	if !has(t, other, "here") || has(t, domain, "here") {
		t.Error("a node does not see what another one stored, or a domain sees what another domain stored")
	}
}

// TestStartWithoutFreeConnections: a node that finds no free connection says which setting of which program to raise, and a later start works.
func TestStartWithoutFreeConnections(t *testing.T) {
	refused := func(t *testing.T, url string, want ...string) {
		t.Helper()
		opened, err := store.Open(t.Context(), store.Options{URL: url})
		if err == nil {
			_ = opened.Close()
			t.Fatal("the node starts")
		}
		for _, one := range append(want, "database.connections") {
			if text := fault.InWords(err); !strings.Contains(text, one) {
				t.Errorf("the error %q does not say %q", text, one)
			}
		}
	}
	starts := func(t *testing.T, url string) {
		t.Helper()
		await.Until(t, "a node starts", func() bool {
			opened, err := store.Open(t.Context(), store.Options{URL: url})
			return err == nil && opened.Close() == nil
		})
	}
	// hold takes connections and returns what gives them back.
	hold := func(t *testing.T, url string, count int) (free func()) {
		t.Helper()
		held := make([]*pgx.Conn, count)
		for i := range held {
			connection, err := pgx.Connect(t.Context(), url)
			if err == nil {
				err = connection.Ping(t.Context()) // a pooler gives a connection its session with the first statement
			}
			if err != nil {
				t.Fatal(err)
			}
			held[i] = connection
		}
		return func() {
			for _, one := range held {
				if err := one.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}
		}
	}

	t.Run("role", func(t *testing.T) {
		server := storetest.NewCluster(t)
		server.Ask("CREATE ROLE narrow LOGIN CONNECTION LIMIT 1")
		server.Ask("GRANT ALL ON SCHEMA public TO narrow")
		url := strings.Replace(storetest.URL(server), "inbox@", "narrow@", 1)
		free := hold(t, url, 1)
		refused(t, url, "no connection is free", "max_connections")
		free()
		server.Ask("ALTER ROLE narrow CONNECTION LIMIT 20")
		starts(t, url)
	})
	t.Run("pooler, clients", func(t *testing.T) {
		url := storetest.PgBouncer(t, storetest.EmptyPostgres(t), "pool_mode = session", "max_client_conn = 20")
		free := hold(t, url, 20)
		refused(t, url, "max_client_conn")
		free()
		starts(t, url)
	})
	t.Run("pooler, sessions", func(t *testing.T) {
		url := storetest.PgBouncer(t, storetest.EmptyPostgres(t), "pool_mode = session", "default_pool_size = 20")
		free := hold(t, url, 20)
		refused(t, url+"&connect_timeout=1", "default_pool_size")
		free()
		starts(t, url)
	})
}
