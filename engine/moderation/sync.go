package moderation

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inbox/exchange"
	"inbox/internal/telemetry"
)

var (
	// list: block, allow, stop
	listSize = telemetry.NewSum(prometheus.GaugeOpts{
		Name: "inbox_list_entries", Help: "Entries of the operator's lists and stop words that this node knows.",
	}, "list")
	listsRead = telemetry.NewLeast(prometheus.GaugeOpts{
		Name: "inbox_lists_read_timestamp_seconds", Help: "When this node last read what changed in the lists.",
	})
)

const (
	// readEvery is how late a change is noticed where no one tells of it; the store does, also of commands of other processes.
	readEvery = 2 * time.Second
	listPage  = 500
)

// Source returns what changed in the lists after the version and id, in that order.
type Source interface {
	ListChanges(ctx context.Context, version int64, id string, limit int) ([]exchange.ListChange, error)
}

// Options configure Lists. Source and Domain are required.
type Options struct {
	Source      Source
	Domain      string          // of this server, canonical
	Hosts       map[string]bool // other names of this server, canonical: the host of public_url
	OnlyAllowed bool            // federation.mode = "allowlist"
	Logger      *slog.Logger    // default: slog.Default
}

// Lists are the operator's lists as this node knows them. It is safe for concurrent use and answers without waiting for
// the database.
type Lists struct {
	options Options
	table   *table
	version int64 // both are Read's alone
	id      string
	reading chan struct{} // holds a token while no one reads
	wake    chan struct{}
}

// New makes empty lists; Read fills them.
func New(options Options) *Lists {
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	l := &Lists{options: options, table: newTable(), reading: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
	l.reading <- struct{}{}
	return l
}

// Read takes over everything that changed since it was last called and reports whether anything did.
func (l *Lists) Read(ctx context.Context) (changed bool, err error) {
	select {
	case <-l.reading:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { l.reading <- struct{}{} }()
	for {
		changes, err := l.options.Source.ListChanges(ctx, l.version, l.id, listPage)
		if err != nil {
			return changed, fmt.Errorf("read lists: %w", err)
		}

		if len(changes) > 0 {
			l.table.apply(changes)
			last := changes[len(changes)-1]
			l.version, l.id, changed = last.Version, last.Entry.ID, true
		}

		if len(changes) < listPage {
			l.measure(changed)
			return changed, nil
		}
	}
}

func (l *Lists) measure(changed bool) {
	listsRead.Set(l, float64(time.Now().Unix()))
	if !changed {
		return
	}

	l.table.RLock()
	defer l.table.RUnlock()
	sizes := map[string]int{exchange.ListStop: len(l.table.stops), exchange.ListBlock: 0, exchange.ListAllow: 0}
	for kind := range l.table.block {
		sizes[exchange.ListBlock] += len(l.table.block[kind])
	}

	for kind := range l.table.allow {
		sizes[exchange.ListAllow] += len(l.table.allow[kind])
	}

	for list, size := range sizes {
		listSize.Set(l, float64(size), list)
	}
}

// Wake makes Run read at once.
func (l *Lists) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run keeps the lists current until ctx ends and calls changed after entries changed. While the database is down what was
// known stays in force.
func (l *Lists) Run(ctx context.Context, changed func(context.Context)) error {
	ticker := time.NewTicker(readEvery)
	defer ticker.Stop()
	defer listsRead.Leave(l)
	defer listSize.Leave(l)
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-l.wake:
		}

		moved, err := l.Read(ctx)
		if err != nil && ctx.Err() == nil && !failing {
			l.options.Logger.WarnContext(ctx, "lists could not be read; what was known stays in force", "error", err)
		}

		failing = err != nil
		if moved {
			changed(ctx)
		}
	}
}

// Paused reports whether the operator lets an agent rest.
func (l *Lists) Paused(agent string) bool {
	l.table.RLock()
	defer l.table.RUnlock()
	_, paused := l.table.paused[strings.ToLower(agent)]
	return paused
}

// PausedAll says since when and why the operator lets all agents wait with their work.
func (l *Lists) PausedAll() (exchange.ListEntry, bool) {
	l.table.RLock()
	defer l.table.RUnlock()
	entry, paused := l.table.paused[exchange.AllAgents]
	return entry, paused
}

// Stopped says since when a sender wants to hear nothing from an agent.
func (l *Lists) Stopped(agent, principal string) (time.Time, bool) {
	l.table.RLock()
	defer l.table.RUnlock()
	if len(l.table.stops) == 0 {
		return time.Time{}, false
	}
	e, found := l.table.stops[stopKey{strings.ToLower(agent), principal}]
	return e.CreatedAt, found
}

// Note takes over a stop word, or its end, that this process has just written, before the next Read.
func (l *Lists) Note(e exchange.ListEntry, removed bool) {
	l.table.Lock()
	defer l.table.Unlock()
	if old, known := l.table.stops[stopKey{strings.ToLower(e.Agent), e.Target}]; known {
		l.table.drop(old) // the row keeps its older id
	}
	if !removed {
		l.table.add(e)
	}
}
