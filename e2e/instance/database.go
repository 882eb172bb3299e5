package instance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	_ "modernc.org/sqlite"             // registers "sqlite"
)

// filesOf is the directory of files of all nodes of a PostgreSQL database.
func filesOf(database string) string {
	name, _, _ := strings.Cut(path.Base(database), "?")
	return filepath.Join(os.TempDir(), name+"-files")
}

// RemoveFiles removes the directory of files that all nodes of a PostgreSQL database share.
func RemoveFiles(database string) error { return os.RemoveAll(filesOf(database)) }

// NewDatabase makes an empty PostgreSQL database beside the one in the URL and returns its URL and a function that
// removes it.
func NewDatabase(ctx context.Context, beside string) (string, func() error, error) {
	administrator, err := sql.Open("pgx", beside)
	if err != nil {
		return "", nil, fmt.Errorf("open PostgreSQL: %w", err)
	}

	name := "inbox_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if _, err := administrator.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		_ = administrator.Close()
		return "", nil, fmt.Errorf("make database: %w", err)
	}

	parsed, err := url.Parse(beside)
	if err != nil {
		return "", nil, fmt.Errorf("parse database URL: %w", err)
	}

	parsed.Path = "/" + name
	remove := func() error {
		defer func() { _ = administrator.Close() }()
		_, err := administrator.Exec("DROP DATABASE " + name + " WITH (FORCE)")
		return errors.Join(err, RemoveFiles(parsed.String()))
	}

	return parsed.String(), remove, nil
}

// open returns the server's own database for reading.
func (i *Instance) open() (*sql.DB, string, error) {
	if i.Settings.Database != "" {
		database, err := sql.Open("pgx", i.Settings.Database)
		return database, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'", err
	}

	files, err := filepath.Glob(filepath.Join(i.Directory, "data", "inbox.db"))
	if err != nil || len(files) != 1 {
		return nil, "", fmt.Errorf("find the SQLite file: %d candidates, %w", len(files), err)
	}

	database, err := sql.Open("sqlite", "file:"+files[0]+"?mode=ro&_pragma=busy_timeout(5000)")
	return database, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'", err
}

// Rows counts the rows of every table. It knows no table by name, so nothing can be stored unseen.
func (i *Instance) Rows(ctx context.Context) (map[string]int64, error) {
	database, tablesQuery, err := i.open()
	if err != nil {
		return nil, fmt.Errorf("open the server's database: %w", err)
	}
	defer func() { _ = database.Close() }()

	tables, err := column(ctx, database, tablesQuery)
	if err != nil {
		return nil, err
	}

	counts := map[string]int64{}
	for _, table := range tables {
		var count int64
		if err := database.QueryRowContext(ctx, `SELECT count(*) FROM "`+table+`"`).Scan(&count); err != nil {
			return nil, fmt.Errorf("count %s: %w", table, err)
		}
		counts[table] = count
	}

	return counts, nil
}

// Column returns the first column of a query on the server's own database.
func (i *Instance) Column(ctx context.Context, query string, arguments ...any) ([]string, error) {
	database, _, err := i.open()
	if err != nil {
		return nil, fmt.Errorf("open the server's database: %w", err)
	}
	defer func() { _ = database.Close() }()
	return column(ctx, database, query, arguments...)
}

// Refuse makes the database refuse every new message, as one does that is read-only or out of room, until allow is called.
// Whatever else the server writes is taken.
func (i *Instance) Refuse(ctx context.Context) (allow func(ctx context.Context) error, err error) {
	refuse := []string{`CREATE TRIGGER refuses BEFORE INSERT ON turns BEGIN SELECT RAISE(ABORT, 'the database refuses'); END`}
	undo := `DROP TRIGGER refuses`
	if i.Settings.Database != "" {
		refuse = []string{
			`CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''the database refuses''; END'`,
			`CREATE TRIGGER refuses BEFORE INSERT ON turns EXECUTE FUNCTION refuse()`,
		}
		undo += ` ON turns`
	}

	if err := i.execute(ctx, refuse...); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return i.execute(ctx, undo) }, nil
}

// Writable opens the server's own database to change it.
func (i *Instance) Writable() (*sql.DB, error) {
	if i.Settings.Database != "" {
		return sql.Open("pgx", i.Settings.Database)
	}
	return sql.Open("sqlite", "file:"+filepath.Join(i.Directory, "data", "inbox.db")+"?_pragma=busy_timeout(10000)")
}

// execute changes the server's own database.
func (i *Instance) execute(ctx context.Context, statements ...string) error {
	database, err := i.Writable()
	if err != nil {
		return fmt.Errorf("open the server's database: %w", err)
	}
	defer func() { _ = database.Close() }()

	for _, statement := range statements {
		if _, err := database.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

func column(ctx context.Context, database *sql.DB, query string, arguments ...any) ([]string, error) {
	rows, err := database.QueryContext(ctx, query, arguments...)
	if err != nil {
		return nil, fmt.Errorf("query %q: %w", query, err)
	}
	defer func() { _ = rows.Close() }()

	var values []string
	for rows.Next() {
		var value string
		if err := rows.Scan(&value); err != nil {
			return nil, err
		}
		values = append(values, value)
	}

	return values, rows.Err()
}
