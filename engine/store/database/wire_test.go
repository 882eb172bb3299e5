package database_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"inbox/engine/store/storetest"
	"inbox/internal/postgres"
)

// wire opens a pool of one connection to an empty database.
func wire(t *testing.T) *sql.DB {
	t.Helper()
	config, err := pgconn.ParseConfig(storetest.EmptyPostgres(t))
	if err != nil {
		t.Fatal(err)
	}
	pool := sql.OpenDB(&postgres.Connector{Config: config})
	pool.SetMaxOpenConns(1)
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return pool
}

// raw calls use with the connection of a pool.
func raw(t *testing.T, pool *sql.DB, use func(*postgres.Connection) error) error {
	t.Helper()
	connection, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	return connection.Raw(func(driver any) error { return use(driver.(*postgres.Connection)) })
}

func execute(t *testing.T, pool *sql.DB, query string, arguments ...any) {
	t.Helper()
	if _, err := pool.ExecContext(t.Context(), query, arguments...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// TestPostgresDriver uses the driver as database/sql and the store do, against a real server.
func TestPostgresDriver(t *testing.T) {
	pool := wire(t)
	execute(t, pool, `CREATE TABLE things (id BIGINT PRIMARY KEY, name TEXT, content BYTEA, at TIMESTAMPTZ, good BOOLEAN, weight DOUBLE PRECISION);
		CREATE INDEX things_name ON things (name)`)
	moment := time.Date(2026, 11, 26, 5, 4, 3, 2000, time.UTC)

	t.Run("values", func(t *testing.T) {
		execute(t, pool, `INSERT INTO things VALUES ($1, $2, $3, $4, $5, $6)`, 1, `a\'"b`, []byte{0, 255, '\\'}, moment, true, 0.1)
		var id, sum int64
		var name string
		var content []byte
		var at time.Time
		var good bool
		var weight float64
		var nothing sql.NullString
		err := pool.QueryRowContext(t.Context(), `SELECT id, name, content, at, good, weight, NULL::text, SUM(id) OVER () FROM things WHERE id = $1`, 1).
			Scan(&id, &name, &content, &at, &good, &weight, &nothing, &sum)
		if err != nil || id != 1 || name != `a\'"b` || string(content) != "\x00\xff\\" || !at.Equal(moment) || !good || weight != 0.1 || nothing.Valid || sum != 1 {
			t.Errorf("got %d %q %q %s %t %g %v %d, %v", id, name, content, at, good, weight, nothing, sum, err)
		}
	})

	t.Run("arrays and empty texts", func(t *testing.T) {
		want := []string{"", "a", `"\,{}`, "NULL", "ü"}
		rows, err := pool.QueryContext(t.Context(), `SELECT $1 || part FROM unnest($2::text[]) AS part`, "", want)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var got []string
		for rows.Next() {
			var one string
			if err := rows.Scan(&one); err != nil {
				t.Fatal(err)
			}
			got = append(got, one)
		}
		if err := rows.Err(); err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	})

	t.Run("transactions", func(t *testing.T) {
		tx, err := pool.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.ExecContext(t.Context(), `DELETE FROM things WHERE id = $1`, 1)
		if failure, is := errors.AsType[*pgconn.PgError](err); !is || failure.Code != "25006" {
			t.Errorf("a read-only transaction deleted: %v", err)
		}
		if err := tx.Commit(); !errors.Is(err, postgres.ErrRolledBack) {
			t.Errorf("the commit of a failed transaction returned %v", err)
		}
	})

	t.Run("pipeline", func(t *testing.T) {
		var found []string
		err := raw(t, pool, func(c *postgres.Connection) error {
			return c.Run(t.Context(), []postgres.Statement{
				{Query: `BEGIN`},
				{Query: `INSERT INTO things (id, name) VALUES ($1, $2)`, Arguments: []any{2, "two"}},
				{Query: `INSERT INTO things (id, name) VALUES ($1, $2)`, Arguments: []any{int64(3), nil}},
				{Query: `COMMIT`},
				{Query: `SELECT COALESCE(name, '-') FROM things WHERE id > $1 ORDER BY id`, Arguments: []any{1}},
			}, func(rows *postgres.Rows) error {
				for rows.Next() {
					var name string
					if err := rows.Scan(&name); err != nil {
						return err
					}
					found = append(found, name)
				}
				return rows.Err()
			})
		})
		if err != nil || strings.Join(found, " ") != "two -" {
			t.Errorf("got %q, %v", found, err)
		}

		// One that fails ends it, and the connection serves on.
		err = raw(t, pool, func(c *postgres.Connection) error {
			return c.Run(t.Context(), []postgres.Statement{
				{Query: `INSERT INTO things (id, name) VALUES ($1, $2)`, Arguments: []any{4, "four"}},
				{Query: `INSERT INTO things (id, name) VALUES ($1, $2)`, Arguments: []any{2, "again"}},
				{Query: `SELECT 1`},
			}, func(*postgres.Rows) error {
				t.Error("a statement after one that failed has a result")
				return nil
			})
		})
		if failure, is := errors.AsType[*pgconn.PgError](err); !is || failure.Code != "23505" {
			t.Errorf("the second row of one key: %v", err)
		}
		var count int
		if err := pool.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM things`).Scan(&count); err != nil || count != 3 {
			t.Errorf("%d rows, %v; want 3, because statements of one pipeline are one transaction", count, err)
		}
	})

	t.Run("a text that is wrong", func(t *testing.T) {
		for range 2 {
			if _, err := pool.QueryContext(t.Context(), `SELECT nothing FROM things WHERE id = $1`, 1); err == nil { //nolint:rowserrcheck,sqlclosecheck // it fails
				t.Fatal("a column that is not there was read")
			}
		}
		if _, err := pool.ExecContext(t.Context(), `DELETE FROM things WHERE id = $1`); err != nil {
			t.Log("too few arguments:", err)
		} else {
			t.Error("a statement without its argument was executed")
		}
	})

	t.Run("a table that changes", func(t *testing.T) {
		read := func() (string, error) {
			rows, err := pool.QueryContext(t.Context(), `SELECT * FROM things WHERE id = $1`, 2) //nolint:unqueryvet // its columns change
			if err != nil {
				return "", err
			}
			defer rows.Close()
			columns, err := rows.Columns()
			return strings.Join(columns, " "), errors.Join(err, rows.Err())
		}
		if _, err := read(); err != nil {
			t.Fatal(err)
		}
		execute(t, pool, `ALTER TABLE things ADD COLUMN added TEXT`)
		_, _ = read() // PostgreSQL refuses the plan that it had
		if got, err := read(); err != nil || !strings.HasSuffix(got, " added") {
			t.Errorf("after the change: %q, %v", got, err)
		}
	})

	t.Run("more statements than are kept", func(t *testing.T) {
		for i := range 600 {
			var got int
			if err := pool.QueryRowContext(t.Context(), fmt.Sprintf(`SELECT %d + $1::bigint`, i), 1).Scan(&got); err != nil || got != i+1 {
				t.Fatalf("got %d, %v; want %d", got, err, i+1)
			}
		}
		var kept int
		if err := pool.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM pg_prepared_statements`).Scan(&kept); err != nil || kept > 513 {
			t.Errorf("PostgreSQL keeps %d statements, %v; want at most 512 and the one that asks", kept, err)
		}
	})

	t.Run("copy", func(t *testing.T) {
		texts := []any{"plain", "a\tb\nc\\N\r", "", nil, `\N`, "ünï", `\.`}
		next := 0
		err := raw(t, pool, func(c *postgres.Connection) error {
			rows, err := c.Copy(t.Context(), "things", []string{"id", "name"}, func() ([]any, bool, error) {
				if next == len(texts) {
					return nil, false, nil
				}
				next++
				return []any{100 + next - 1, texts[next-1]}, true, nil
			})
			if rows != int64(len(texts)) {
				t.Errorf("%d rows were written", rows)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range texts {
			var got any
			if err := pool.QueryRowContext(t.Context(), `SELECT name FROM things WHERE id = $1`, 100+i).Scan(&got); err != nil || got != want {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		}

		broken := errors.New("broken")
		err = raw(t, pool, func(c *postgres.Connection) error {
			_, err := c.Copy(t.Context(), "things", []string{"id"}, func() ([]any, bool, error) { return nil, false, broken })
			return err
		})
		if !errors.Is(err, broken) {
			t.Errorf("a source that breaks: %v", err)
		}
	})

	t.Run("a wait that ends", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := pool.ExecContext(ctx, `SELECT pg_sleep($1)`, 60); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a statement outlived its context: %v", err)
		}
		execute(t, pool, `SELECT 1`)
	})
}
