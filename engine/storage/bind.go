package storage

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/engine/store"
	"inbox/identity"
)

// All nodes of a database serve one domain and keep their files in one place; and what a place has belongs to one database, because
// the sweep deletes what its rows do not refer to. The database knows both. Decision record 0094.

const (
	domainName = "domain"
	filesName  = "files"
	// claim marks an id that the place may not have yet: a process that dies between the two is no loss of the files.
	claim = "new "
	// claimPatience is longer than naming a place takes.
	claimPatience = 40 * time.Second
)

// bindDomain refuses another domain than that of the database.
func bindDomain(ctx context.Context, options Options, state *store.State) error {
	own := strings.ToLower(identity.HostOf(options.Domain))
	value, _, err := state.PutIfAbsent(ctx, databaseNamespace, domainName, []byte(own), time.Time{})
	if err != nil {
		return fmt.Errorf("note the domain: %w", err)
	}

	switch known := string(value); {
	case known == own:
		return nil
	case !options.NewIdentity:
		return fmt.Errorf("domain: it is %s here, and %s was used with %s, which other servers know its agents by: write domain = %q, or "+
			"correct database_url; to go on under the new name, without the followers and conversations of the old one: %s",
			own, options.DatabaseName, known, known, newIdentity)
	default:
		options.Logger.WarnContext(ctx, "the agents have another domain from now on; nodes with the old one do not start any more",
			"domain", own, "before", known)
	}

	if err := state.Put(ctx, databaseNamespace, domainName, []byte(own), time.Time{}); err != nil {
		return fmt.Errorf("note the domain: %w", err)
	}
	return nil
}

// bindFiles refuses files that are not those of the database. The first node of a database claims its id in the database, names the
// place, and notes that it has; one that finds a claim waits for that, and takes over from a node that died in between.
func bindFiles(ctx context.Context, options Options, opened *store.Store, files BlobStore) error {
	state, patience := opened.State(), time.Now().Add(claimPatience)
	if options.DatabaseURL == "sqlite" {
		patience = time.Now() // no other process serves it
	}

	for {
		there, err := files.ID(ctx)
		if err != nil {
			return fmt.Errorf("blob_url: cannot use %s: %w", options.BlobURL, oneLine(err))
		}
		value, found, err := state.Get(ctx, databaseNamespace, filesName)
		if err != nil {
			return err
		}
		known, claimed := strings.CutPrefix(string(value), claim)

		switch {
		case found && there == known && !claimed:
			return nil
		case found && there == known, !found && there == "", claimed && there == "" && time.Now().After(patience):
			// there is nothing yet, or what a node left that died
		case claimed && !time.Now().After(patience):
			// a node is naming the place: the id that is there is none yet, or that of the node from which it took over
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		case options.NewIdentity:
			options.Logger.WarnContext(ctx, "the files are elsewhere from now on: what was kept before is not found, and nodes with the old place do not start any more",
				"blob_url", options.BlobURL)
		default:
			// Place and database are not read in one step: another node may have named both in between.
			again, err := files.ID(ctx)
			if err == nil && again == there {
				return foreignFiles(options, known, there)
			}
			if err != nil {
				return fmt.Errorf("blob_url: cannot use %s: %w", options.BlobURL, oneLine(err))
			}
			continue
		}

		if done, err := nameFiles(ctx, options, state, files, value, found); done || err != nil {
			return err
		}
	}
}

// nameFiles claims the place in the stead of value and names it anew; false where another node was faster.
func nameFiles(ctx context.Context, options Options, state *store.State, files BlobStore, value []byte, found bool) (done bool, err error) {
	id := uuid.Must(uuid.NewV7()).String()
	claimed := []byte(claim + id)
	if found {
		done, err = state.Swap(ctx, databaseNamespace, filesName, value, claimed, time.Time{})
	} else {
		_, done, err = state.PutIfAbsent(ctx, databaseNamespace, filesName, claimed, time.Time{})
	}
	if err != nil || !done {
		return false, err
	}

	if err := files.SetID(ctx, id); err != nil {
		return false, fmt.Errorf("blob_url: cannot use %s: %w", options.BlobURL, oneLine(err))
	}
	return state.Swap(ctx, databaseNamespace, filesName, claimed, []byte(id), time.Time{})
}

func foreignFiles(options Options, known, there string) error {
	const remedy = "mount or name the right place, the same on every node; to go on with this one"
	switch {
	case there == "":
		return fmt.Errorf("blob_url: %s is empty or was never used, and the files of %s are elsewhere: %s, without the files: %s",
			options.BlobURL, options.DatabaseName, remedy, newIdentity)
	case known == "":
		return fmt.Errorf("blob_url: %s has the files of another database than %s, which would delete them: name its own place, or correct "+
			"database_url; to give them to this database: %s", options.BlobURL, options.DatabaseName, newIdentity)
	}
	return fmt.Errorf("blob_url: %s is the store %s, and the files of %s are in %s: %s: %s",
		options.BlobURL, there, options.DatabaseName, known, remedy, newIdentity)
}
