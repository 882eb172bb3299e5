package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"inbox/engine/store/storetest"
	"inbox/internal/await"
	"inbox/internal/fault"
)

// wire is an engine on PostgreSQL with one connection, and a table of things.
type wire struct {
	*testing.T

	engine *postgresEngine
}

func openWire(t *testing.T, parameters string) *wire {
	t.Helper()
	opened, err := openPostgres(t.Context(), Options{
		URL: storetest.Postgres(t) + parameters, DataDir: t.TempDir(), Connections: 1, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t, opened.(*postgresEngine)}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	w.execute(`CREATE TABLE things (id BIGINT PRIMARY KEY, name TEXT, content BYTEA, at TIMESTAMPTZ, good BOOLEAN, weight DOUBLE PRECISION)`)
	return w
}

// execute executes a statement in a transaction.
func (w *wire) execute(query string, arguments ...any) {
	w.Helper()
	err := w.engine.Transact(w.Context(), func(s Session) error { return s.Do(w.Context(), query, arguments...) })
	if err != nil {
		w.Fatalf("%s: %v", query, err)
	}
}

// one reads one row beside transactions.
func (w *wire) one(query string, arguments []any, into ...any) error {
	w.Helper()
	rows := 0
	err := w.engine.Each(w.Context(), query, arguments, func(r Row) error {
		rows++
		return r.Scan(into...)
	})
	if err == nil && rows != 1 {
		w.Errorf("%s: %d rows", query, rows)
	}
	return err
}

// count returns how many things there are.
func (w *wire) count() (count int) {
	w.Helper()
	if err := w.one(`SELECT COUNT(*) FROM things`, nil, &count); err != nil {
		w.Fatal(err)
	}
	return count
}

type word string

// TestPostgresValues: what the store writes it reads again, in and beside a transaction, also where pgx does not keep statements prepared.
func TestPostgresValues(t *testing.T) {
	for _, parameters := range []string{
		"", "&default_query_exec_mode=cache_describe", "&default_query_exec_mode=describe_exec", "&default_query_exec_mode=exec",
		"&default_query_exec_mode=simple_protocol", "&statement_cache_capacity=2",
	} {
		t.Run(parameters, func(t *testing.T) {
			w := openWire(t, parameters)
			moment := time.Date(2026, 11, 26, 5, 4, 3, 2000, time.UTC)
			w.execute(`INSERT INTO things VALUES ($1, $2, $3, $4, $5, $6)`, int64(1), word(`a\'"b`), []byte{0, 255, '\\'}, moment, true, 0.1)

			read := func(q Querier) {
				var id, sum int64
				var name word
				var content []byte
				var at time.Time
				var good bool
				var weight float64
				var nothing sql.NullString
				var missing *string
				err := q.Each(t.Context(), `SELECT id, name, content, at, good, weight, NULL::text, CAST(NULL AS TEXT), CAST(SUM(id) OVER () AS BIGINT) FROM things WHERE id = $1`, []any{1},
					func(r Row) error { return r.Scan(&id, &name, &content, &at, &good, &weight, &nothing, &missing, &sum) })
				if err != nil || id != 1 || name != `a\'"b` || string(content) != "\x00\xff\\" || !at.Equal(moment) || !good || weight != 0.1 || nothing.Valid || missing != nil || sum != 1 {
					t.Errorf("got %d %q %q %s %t %g %v %v %d, %v", id, name, content, at, good, weight, nothing, missing, sum, err)
				}

				want := []string{"", "a", `"\,{}`, "NULL", "ü"}
				var got []string
				err = q.Each(t.Context(), `SELECT $1 || part FROM unnest($2::text[]) AS part`, []any{"", want}, func(r Row) error {
					var part string
					err := r.Scan(&part)
					got = append(got, part)
					return err
				})
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("got %q, %v; want %q", got, err, want)
				}
			}
			read(w.engine.Reader())
			if err := w.engine.Transact(t.Context(), func(s Session) error { read(s); return nil }); err != nil {
				t.Error(err)
			}
		})
	}
}

// tripsSoFar returns how many round trips transactions of this process have taken.
func tripsSoFar(t *testing.T) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "inbox_store_round_trips_total" {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("no metric has the round trips")
	return 0
}

// TestPostgresBatches: statements whose result is not needed travel with the next one whose result is, and those of one transaction stand or
// fall together.
func TestPostgresBatches(t *testing.T) {
	w := openWire(t, "")
	insert := `INSERT INTO things (id, name) VALUES ($1, $2)`
	trips := tripsSoFar(t)
	err := w.engine.Transact(t.Context(), func(s Session) error {
		for id := range 3 {
			if err := s.Do(t.Context(), insert, id, "name"); err != nil {
				return err
			}
		}
		changed, err := s.Change(t.Context(), `UPDATE things SET name = $1 WHERE id > $2`, "other", 0)
		if changed != 2 {
			t.Errorf("%d rows were changed", changed)
		}
		return errors.Join(err, s.Do(t.Context(), insert, 3, nil))
	})
	if got := tripsSoFar(t) - trips; err != nil || got != 2 {
		t.Errorf("%v round trips for BEGIN, five statements and COMMIT, %v; want 2", got, err)
	}
	if got := w.count(); got != 4 {
		t.Errorf("%d rows", got)
	}

	for name, work := range map[string]func(Session) error{
		"of a change": func(s Session) error {
			_, err := s.Change(t.Context(), insert, 1, "again")
			return err
		},
		"of the commit": func(s Session) error { return s.Do(t.Context(), insert, 1, "again") },
		"that the work ignores": func(s Session) error {
			_, _ = s.Change(t.Context(), insert, 1, "again")
			return nil
		},
	} {
		err := w.engine.Transact(t.Context(), func(s Session) error { return errors.Join(s.Do(t.Context(), insert, 9, "nine"), work(s)) })
		if failure, is := errors.AsType[*pgconn.PgError](err); name != "that the work ignores" && (!is || failure.Code != "23505") {
			t.Errorf("the failure %s: %v", name, err)
		}
		if err == nil || fault.OutcomeOf(err) != fault.NotDone {
			t.Errorf("the failure %s: %v, outcome %q", name, err, fault.OutcomeOf(err))
		}
		if got := w.count(); got != 4 { // the one connection serves on
			t.Errorf("%d rows after the failure %s", got, name)
		}
	}
}

// TestPostgresRowsThatCannotBeRead: an error of the caller's scan function is returned unchanged, in a transaction and outside of one, and does not count as an
// outage of the database.
func TestPostgresRowsThatCannotBeRead(t *testing.T) {
	w := openWire(t, "")
	w.execute(`INSERT INTO things (id) VALUES (1), (2)`)
	for name, read := range map[string]func(scan func(Row) error) error{
		"beside": func(scan func(Row) error) error {
			return w.engine.Each(t.Context(), `SELECT name FROM things`, nil, scan)
		},
		"in": func(scan func(Row) error) error {
			return w.engine.Transact(t.Context(), func(s Session) error { return s.Each(t.Context(), `SELECT name FROM things`, nil, scan) })
		},
	} {
		if err := read(func(Row) error { return errRefused }); err != errRefused { //nolint:errorlint // as it is
			t.Errorf("%s: the caller's error became %v", name, err)
		}
		var text string
		if err := read(func(r Row) error { return r.Scan(&text) }); err == nil || errors.Is(err, fault.ErrStore) || !strings.Contains(err.Error(), "NULL") {
			t.Errorf("%s: NULL as a text: %v", name, err)
		}
	}
	if got := w.count(); got != 2 {
		t.Errorf("%d rows", got)
	}
}

// TestPostgresStatements: a statement that cannot be prepared fails each time and leaves the connection whole, one whose table changed works
// again, and PostgreSQL keeps no more of them than it should.
func TestPostgresStatements(t *testing.T) {
	w := openWire(t, "")
	w.execute(`INSERT INTO things (id) VALUES (1)`)
	for range 2 {
		if err := w.one(`SELECT nothing FROM things WHERE id = $1`, []any{1}); err == nil {
			t.Error("a column that is not there was read")
		}
		err := w.engine.Transact(t.Context(), func(s Session) error { return s.Do(t.Context(), `DELETE FROM things WHERE id = $1`) })
		if err == nil {
			t.Error("a statement without its argument was executed")
		}
	}

	type reader func(query string, scan func(Row) error) error
	beside := func(query string, scan func(Row) error) error { return w.engine.Each(t.Context(), query, nil, scan) }
	in := func(query string, scan func(Row) error) error {
		return w.engine.Transact(t.Context(), func(s Session) error { return s.Each(t.Context(), query, nil, scan) })
	}
	for i, read := range []reader{beside, in} {
		query := `SELECT * FROM things` + strings.Repeat(" ", i) //nolint:unqueryvet // its columns change
		columns := func(count int) error {
			return read(query, func(r Row) error { return r.Scan(make([]any, count)...) })
		}
		if err := columns(6 + i); err != nil {
			t.Fatal(err)
		}
		w.execute(fmt.Sprintf(`ALTER TABLE things ADD COLUMN added%d TEXT`, i))
		_ = columns(7 + i) // PostgreSQL refuses the plan that it had
		if err := columns(7 + i); err != nil {
			t.Errorf("after the change: %v", err)
		}
	}

	for i := range 600 {
		var got int
		if err := w.one(fmt.Sprintf(`SELECT %d + $1::bigint`, i), []any{1}, &got); err != nil || got != i+1 {
			t.Fatalf("got %d, %v; want %d", got, err, i+1)
		}
	}
	var kept int
	if err := w.one(`SELECT COUNT(*) FROM pg_prepared_statements`, nil, &kept); err != nil || kept > 513 {
		t.Errorf("PostgreSQL keeps %d statements, %v; want at most 512 and the one that asks", kept, err)
	}
}

// TestPostgresCopy loads what COPY could take for its own signs.
func TestPostgresCopy(t *testing.T) {
	w := openWire(t, "")
	texts := []any{"plain", "a\tb\nc\\N\r", "", nil, `\N`, "ünï", `\.`}
	l := &Loader{native: w.engine.pool, failed: postgresFault}
	things := Table{"things", []Column{{"id", true}, {"name", false}}}
	next := 0
	row := make([]any, 2) // the same for all, as that of a snapshot is
	rows, err := l.Load(t.Context(), things, func() ([]any, bool, error) {
		if next == len(texts) {
			return nil, false, nil
		}
		row[0], row[1] = int64(next), texts[next]
		next++
		return row, true, nil
	})
	if err != nil || rows != int64(len(texts)) {
		t.Fatalf("%d rows were written, %v", rows, err)
	}
	for i, want := range texts {
		var got any
		if err := w.one(`SELECT name FROM things WHERE id = $1`, []any{i}, &got); err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}

	next = 0
	if _, err := l.Load(t.Context(), things, func() ([]any, bool, error) {
		next++
		return []any{int64(100 + next), "x"}, next < 3, map[bool]error{true: errRefused}[next == 3]
	}); err != errRefused { //nolint:errorlint // as it is
		t.Errorf("a source that breaks: %v", err)
	}
	if _, err := l.Load(t.Context(), things, func() ([]any, bool, error) { return []any{int64(0), "again"}, true, nil }); err == nil || errors.Is(err, errRefused) {
		t.Errorf("a row that is there: %v", err)
	}
	if got := w.count(); got != len(texts) {
		t.Errorf("%d rows, want those of the first copy", got)
	}
}

// TestPostgresWaitsEnd: a statement does not outlive its caller, and the pool serves on.
func TestPostgresWaitsEnd(t *testing.T) {
	w := openWire(t, "")
	for name, wait := range map[string]func(context.Context) error{
		"beside": func(ctx context.Context) error {
			return w.engine.Each(ctx, `SELECT CAST(pg_sleep($1) AS TEXT)`, []any{60}, func(Row) error { return nil })
		},
		"in": func(ctx context.Context) error {
			return w.engine.Transact(ctx, func(s Session) error {
				_, err := s.Change(ctx, `SELECT pg_sleep($1)`, 60)
				return err
			})
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := wait(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: a statement outlived its context: %v", name, err)
		}
		if got := w.count(); got != 0 {
			t.Errorf("%d rows", got)
		}
	}
}

// TestPostgresLostConnections: a connection that the server ended a moment ago costs no caller a failure.
func TestPostgresLostConnections(t *testing.T) {
	w := openWire(t, "")
	other, err := pgx.Connect(t.Context(), w.engine.config.ConnString())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})

	for name, use := range map[string]func() error{
		"ping": func() error { return w.engine.Ping(t.Context()) },
		"read": func() error { return w.one(`SELECT COUNT(*) FROM things`, nil, new(int)) },
		"transaction": func() error {
			return w.engine.Transact(t.Context(), func(s Session) error { return s.Do(t.Context(), `DELETE FROM things`) })
		},
	} {
		var process int
		if err := w.one(`SELECT pg_backend_pid()`, nil, &process); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, process); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "the end of the session", func() bool {
			var there bool
			err := other.QueryRow(t.Context(), `SELECT COUNT(*) > 0 FROM pg_stat_activity WHERE pid = $1`, process).Scan(&there)
			return err == nil && !there
		})
		if err := use(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPostgresKeepsPasswords: no error of a URL that is wrong, or of a server that is not there, has the password.
func TestPostgresKeepsPasswords(t *testing.T) {
	for _, rest := range []string{"127.0.0.1:1/db", "127.0.0.1:1/db?pool_max_conns=many", "127.0.0.1:1/db?statement_cache_capacity=x", "127.0.0.1:port/db", "127.0.0.1:1/db?default_query_exec_mode=x", "127.0.0.1:1/db?pool_max_conn_lifetime=x"} {
		_, err := openPostgres(t.Context(), Options{URL: "postgres://u:hidden-word@" + rest, Connections: 1, Logger: slog.New(slog.DiscardHandler)})
		if err == nil || strings.Contains(err.Error(), "hidden-word") || strings.Contains(fault.InWords(err), "hidden-word") {
			t.Errorf("%s: %v", rest, err)
		}
	}
}
