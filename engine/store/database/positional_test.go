package database

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestPositional(t *testing.T) {
	for _, one := range []struct {
		query, text string
		order       []int
	}{
		{"SELECT 1", "SELECT 1", nil},
		{"UPDATE t SET a = $1 WHERE id = $2", "UPDATE t SET a = ? WHERE id = ?", nil},
		{"UPDATE t SET a = $2 WHERE id = $1", "UPDATE t SET a = ? WHERE id = ?", []int{1, 0}},
		{"INSERT INTO t VALUES ($1, $2, $2, $10)", "INSERT INTO t VALUES (?, ?, ?, ?)", []int{0, 1, 1, 9}},
		{"SELECT $2", "SELECT ?", []int{1}},
		{`SELECT '$1', "$1", $1`, `SELECT '$1', "$1", ?`, nil},
		{"SELECT 'it''s $1', $1", "SELECT 'it''s $1', ?", nil},
		{"SELECT '', $1", "SELECT '', ?", nil},
		{"SELECT $1 -- $2\n, $2", "SELECT ? -- $2\n, ?", nil},
		{"SELECT $1 - -$2 -- $3", "SELECT ? - -? -- $3", nil},
		{"SELECT /* ' $1 */ $1 / $2", "SELECT /* ' $1 */ ? / ?", nil},
		{"SELECT /**/ $1", "SELECT /**/ ?", nil},
		{"SELECT '$1", "SELECT '$1", nil},
		{"SELECT $1, $name", "SELECT $1, $name", nil},
		{"SELECT $0", "SELECT $0", nil},
		{"SELECT $99999999999999999999", "SELECT $99999999999999999999", nil},
		{"SELECT $1, ?2", "SELECT $1, ?2", nil},
		{"SELECT :a, $1", "SELECT :a, $1", nil},
		{"SELECT '?', $1", "SELECT '?', ?", nil},
		{"SELECT [$1], $1", "SELECT [$1], ?", nil},
		{"SELECT a$1", "SELECT a$1", nil},
		{"SELECT $1a", "SELECT $1a", nil},
		{"SELECT $1(2)", "SELECT $1(2)", nil},
		{"", "", nil},
	} {
		if got := newPositional(one.query); got.text != one.text || !slices.Equal(got.order, one.order) {
			t.Errorf("%q became %q %v; want %q %v", one.query, got.text, got.order, one.text, one.order)
		}
	}
}

// FuzzPositional: SQLite reads the same values by position as by number, and refuses the same texts.
func FuzzPositional(f *testing.F) {
	for _, query := range []string{
		"SELECT $1, $2, $3", "SELECT $3, $1, $1, '$2', \"x\" -- $2", "SELECT CASE WHEN $1 = 'a' THEN $2 ELSE $3 END /* $1 */",
		"SELECT '''$1', $2", "SELECT `$1`, $1", "SELECT $1--$2\n||$3", "SELECT ($1, $2) < ($3, $1)", "SELECT /*$1", "SELECT $1a", "SELECT a$1", "SELECT [$1]", "SELECT 1$2",
	} {
		f.Add(query)
	}
	pool, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = pool.Close() })
	pool.SetMaxOpenConns(1)
	given := []any{"a", int64(2), "c"}

	f.Fuzz(func(t *testing.T, query string) {
		if strings.ContainsAny(query, ";\x00") || len(query) > 1000 || strings.Contains(strings.ToLower(query), "by") {
			t.Skip("the store has one statement in a text, and orders and groups by columns")
		}
		text := newPositional(query)
		arguments, err := text.arguments(given)
		if text.text == query || err != nil {
			return
		}
		want, err := values(pool, query, given)
		if again, _ := values(pool, query, given); err != nil || !slices.Equal(again, want) {
			return // no statement, or one that says something else each time
		}
		if got, err := values(pool, text.text, arguments); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q reads %q by position (%q), want %q: %v", query, got, text.text, want, err)
		}
	})
}

// values returns the rows of a query that only reads.
func values(pool *sql.DB, query string, arguments []any) (read []string, err error) {
	rows, err := pool.Query("SELECT * FROM ("+query+"\n)", arguments...) //nolint:unqueryvet // whatever the query has
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	row := make([]any, len(columns))
	into := make([]any, len(columns))
	for i := range row {
		into[i] = &row[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		read = append(read, fmt.Sprintf("%#v", row))
	}
	return read, rows.Err()
}
