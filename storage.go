package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"inbox/engine/store"
	"inbox/internal/blob"
	"inbox/internal/disk"
)

// openStore opens the database; its error is one sentence that names the key and what to do.
func openStore(ctx context.Context, config *Config, logger *slog.Logger, notify func(channel, payload string)) (*store.Store, error) {
	if err := makeDataDir(config.DataDir); err != nil {
		return nil, err
	}
	if err := checkDirectory(config); err != nil {
		return nil, err
	}
	opened, err := store.Open(ctx, store.Options{URL: config.DatabaseURL.Reveal(), DataDir: config.DataDir, Notify: notify, Logger: logger})
	if err == nil {
		if err := checkDatabase(ctx, config, opened); err != nil {
			return nil, errors.Join(err, opened.Close())
		}
		return opened, nil
	}
	if newer, found := errors.AsType[*store.NewerSchema](err); found {
		return nil, fmt.Errorf("%s: %w", databaseText(config), newer)
	}
	if config.DatabaseURL.Reveal() == "sqlite" {
		return nil, fmt.Errorf("data_dir: cannot open the database in %s: %w", config.DataDir, oneLine(err))
	}
	return nil, fmt.Errorf("database_url: cannot open %s: %w; start the database or correct the key", config.DatabaseURL, oneLine(err))
}

// takeDataDir makes this process the only one that serves a data directory with a SQLite database. What a killed one was
// at work with is then free at once: nobody has to wait for the end of its leases.
func (s *Server) takeDataDir(ctx context.Context) (err error) {
	if s.config.DatabaseURL.Reveal() != "sqlite" {
		return nil
	}
	s.seat, err = disk.Sit(s.config.DataDir)
	switch {
	case errors.Is(err, disk.ErrTaken):
		return fmt.Errorf("data_dir: another inbox serves %s; stop it, give this one its own directory, or use PostgreSQL for several", s.config.DataDir)
	case err != nil:
		return fmt.Errorf("data_dir: %w", disk.Cause(err))
	case !s.seat.Sole():
		return nil
	}
	return s.store.FreeLeases(ctx)
}

func openBlobs(config *Config, guard *disk.Guard) (*blob.Files, error) {
	if err := makeDataDir(config.DataDir); err != nil {
		return nil, err
	}
	files, err := blob.OpenFiles(filepath.Join(config.DataDir, "blobs"), blob.Options{Writes: guard.Admit})
	if err != nil {
		return nil, fmt.Errorf("data_dir: cannot keep files in %s: %w", config.DataDir, oneLine(err))
	}
	return files, nil
}

// makeDataDir makes the directory and proves that it can be written.
func makeDataDir(directory string) error {
	const remedy = "write another directory or give this user the right to write there"
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return fmt.Errorf("data_dir: cannot make %s: %w; %s", directory, disk.Cause(err), remedy)
	}
	probe, err := os.CreateTemp(directory, ".write-*")
	if err != nil {
		return fmt.Errorf("data_dir: cannot write to %s: %w; %s", directory, disk.Cause(err), remedy)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// oneLine finds what the operating system said below a driver's report of many lines, or joins the lines.
func oneLine(err error) error {
	if operation, ok := errors.AsType[*net.OpError](err); ok {
		return operation
	}
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\t' })
	return &shortened{text: strings.Join(lines, " "), cause: err}
}

type shortened struct {
	text  string
	cause error
}

func (s *shortened) Error() string { return s.text }
func (s *shortened) Unwrap() error { return s.cause }
