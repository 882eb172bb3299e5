package store

import (
	"context"
	"database/sql"
	"io"
	"io/fs"
	"strings"

	"github.com/pressly/goose/v3"

	"inbox/migrations"
)

// migrate applies what is missing. The provider prints nothing and keeps no global state.
func migrate(ctx context.Context, database *sql.DB, words *dialect, options ...goose.ProviderOption) error {
	provider, err := migrator(database, words, append(options, goose.WithDisableGlobalRegistry(true))...)
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

func migrator(database *sql.DB, words *dialect, options ...goose.ProviderOption) (*goose.Provider, error) {
	return goose.NewProvider(words.migrations, database, ddl{migrations.Files, words}, options...)
}

// ddl gives each database its form of the migrations: SQLite does not know the collation "C", which is how it
// compares anyway, and reads JSON from text without a cast.
type ddl struct {
	fs.FS
	dialect *dialect
}

// Open opens a migration.
func (d ddl) Open(name string) (fs.File, error) {
	file, err := d.FS.Open(name)
	if err != nil || d.dialect != sqliteDialect || !strings.HasSuffix(name, ".sql") {
		return file, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	return ddlFile{file, strings.NewReader(strings.NewReplacer(` COLLATE "C"`, "", "::json", "").Replace(string(text)))}, nil
}

type ddlFile struct {
	fs.File
	text *strings.Reader
}

// Read reads the adapted text.
func (f ddlFile) Read(buffer []byte) (int, error) { return f.text.Read(buffer) }

// SchemaVersion gives the number of the last migration that the database has.
func (s *Store) SchemaVersion(ctx context.Context) (int64, error) {
	var version int64
	_, err := first(ctx, s.engine.reader(), `SELECT MAX(version_id) FROM goose_db_version`, nil, &version)
	return version, err
}
