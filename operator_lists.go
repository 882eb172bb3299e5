package inbox

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/engine/delivery"
	"inbox/engine/moderation"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
)

// listKeeper changes the operator's lists for commands and for the operator API alike.
type listKeeper struct {
	config *Config
	store  *store.Store
}

// Entries lists entries, newest first.
func (k listKeeper) Entries(ctx context.Context, filter exchange.ListFilter) ([]exchange.ListEntry, error) {
	entries, err := k.store.ListEntries(ctx, filter)
	return listed(entries), err
}

// Add puts somebody on a list, or changes the entry that is there. Target is written as people write it; see
// moderation.ParseTarget. Errors are fault.Malformed.
func (k listKeeper) Add(ctx context.Context, entry exchange.ListEntry) (exchange.ListEntry, error) {
	entry, err := k.read(entry)
	if err != nil {
		return entry, err
	}
	entry.ID, entry.CreatedAt = uuid.Must(uuid.NewV7()).String(), time.Now().UTC().Truncate(time.Millisecond)
	if err := k.store.PutListEntries(ctx, entry); err != nil {
		return entry, err
	}
	stored, err := k.store.ListEntries(ctx, exchange.ListFilter{List: entry.List, Kind: entry.Kind, Target: entry.Target, Agent: entry.Agent, Limit: 1})
	if err != nil || len(stored) == 0 {
		return entry, err
	}
	return stored[0], nil
}

// read makes the entry of what an operator wrote.
func (k listKeeper) read(entry exchange.ListEntry) (_ exchange.ListEntry, err error) {
	switch entry.List {
	case exchange.ListBlock, exchange.ListAllow:
	default:
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
	if host := strings.TrimPrefix(entry.Target, "*."); entry.Kind == exchange.TargetHost && ownHosts(k.config)[host] {
		return entry, fault.Newf(fault.Malformed, "%s is this server itself", host)
	}
	return entry, nil
}

// Remove takes somebody off a list; fault.NotFound when they are not on it.
func (k listKeeper) Remove(ctx context.Context, entry exchange.ListEntry) (err error) {
	if entry.List != exchange.ListStop {
		if entry.Kind, entry.Target, err = moderation.ParseTarget(entry.Target); err != nil {
			return err
		}
	} else {
		entry.Kind = exchange.TargetPrincipal
	}
	removed, err := k.store.RemoveListEntry(ctx, entry)
	if err == nil && !removed {
		err = fault.Newf(fault.NotFound, "%s is not on the list", entry.Target)
	}
	return err
}

// importPortion is how many entries become visible together: few enough that nobody waits long for the writer.
const importPortion = 500

// Import reads a list; progress is told how many entries were taken so far. With dryRun nothing is written.
func (k listKeeper) Import(
	ctx context.Context, from io.Reader, options moderation.ImportOptions, dryRun bool, progress func(taken int),
) (exchange.ImportResult, error) {
	result := exchange.ImportResult{Bad: []exchange.BadLine{}, DryRun: dryRun}
	known, err := k.known(ctx, options.List)
	if err != nil {
		return result, err
	}
	var portion []exchange.ListEntry
	write := func() error {
		if len(portion) == 0 || dryRun {
			portion = portion[:0]
			return nil
		}
		err := k.store.PutListEntries(ctx, portion...)
		portion = portion[:0]
		progress(result.Read)
		return err
	}
	bad := func(line exchange.BadLine) {
		if result.BadLines++; len(result.Bad) < exchange.MaxBadLines {
			result.Bad = append(result.Bad, line)
		}
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	err = moderation.ReadImport(from, options, func(entry exchange.ListEntry) error {
		result.Read++
		if host := strings.TrimPrefix(entry.Target, "*."); entry.List == exchange.ListBlock && ownHosts(k.config)[host] {
			bad(exchange.BadLine{Text: host, Why: "is this server itself"})
			return nil
		}
		place := entry.Kind + " " + entry.Target
		if effect, there := known[place]; there && effect == entry.Effect {
			result.Unchanged++
			return nil
		}
		known[place] = entry.Effect
		result.Added++
		entry.ID, entry.CreatedAt = uuid.Must(uuid.NewV7()).String(), now
		if portion = append(portion, entry); len(portion) < importPortion {
			return nil
		}
		return write()
	}, bad)
	if err == nil {
		err = write()
	}
	if err != nil {
		return result, fmt.Errorf("import: %w", err)
	}
	return result, nil
}

// known gives the effects of the entries on a list.
func (k listKeeper) known(ctx context.Context, list string) (map[string]string, error) {
	known := map[string]string{}
	filter := exchange.ListFilter{List: list, Limit: 500}
	for {
		page, err := k.store.ListEntries(ctx, filter)
		if err != nil {
			return nil, err
		}
		for _, entry := range page {
			known[entry.Kind+" "+entry.Target] = entry.Effect
		}
		if len(page) < filter.Limit {
			return known, nil
		}
		filter.Before = page[len(page)-1].ID
	}
}

// Lists are the operator's lists, for commands.
func (o *Operator) lists() listKeeper { return listKeeper{o.config, o.store} }

// ListEntries lists who is on a list, newest first.
func (o *Operator) ListEntries(ctx context.Context, filter exchange.ListFilter) ([]exchange.ListEntry, error) {
	return o.lists().Entries(ctx, filter)
}

// AddToList puts somebody on the block or allow list and cancels what was accepted from senders who are blocked now. A
// server that runs notices within seconds.
func (o *Operator) AddToList(ctx context.Context, entry exchange.ListEntry) (added exchange.ListEntry, cancelled int, err error) {
	if added, err = o.lists().Add(ctx, entry); err != nil {
		return added, 0, err
	}
	cancelled, err = o.cancelBlocked(ctx)
	return added, cancelled, err
}

// RemoveFromList takes somebody off a list; fault.NotFound when they are not on it.
func (o *Operator) RemoveFromList(ctx context.Context, entry exchange.ListEntry) error {
	return o.lists().Remove(ctx, entry)
}

// ImportList reads a list of domains, as Mastodon exports them or with one a line, and cancels what was accepted from
// senders who are blocked now. With dryRun nothing changes. Progress is told how many entries were taken so far.
func (o *Operator) ImportList(
	ctx context.Context, from io.Reader, list, silenced string, dryRun bool, progress func(taken int),
) (exchange.ImportResult, error) {
	options := moderation.ImportOptions{List: list, Silenced: silenced, Source: "import"}
	result, err := o.lists().Import(ctx, from, options, dryRun, progress)
	if err == nil && !dryRun && list == exchange.ListBlock {
		result.Cancelled, err = o.cancelBlocked(ctx)
	}
	return result, err
}

func (o *Operator) cancelBlocked(ctx context.Context) (int, error) {
	lists := newLists(o.config, o.store)
	if _, err := lists.Read(ctx); err != nil {
		return 0, err
	}
	deliveries := delivery.New(delivery.Options{Store: o.store.Deliverer(), Refused: func(record delivery.Record, reply exchange.Reply) string {
		return refusedDelivery(lists, o.config.Domain, record, reply)
	}})
	if _, err := deliveries.WithdrawRefused(ctx); err != nil {
		return 0, err
	}
	return cancelBlocked(ctx, o.store, lists, o.turns())
}
