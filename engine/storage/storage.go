// Package storage opens what a server keeps: its database, the directory beside it and the key that seals secrets. It refuses
// a start with parts that do not belong together, and keeps documents with private keys sealed. It knows no table but that of
// documents.
package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"inbox/engine/store"
	"inbox/engine/store/database"
	"inbox/internal/disk"
)

// Options say what belongs together.
type Options struct {
	DataDir       string
	DatabaseURL   string // "sqlite", or a URL with its password
	DatabaseName  string // the same as it may be shown
	SecretKeyFile string // empty = secret.key in DataDir
	Domain        string // of the agents' addresses; its port does not count
	BlobURL       string // where files are kept, as it may be shown
	Version       string // of this program, for the record of the first start
	NewIdentity   bool   // go on without the database or the key that DataDir was used with

	Ceilings  func() store.Periods          // see store.Options
	Elsewhere func(channel, payload string) // see store.Options

	Connections        int  // see store.Options
	RequireSynchronous bool // see store.Options

	AsFound   bool // the schema stays as it is; see store.Options
	NoUpgrade bool // an older schema is refused; see store.Options

	Traces []string // further files that only a server leaves in DataDir
	Sealed []string // namespaces of documents that hold private keys and secrets, and nothing else
	Logger *slog.Logger
}

// Open opens the database, which tells notify of what this process commits. Its error is one sentence that names the setting and what
// to do.
func Open(ctx context.Context, options Options, notify func(channel, payload string)) (*store.Store, error) {
	if err := makeDirectory("data_dir", options.DataDir); err != nil {
		return nil, err
	}
	if err := checkUnfinished(options); err != nil {
		return nil, err
	}
	if err := checkDirectory(options); err != nil {
		return nil, err
	}

	opened, err := store.Open(ctx, options.Store(notify))
	if err == nil {
		if err := checkDatabase(ctx, options, opened); err != nil {
			return nil, errors.Join(err, opened.Close())
		}
		return opened, nil
	}

	if newer, found := errors.AsType[*database.NewerSchema](err); found {
		return nil, fmt.Errorf("%s: %w", databaseText(options), newer)
	}
	if older, found := errors.AsType[*database.OlderSchema](err); found {
		return nil, fmt.Errorf("%s: %w", databaseText(options), older)
	}
	if options.DatabaseURL == "sqlite" {
		return nil, fmt.Errorf("data_dir: cannot open the database in %s: %w", options.DataDir, oneLine(err))
	}

	return nil, fmt.Errorf("database_url: %w", joinLines(err)) // it names the servers, and what to do
}

// Drop removes all rows of a PostgreSQL database with a schema of its own, as a further domain has.
func Drop(ctx context.Context, options Options) error {
	return database.DropSchema(ctx, options.DatabaseURL)
}

// Store are the options of the store.
func (o Options) Store(notify func(channel, payload string)) store.Options {
	return store.Options{
		URL: o.DatabaseURL, DataDir: o.DataDir, Connections: o.Connections, RequireSynchronous: o.RequireSynchronous, Notify: notify, Elsewhere: o.Elsewhere, Logger: o.Logger,
		AsFound: o.AsFound, NoUpgrade: o.NoUpgrade, Ceilings: o.Ceilings,
	}
}

// Take makes this process the only one that serves a data directory with a SQLite database; nil on PostgreSQL. What a killed
// process was at work with is then free at once: its leases need not end first.
func Take(ctx context.Context, options Options, opened *store.Store) (*disk.Lock, error) {
	if options.DatabaseURL != "sqlite" {
		return nil, nil
	}

	seat, err := disk.Take(options.DataDir)
	switch {
	case errors.Is(err, disk.ErrTaken):
		return seat, fmt.Errorf("data_dir: another inbox serves %s; stop it, give this one its own directory, or use PostgreSQL for several", options.DataDir)
	case err != nil:
		return seat, fmt.Errorf("data_dir: %w", disk.Cause(err))
	case !seat.Sole():
		return seat, nil
	}
	return seat, opened.FreeLeases(ctx)
}

// Bind binds database, domain, secret key, files and data directory to each other, and seals what stands open.
func Bind(ctx context.Context, options Options, opened *store.Store, files BlobStore) (*Sealer, error) {
	sealer, err := OpenSealer(ctx, options, opened)
	if err != nil {
		return nil, err
	}
	if err := bindDomain(ctx, options, opened.State()); err != nil {
		return nil, err
	}
	if err := bindFiles(ctx, options, opened, files); err != nil {
		return nil, err
	}
	if err := sealer.sealKeys(ctx); err != nil {
		return nil, err
	}
	return sealer, rememberDatabase(ctx, options, opened)
}

// makeDirectory makes the directory of a setting and proves that it can be written.
func makeDirectory(setting, directory string) error {
	const remedy = "write another directory or give this user the right to write there"
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return fmt.Errorf("%s: cannot make %s: %w; %s", setting, directory, disk.Cause(err), remedy)
	}
	probe, err := os.CreateTemp(directory, ".write-*")
	if err != nil {
		return fmt.Errorf("%s: cannot write to %s: %w; %s", setting, directory, disk.Cause(err), remedy)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// oneLine finds what the operating system said below a driver's report of many lines, or joins the lines.
func oneLine(err error) error {
	if operation, ok := errors.AsType[*net.OpError](err); ok {
		return operation
	}
	return joinLines(err)
}

func joinLines(err error) error {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\t' })
	return &shortened{text: strings.Join(lines, " "), cause: err}
}

type shortened struct {
	text  string
	cause error
}

func (s *shortened) Error() string { return s.text }
func (s *shortened) Unwrap() error { return s.cause }
