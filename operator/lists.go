package operator

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/google/uuid"

	"inbox/engine/moderation"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
)

// Lists are the senders and hosts that are kept out or let in, and the senders who told an agent to stop. Servers that run notice changes within seconds.
type Lists struct {
	store         *store.Store
	ownHosts      map[string]bool
	wouldWithdraw func(ctx context.Context, entries ...exchange.ListEntry) (count int, err error)

	withdraw func(ctx context.Context) (cancelled int, err error) // nil = a running server does it by itself
}

// Entries lists entries, newest first.
func (l Lists) Entries(ctx context.Context, filter exchange.ListFilter) ([]exchange.ListEntry, error) {
	entries, err := l.store.ListEntries(ctx, filter)
	return listed(entries), err
}

// Add puts a target on the block or allow list, or changes the entry that is there, and cancels what was accepted from
// senders who are blocked now. The target is written as people write it; see moderation.ParseTarget. Errors are
// fault.Malformed.
func (l Lists) Add(ctx context.Context, entry exchange.ListEntry) (added exchange.ListEntry, cancelled int, err error) {
	if entry, err = l.read(entry); err != nil {
		return entry, 0, err
	}
	entry.ID, entry.CreatedAt = uuid.Must(uuid.NewV7()).String(), now()
	if err := l.store.PutListEntries(ctx, entry); err != nil {
		return entry, 0, err
	}

	// An entry that was there before keeps its id.
	stored, err := l.store.ListEntries(ctx, exchange.ListFilter{List: entry.List, Kind: entry.Kind, Target: entry.Target, Agent: entry.Agent, Limit: 1})
	if err != nil {
		return entry, 0, err
	}
	if len(stored) > 0 {
		entry = stored[0]
	}

	cancelled, err = l.cancelBlocked(ctx)
	return entry, cancelled, err
}

// Preview reads a target as Add does and returns how many accepted messages its entry would cancel, in the running server too. Nothing changes.
func (l Lists) Preview(ctx context.Context, entry exchange.ListEntry) (read exchange.ListEntry, cancels int, err error) {
	if entry, err = l.read(entry); err != nil {
		return entry, 0, err
	}
	cancels, err = l.wouldWithdraw(ctx, entry)
	return entry, cancels, err
}

// read makes the entry of what an operator wrote.
func (l Lists) read(entry exchange.ListEntry) (_ exchange.ListEntry, err error) {
	if entry.List != exchange.ListBlock && entry.List != exchange.ListAllow {
		return entry, fault.InField("list", `must be "block" or "allow"`)
	}
	if entry.Kind, entry.Target, err = moderation.ParseTarget(entry.Target); err != nil {
		return entry, err
	}
	if entry.List == exchange.ListAllow {
		entry.Effect = ""
		return entry, nil
	}

	if entry.Effect == "" {
		entry.Effect = exchange.EffectRefuse
	}
	if entry.Effect != exchange.EffectRefuse && entry.Effect != exchange.EffectHold {
		return entry, fault.InField("effect", `must be "refuse" or "hold"`)
	}
	if host, own := l.ownHost(entry); own {
		return entry, fault.Newf(fault.Malformed, "%s is this server itself", host)
	}
	return entry, nil
}

func (l Lists) ownHost(entry exchange.ListEntry) (host string, own bool) {
	host = strings.TrimPrefix(entry.Target, "*.")
	return host, entry.Kind == exchange.TargetHost && l.ownHosts[host]
}

// Remove takes a target off a list; fault.NotFound when it is not on it. Of the list of stop words the target is a principal.
func (l Lists) Remove(ctx context.Context, entry exchange.ListEntry) (err error) {
	written := entry.Target
	if entry.List == exchange.ListStop {
		entry.Kind = exchange.TargetPrincipal
	} else if entry.Kind, entry.Target, err = moderation.ParseTarget(entry.Target); err != nil {
		return err
	}

	removed, err := l.store.RemoveListEntry(ctx, entry)
	if written := strings.TrimSpace(written); err == nil && !removed && written != entry.Target { // of a version that stored it as it was written
		entry.Target = written
		removed, err = l.store.RemoveListEntry(ctx, entry)
	}
	if err == nil && !removed {
		err = fault.Newf(fault.NotFound, "%s is not on the list", entry.Target)
	}
	return err
}

// importPortion is how many entries become visible together: few enough that no other writer waits long.
const importPortion = 500

// ImportOptions say how a list is read.
type ImportOptions struct {
	List     string // exchange.ListBlock or exchange.ListAllow
	Silenced string // what becomes of silenced domains: hold (as when empty), refuse or skip
	DryRun   bool   // nothing changes
	Progress func(taken int)
}

// Import reads a list of domains, as Mastodon exports them or with one a line, and cancels what was accepted from senders
// who are blocked now. Progress, which may be nil, is told how many entries were taken so far.
func (l Lists) Import(ctx context.Context, from io.Reader, options ImportOptions) (exchange.ImportResult, error) {
	result := exchange.ImportResult{Bad: []exchange.BadLine{}, DryRun: options.DryRun}
	effects, err := l.effects(ctx, options.List)
	if err != nil {
		return result, err
	}

	var portion []exchange.ListEntry
	write := func() error {
		written := portion
		portion = portion[:0]
		if len(written) == 0 || options.DryRun {
			return nil
		}
		err := l.store.PutListEntries(ctx, written...)
		if options.Progress != nil {
			options.Progress(result.Read)
		}
		return err
	}
	bad := func(line exchange.BadLine) {
		if result.BadLines++; len(result.Bad) < exchange.MaxBadLines {
			result.Bad = append(result.Bad, line)
		}
	}
	began := now()
	take := func(entry exchange.ListEntry) error {
		result.Read++
		if host, own := l.ownHost(entry); own && entry.List == exchange.ListBlock {
			bad(exchange.BadLine{Text: host, Why: "is this server itself"})
			return nil
		}

		place := entry.Kind + " " + entry.Target
		if effect, there := effects[place]; there && effect == entry.Effect {
			result.Unchanged++
			return nil
		}
		effects[place] = entry.Effect
		result.Added++
		entry.ID, entry.CreatedAt = uuid.Must(uuid.NewV7()).String(), began
		if portion = append(portion, entry); len(portion) < importPortion {
			return nil
		}
		return write()
	}

	err = moderation.ReadImport(from, moderation.ImportOptions{List: options.List, Silenced: options.Silenced, Source: "import"}, take, bad)
	if err == nil {
		err = write()
	}
	if err != nil {
		return result, fmt.Errorf("import: %w", err)
	}

	if !options.DryRun && options.List == exchange.ListBlock {
		result.Cancelled, err = l.cancelBlocked(ctx)
	}
	return result, err
}

func (l Lists) cancelBlocked(ctx context.Context) (int, error) {
	if l.withdraw == nil {
		return 0, nil
	}
	return l.withdraw(ctx)
}

// effects returns the effects of the entries on a list, by kind and target.
func (l Lists) effects(ctx context.Context, list string) (map[string]string, error) {
	effects := map[string]string{}
	for page, err := range entryPages(ctx, l.store, exchange.ListFilter{List: list}) {
		if err != nil {
			return nil, err
		}
		for _, entry := range page {
			effects[entry.Kind+" "+entry.Target] = entry.Effect
		}
	}
	return effects, nil
}

const entryPage = 500

// entryPages reads all entries that a filter selects, newest first.
func entryPages(ctx context.Context, from *store.Store, filter exchange.ListFilter) iter.Seq2[[]exchange.ListEntry, error] {
	filter.Limit = entryPage
	return func(yield func([]exchange.ListEntry, error) bool) {
		for {
			page, err := from.ListEntries(ctx, filter)
			if !yield(page, err) || err != nil || len(page) < filter.Limit {
				return
			}
			filter.Before = page[len(page)-1].ID
		}
	}
}
