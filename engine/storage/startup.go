package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/disk"
)

// A database and the directory beside it belong together: the agents' keys, followers and conversations are in the one, what
// opens its secrets is in the other. Where one of them was used before and the other one is missing or a different one, a
// server that went on would be someone else under the same name, and no one would be told. Decision record 0072.

// databaseFile names in data_dir the database that it was used with, by the id that the database has of itself.
const databaseFile = "database.id"

const (
	databaseNamespace = "database"
	databaseName      = "id"
)

const newIdentity = "inbox serve --new-identity"

// checkDirectory refuses to make a database in a directory that was used with one. It comes before the database is opened,
// because SQLite would make it.
func checkDirectory(options Options) error {
	if options.NewIdentity || options.DatabaseURL != "sqlite" {
		return nil
	}

	path := filepath.Join(options.DataDir, store.File)
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return lostDatabase(options, "is missing")
	case err == nil && info.Size() == 0:
		return lostDatabase(options, "is empty")
	}
	return nil // whatever else is wrong, opening it tells
}

// checkUnfinished refuses a directory whose restore did not end.
func checkUnfinished(options Options) error {
	content, err := os.ReadFile(filepath.Join(options.DataDir, store.UnfinishedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("data_dir: cannot read %s: %w", store.UnfinishedFile, disk.Cause(err))
	}
	return fmt.Errorf("data_dir: %s is not complete: the restore of %s did not end; run inbox restore again, it starts over",
		options.DataDir, strings.TrimSpace(string(content)))
}

// lostDatabase returns nil for a directory that no server has used yet.
func lostDatabase(options Options, what string) error {
	found := usedBefore(options)
	if found == "" {
		return nil
	}
	return fmt.Errorf("%s %s, but data_dir %s was used before, because it has %s: put the database back, from a backup or by correcting "+
		"data_dir or database_url; to start over with new keys and without the messages: %s",
		databaseText(options), what, options.DataDir, found, newIdentity)
}

// databaseText names the key and the place of the database.
func databaseText(options Options) string {
	if options.DatabaseURL == "sqlite" {
		return "data_dir: the database " + filepath.Join(options.DataDir, store.File)
	}
	return "database_url: the database " + options.DatabaseName
}

// usedBefore returns a file of data_dir that only a server leaves there; empty without one.
func usedBefore(options Options) string {
	files := append([]string{databaseFile}, options.Traces...)
	if options.SecretKeyFile == "" {
		files = append(files, secretKeyFile) // one that the operator named may have been made for the first start
	}

	for _, name := range files {
		if _, err := os.Stat(filepath.Join(options.DataDir, name)); err == nil {
			return name
		}
	}
	return ""
}

// checkDatabase refuses an open database that is not the one with which data_dir was used. It writes nothing.
func checkDatabase(ctx context.Context, options Options, opened *store.Store) error {
	switch marks, err := opened.Marks(ctx); {
	case err != nil:
		return err
	case marks.Unfinished != "":
		return fmt.Errorf("%s is not complete: the %s did not end; run the command again, it starts over", databaseText(options), marks.Unfinished)
	case marks.Moved != "":
		return fmt.Errorf("%s was moved to %s: write that as database_url. What is here is as old as the move, and what was accepted since then is "+
			"there; to go back, make a backup there and restore it with database_url = \"sqlite\", after you moved this file away", databaseText(options), marks.Moved)
	}
	if options.NewIdentity {
		return nil
	}

	here, err := knownDatabase(options)
	if err != nil {
		return err
	}

	value, found, err := opened.State().Get(ctx, databaseNamespace, databaseName)
	if err != nil {
		return err
	}

	there := string(value)
	switch {
	case found && here != "" && here != there:
		return fmt.Errorf("%s is not the one that data_dir %s was used with (it is %s, and %s names %s): correct "+
			"database_url or data_dir; to go on with this database: %s", databaseText(options), options.DataDir, there, databaseFile, here, newIdentity)
	case found:
		return nil
	}

	used, err := opened.InUse(ctx)
	if err != nil || used && here == "" { // by a version that gave no ids
		return err
	}

	return lostDatabase(options, "is empty")
}

func knownDatabase(options Options) (string, error) {
	content, err := os.ReadFile(filepath.Join(options.DataDir, databaseFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("data_dir: cannot read %s: %w", databaseFile, disk.Cause(err))
	}
	return strings.TrimSpace(string(content)), nil
}

// auditFirstStart is the code of the record with which the audit trail of a database begins.
const auditFirstStart = "server:first_start"

// nameDatabase returns the id of the database. One that has none gets one, in one transaction with the record of the first start.
func nameDatabase(ctx context.Context, options Options, opened *store.Store) (id string, err error) {
	schema, err := opened.SchemaVersion(ctx)
	if err != nil {
		return "", err
	}

	fresh := uuid.Must(uuid.NewV7()).String()
	err = opened.InTx(ctx, func(tx *store.Tx) error {
		value, first, err := tx.PutDocumentIfAbsent(ctx, databaseNamespace, databaseName, []byte(fresh), time.Time{})
		if id = string(value); err != nil || !first {
			return err
		}
		return tx.Audit(ctx, exchange.AuditRecord{Code: auditFirstStart, Detail: fmt.Sprintf("inbox %s, schema %d, database %s", options.Version, schema, id)})
	})
	return id, err
}

// rememberDatabase notes the id of the database in data_dir.
func rememberDatabase(ctx context.Context, options Options, opened *store.Store) error {
	value, err := nameDatabase(ctx, options, opened)
	if err != nil {
		return fmt.Errorf("name the database: %w", err)
	}

	here, err := knownDatabase(options)
	if err != nil || here == value {
		return err
	}
	if err := disk.WritePrivate(filepath.Join(options.DataDir, databaseFile), value+"\n"); err != nil {
		return fmt.Errorf("data_dir: cannot write %s: %w", databaseFile, disk.Cause(err))
	}

	return nil
}
