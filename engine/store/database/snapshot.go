package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// A copy of the database is all rows of all tables but those that are derived from others. Tables and columns are found by looking at
// the schema, so that a new one is copied by itself.

// derivedTables are not copied: what they have follows from other tables or from the program, or is of no use elsewhere. The value says
// from what, and what fills them again in a database whose other tables were loaded. Virtual tables of SQLite and what belongs to them are left out by
// themselves, as generated columns are.
var derivedTables = map[string]string{
	"goose_db_version": "the migrations write it when they make the schema",
	"console_sessions": "sign-ins of browsers: a copy of the database opens no console, operators sign in again",
	"search_words":     "words of turns and replies; Complete lets the server write them again in the background",
	"mail_words":       "words of kept mail; likewise",
}

// Column is one column of a table that is copied: a text or an integer.
type Column struct {
	Name    string
	Integer bool
}

// Table is a table that is copied.
type Table struct {
	Name    string
	Columns []Column
}

// columnNames returns the names in order.
func (t Table) columnNames() []string {
	names := make([]string, len(t.Columns))
	for i, column := range t.Columns {
		names[i] = column.Name
	}
	return names
}

// quoted writes a name of the schema as SQL.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func quotedAll(names []string) string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = quoted(name)
	}
	return strings.Join(list, ", ")
}

// Where both databases describe their schema.
const (
	// SQLite lists what belongs to a virtual table as shadow, and leaves generated columns out of table_info.
	sqliteColumns = `SELECT t.name, c.name, CASE WHEN c.type IN ('BIGINT', 'INTEGER', 'BOOLEAN') THEN 'bigint' ELSE lower(c.type) END
		FROM pragma_table_list t, pragma_table_info(t.name) c
		WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY t.name, c.cid`
	sqliteReferences = `SELECT t.name, f."table" FROM pragma_table_list t, pragma_foreign_key_list(t.name) f
		WHERE t.schema = 'main' AND t.type = 'table'`

	postgresColumns = `SELECT t.table_name, c.column_name, CASE WHEN c.data_type IN ('bigint', 'integer') THEN 'bigint' ELSE c.data_type END
		FROM information_schema.tables t JOIN information_schema.columns c ON c.table_schema = t.table_schema AND c.table_name = t.table_name
		WHERE t.table_schema = current_schema() AND t.table_type = 'BASE TABLE' AND c.is_generated = 'NEVER' ORDER BY t.table_name, c.ordinal_position`
	postgresReferences = `SELECT a.relname, b.relname FROM pg_constraint f JOIN pg_class a ON a.oid = f.conrelid JOIN pg_class b ON b.oid = f.confrelid
		JOIN pg_namespace n ON n.oid = f.connamespace WHERE f.contype = 'f' AND n.nspname = current_schema()`
)

// queryable is a connection or a transaction of database/sql.
type queryable interface {
	QueryContext(ctx context.Context, query string, arguments ...any) (*sql.Rows, error)
}

// tablesOf reads the tables that are copied, each behind those that it refers to.
func tablesOf(ctx context.Context, from queryable, words *schema) ([]Table, error) {
	var tables []Table
	err := pairs(ctx, from, words.columns, 3, func(row []string) error {
		name, column, kind := row[0], row[1], row[2]
		if _, derived := derivedTables[name]; derived {
			return nil
		}
		if kind != "text" && kind != "bigint" {
			return fmt.Errorf("column %s of table %s is of type %s: only TEXT and BIGINT can be copied", column, name, kind)
		}
		if len(tables) == 0 || tables[len(tables)-1].Name != name {
			tables = append(tables, Table{Name: name})
		}
		last := &tables[len(tables)-1]
		last.Columns = append(last.Columns, Column{column, kind == "bigint"})
		return nil
	})
	if err != nil {
		return nil, err
	}

	needs := map[string][]string{}
	err = pairs(ctx, from, words.references, 2, func(row []string) error {
		if row[0] != row[1] {
			needs[row[0]] = append(needs[row[0]], row[1])
		}
		return nil
	})
	return inOrder(tables, needs), err
}

// inOrder puts each table behind those that it needs.
func inOrder(tables []Table, needs map[string][]string) (ordered []Table) {
	placed := map[string]bool{}
	for len(ordered) < len(tables) {
		before := len(ordered)
		for _, table := range tables {
			ready := !slices.ContainsFunc(needs[table.Name], func(other string) bool { return !placed[other] })
			if !placed[table.Name] && ready {
				placed[table.Name], ordered = true, append(ordered, table)
			}
		}
		if len(ordered) == before { // tables that refer to each other: the database refuses them if that matters
			for _, table := range tables {
				if !placed[table.Name] {
					placed[table.Name], ordered = true, append(ordered, table)
				}
			}
		}
	}
	return ordered
}

// pairs calls visit with the texts of each row.
func pairs(ctx context.Context, from queryable, query string, width int, visit func([]string) error) error {
	rows, err := from.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()

	for rows.Next() {
		row, into := make([]string, width), make([]any, width)
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if err := visit(row); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Snapshot is the whole database at one moment. It holds a connection, and in SQLite it keeps the write-ahead log from beginning anew:
// close it soon.
type Snapshot struct {
	At      time.Time // everything that was committed before is there
	Engine  string    // sqlite or postgres
	Version int64     // of the schema
	Tables  []Table   // each behind those that it refers to
	Rows    map[string]int64

	pool       *sql.DB
	native     *pgxpool.Pool // below pool; nil = SQLite
	connection *sql.Conn
	failed     func(operation string, err error) error
}

// Snapshot opens a view of the whole file.
func (e *sqliteEngine) Snapshot(ctx context.Context, at time.Time) (*Snapshot, error) {
	pool, err := openPool(ctx, sqliteURL(e.path, "query_only(ON)"), 1)
	if err != nil {
		return nil, sqliteFault("open a snapshot", err)
	}
	s := &Snapshot{At: at, Engine: SQLite, pool: pool, failed: sqliteFault}
	return s.begin(ctx, "BEGIN", sqliteSchema)
}

// Snapshot opens a view of the whole schema.
func (e *postgresEngine) Snapshot(ctx context.Context, at time.Time) (*Snapshot, error) {
	native, err := openPostgresPool(e.pool.Config(), 1, e.primary)
	if err != nil {
		return nil, postgresFault("open a snapshot", err)
	}
	s := &Snapshot{At: at, Engine: Postgres, pool: stdlib.OpenDBFromPool(native), native: native, failed: postgresFault}
	// A backup may be slow to write what it reads.
	return s.begin(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL idle_in_transaction_session_timeout = 0", postgresSchema)
}

// begin begins the transaction and reads in it, which is when its moment is. After a failure the view is closed.
func (s *Snapshot) begin(ctx context.Context, begin string, words *schema) (*Snapshot, error) {
	if err := s.look(ctx, begin, words); err != nil {
		return nil, errors.Join(s.failed("open a snapshot", err), s.Close())
	}
	return s, nil
}

func (s *Snapshot) look(ctx context.Context, begin string, words *schema) (err error) {
	if s.connection, err = s.pool.Conn(ctx); err != nil {
		return err
	}
	if _, err := s.connection.ExecContext(ctx, begin); err != nil {
		return err
	}
	if err := s.connection.QueryRowContext(ctx, `SELECT MAX(version_id) FROM goose_db_version`).Scan(&s.Version); err != nil {
		return err
	}
	if s.Tables, err = tablesOf(ctx, s.connection, words); err != nil {
		return err
	}

	s.Rows = map[string]int64{}
	for _, table := range s.Tables {
		var count int64
		if err := s.connection.QueryRowContext(ctx, `SELECT COUNT(*) FROM `+quoted(table.Name)).Scan(&count); err != nil {
			return err
		}
		s.Rows[table.Name] = count
	}
	return nil
}

// Each calls visit for every row of a table, until it returns an error, which is then its own. The values are texts, int64 or nil, in the
// order of the columns; the slice is used again for the next row.
func (s *Snapshot) Each(ctx context.Context, table Table, visit func(values []any) error) error {
	rows, err := s.connection.QueryContext(ctx, `SELECT `+quotedAll(table.columnNames())+` FROM `+quoted(table.Name)) //nolint:gosec // names of the schema, quoted
	if err != nil {
		return s.failed("read "+table.Name, err)
	}

	texts, numbers := make([]sql.NullString, len(table.Columns)), make([]sql.NullInt64, len(table.Columns))
	into, values := make([]any, len(table.Columns)), make([]any, len(table.Columns))
	for i, column := range table.Columns {
		if column.Integer {
			into[i] = &numbers[i]
		} else {
			into[i] = &texts[i]
		}
	}

	scanned, err := scanAll(rows, func(r Row) error {
		if err := r.Scan(into...); err != nil {
			return err
		}
		for i, column := range table.Columns {
			switch {
			case column.Integer && numbers[i].Valid:
				values[i] = numbers[i].Int64
			case !column.Integer && texts[i].Valid:
				values[i] = texts[i].String
			default:
				values[i] = nil
			}
		}
		return visit(values)
	})
	if scanned != nil {
		return scanned
	}
	return s.failed("read "+table.Name, err)
}

// Close ends the view.
func (s *Snapshot) Close() (err error) {
	if s.connection != nil {
		_, _ = s.connection.ExecContext(context.Background(), "ROLLBACK") // nothing was written
		err = s.connection.Close()
	}
	return errors.Join(err, closePools(s.pool, s.native))
}
