package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"inbox/engine/storage"
	"inbox/engine/store"
	"inbox/internal/clock"
	"inbox/internal/disk"
	"inbox/internal/fault"
	"inbox/operator"
)

// noLogger is for stores that are open for a moment, whose errors are returned.
var noLogger = slog.New(slog.DiscardHandler)

// orphansEvery is the interval between two rounds of retention over domains that are no longer in the settings.
const orphansEvery = time.Hour

// warnOfOrphans names domains whose table was removed from the settings and whose data is still there.
func (s *Server) warnOfOrphans() {
	left, err := s.config.OrphanedDomains()
	if err != nil {
		s.logger.Warn("data of earlier domains could not be looked for", "error", err)
	}
	for _, one := range left {
		s.logger.Warn("data of a domain that is not in the settings is stored; only [retention] removes it", "domain", one.Domain, "directory", one.Directory,
			"remedy", "inbox domains remove "+one.Domain+" --erase")
	}
}

// retainOrphans removes expired data of domains that are no longer in the settings, until ctx ends, on one node at a time. One that fails does not
// stop the others.
func (s *Server) retainOrphans(ctx context.Context) error {
	for {
		if s.due(ctx, "orphans", orphansEvery-time.Second) {
			left, err := s.config.OrphanedDomains()
			if err != nil {
				s.logger.WarnContext(ctx, "data of earlier domains could not be looked for", "error", err)
			}
			for _, one := range left {
				removed, err := retainOrphan(ctx, s.now().config, one)
				if err != nil && ctx.Err() == nil {
					s.logger.WarnContext(ctx, "expired data of a domain that is not in the settings could not be removed; will retry", "domain", one.Domain, "error", err)
				}
				for kind, count := range removed {
					if count > 0 {
						s.logger.InfoContext(ctx, "expired data of a domain that is not in the settings was removed", "domain", one.Domain, "kind", kind, "count", count)
					}
				}
			}
		}
		if err := clock.Sleep(ctx, orphansEvery); err != nil {
			return nil //nolint:nilerr // it was told to end
		}
	}
}

// retainOrphan removes expired data of a domain that is no longer in the settings, by the periods of [retention], and returns how much by kind. A domain that a server with
// earlier settings still serves is left to that server.
func retainOrphan(ctx context.Context, config *Config, one operator.OrphanedDomain) (removed map[string]int64, err error) {
	settings := config.SettingsOf(one)
	err = whileUnserved(ctx, settings, func() (err error) {
		opened, err := storage.Open(ctx, storageOptions(settings, noLogger), nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, opened.Close()) }()

		removed, err = opened.Retain(ctx, store.Retention{Default: periods(config.Retention.Agents())}, time.Now())
		if err != nil {
			return err
		}
		if err := opened.DropOriginals(ctx); err != nil {
			return err
		}
		files, err := openBlobs(settings, nil)
		if err != nil {
			return err
		}
		if _, err := opened.SweepBlobs(ctx, files, blobIdle); err != nil {
			return err
		}
		_, err = opened.SweepOrphans(ctx, files, orphanIdle)
		return err
	})
	if errors.Is(err, errServed) || errors.Is(err, errUnused) {
		return nil, nil
	}
	return removed, err
}

// Errors of whileUnserved.
var (
	errServed = errors.New("a running server serves the domain")
	errUnused = errors.New("the domain has no database")
)

// whileUnserved works on the data of a domain that no server serves: errServed or errUnused if there is none to work on.
func whileUnserved(ctx context.Context, settings *Config, work func() error) (err error) {
	seat, err := disk.Take(settings.DataDir)
	if errors.Is(err, disk.ErrTaken) {
		return errServed
	}
	if err != nil {
		return disk.Cause(err)
	}
	defer func() { err = errors.Join(err, seat.Leave()) }()

	as := storageOptions(settings, noLogger).Store(nil)
	as.AsFound = true
	found, err := store.Look(ctx, as)
	if err != nil {
		return err
	}
	if !found.Used {
		return errUnused
	}
	if settings.DatabaseURL == "sqlite" { // the seat is all that a server of it has
		return work()
	}

	opened, err := store.Open(ctx, as)
	if err != nil {
		return err
	}
	nodes, err := operator.RunningNodes(ctx, opened)
	if err = errors.Join(err, opened.Close()); err != nil {
		return err
	}
	if len(nodes) > 0 {
		var hosts []string
		for _, node := range nodes {
			hosts = append(hosts, node.Host)
		}
		return fmt.Errorf("%w, on %s; its last sign of life is from %s", errServed, strings.Join(hosts, ", "), nodes[0].SeenAt.Format(time.RFC3339))
	}
	return work()
}

// RemoveDomain deletes the rows, keys and files of a domain that is no longer in the settings, but for files in a bucket. It refuses a domain that a running server serves:
// one that was not restarted since the table was removed would go on accepting messages.
func RemoveDomain(ctx context.Context, config *Config, one operator.OrphanedDomain) error {
	settings := config.SettingsOf(one)
	remove := func() error {
		if one.Schema != "" {
			if err := storage.Drop(ctx, storageOptions(settings, noLogger)); err != nil {
				return fmt.Errorf("%w; run as the owner of the schema: DROP SCHEMA %q CASCADE; then try again", err, one.Schema)
			}
		}
		return removeDirectory(one.Directory)
	}
	err := whileUnserved(ctx, settings, remove)
	switch {
	case errors.Is(err, errServed):
		return fault.New(fault.Conflict, "nothing was removed: "+err.Error()+"; restart it, so that it reads the settings without "+one.Domain+
			", and try again (a server that crashed counts for 90 seconds)")
	case errors.Is(err, errUnused):
		err = remove()
	}
	if err != nil {
		return fmt.Errorf("delete the data of %s: %w", one.Domain, err)
	}
	return nil
}

// removeDirectory deletes a directory. Where it is a link to one, it deletes both: what the link leads to has the data.
func removeDirectory(directory string) error {
	info, err := os.Lstat(directory)
	if err != nil {
		return disk.Cause(err)
	}
	if info.Mode()&os.ModeSymlink != 0 {
		entries, err := os.ReadDir(directory)
		if err != nil {
			return fmt.Errorf("%s leads to a directory that cannot be read: %w", directory, disk.Cause(err))
		}
		for _, entry := range entries {
			if err := os.RemoveAll(directory + string(os.PathSeparator) + entry.Name()); err != nil {
				return disk.Cause(err)
			}
		}
	}
	return disk.Cause(os.RemoveAll(directory))
}
