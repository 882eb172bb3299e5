package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
)

// Moderation is what the operator's lists and the limits need.
type Moderation interface {
	PutListEntries(ctx context.Context, entries ...exchange.ListEntry) error
	RemoveListEntry(ctx context.Context, entry exchange.ListEntry) (bool, error)
	ListEntries(ctx context.Context, filter exchange.ListFilter) ([]exchange.ListEntry, error)
	ListChanges(ctx context.Context, version int64, id string, limit int) ([]exchange.ListChange, error)
	AddCounts(ctx context.Context, counts []exchange.Count) ([]exchange.Count, error)
	Counts(ctx context.Context, keys []string) ([]exchange.Count, error)
}

var moderationCases = map[string]func(*testing.T, *probe){
	"entries come back":         entryRoundTrip,
	"filters and pages":         entryFilters,
	"changes in their order":    entryChanges,
	"two writers at once":       entryWriters,
	"unkeepable targets":        entryRefused,
	"counters add up":           countersAddUp,
	"counters of many at once":  countersTogether,
	"counters that nobody knew": countersUnknown,
}

func (p *probe) entry(target string) exchange.ListEntry {
	return exchange.ListEntry{
		ID: newID(), List: exchange.ListBlock, Kind: exchange.TargetHost, Target: target, Effect: exchange.EffectRefuse,
		Reason: "spam", Source: "operator", CreatedAt: p.now,
	}
}

func entryRoundTrip(t *testing.T, p *probe) {
	entry := p.entry("evil.example")
	p.ok(p.Moderation.PutListEntries(t.Context(), entry))
	found, err := p.Moderation.ListEntries(t.Context(), exchange.ListFilter{})
	p.ok(err)
	p.same([]exchange.ListEntry{entry}, found)
	again := p.entry("evil.example")
	again.Effect, again.CreatedAt = exchange.EffectHold, p.now.Add(time.Hour)
	p.ok(p.Moderation.PutListEntries(t.Context(), again))
	entry.Effect = exchange.EffectHold // id and time stay
	found, err = p.Moderation.ListEntries(t.Context(), exchange.ListFilter{})
	p.ok(err)
	p.same([]exchange.ListEntry{entry}, found)

	for i, want := range []bool{true, false} {
		removed, err := p.Moderation.RemoveListEntry(t.Context(), again)
		p.ok(err)
		if removed != want {
			t.Errorf("removal %d: %v", i, removed)
		}
	}

	p.ok(p.Moderation.PutListEntries(t.Context(), again))
	found, err = p.Moderation.ListEntries(t.Context(), exchange.ListFilter{})
	p.ok(err)
	again.ID = entry.ID
	p.same([]exchange.ListEntry{again}, found)
}

func entryFilters(t *testing.T, p *probe) {
	stop := p.entry("peer.example alice")
	stop.List, stop.Kind, stop.Agent, stop.Effect = exchange.ListStop, exchange.TargetPrincipal, "echo", ""
	allow := p.entry("a.example")
	allow.List = exchange.ListAllow
	p.ok(p.Moderation.PutListEntries(t.Context(), p.entry("a.example"), p.entry("b.example"), allow, stop))

	for name, test := range map[string]struct {
		filter exchange.ListFilter
		want   int
	}{
		"all": {exchange.ListFilter{}, 4}, "list": {exchange.ListFilter{List: exchange.ListBlock}, 2}, "target": {exchange.ListFilter{Target: "a.example"}, 2},
		"kind": {exchange.ListFilter{Kind: exchange.TargetPrincipal}, 1}, "agent": {exchange.ListFilter{Agent: "echo"}, 1},
		"limit": {exchange.ListFilter{Limit: 3}, 3}, "before": {exchange.ListFilter{Before: allow.ID}, 1}, "nothing": {exchange.ListFilter{List: "\xff"}, 0},
	} {
		found, err := p.Moderation.ListEntries(t.Context(), test.filter)
		if err != nil || len(found) != test.want {
			t.Errorf("%s: %d, %v", name, len(found), err)
		}
	}
}

func entryChanges(t *testing.T, p *probe) {
	one, two, three := p.entry("1.example"), p.entry("2.example"), p.entry("3.example")
	p.ok(p.Moderation.PutListEntries(t.Context(), one, two))
	p.ok(p.Moderation.PutListEntries(t.Context(), three))
	_, err := p.Moderation.RemoveListEntry(t.Context(), one)
	p.ok(err)
	var seen []string
	version, id := int64(0), ""
	for {
		changes, err := p.Moderation.ListChanges(t.Context(), version, id, 1)
		p.ok(err)
		if len(changes) == 0 {
			break
		}
		version, id = changes[0].Version, changes[0].Entry.ID
		seen = append(seen, fmt.Sprint(changes[0].Entry.Target, " ", changes[0].Removed))
	}

	p.same([]string{"2.example false", "3.example false", "1.example true"}, seen)
	notified := 0
	for _, text := range p.Notified() {
		if text == "lists " {
			notified++
		}
	}

	if notified != 3 {
		t.Errorf("%d notifications", notified)
	}
}

// entryWriters: a reader who has seen a version has seen everything before it.
func entryWriters(t *testing.T, p *probe) {
	const writers, each = 8, 10
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				if err := p.Moderation.PutListEntries(t.Context(), p.entry(fmt.Sprintf("%d.%d.example", w, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}

	seen := map[string]bool{}
	version, id := int64(0), ""
	read := func() {
		changes, err := p.Moderation.ListChanges(t.Context(), version, id, 500)
		p.ok(err)
		for _, change := range changes {
			seen[change.Entry.Target], version, id = true, change.Version, change.Entry.ID
		}
	}

	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()

	for {
		read()
		select {
		case <-done:
			read()
			if len(seen) != writers*each {
				t.Errorf("%d of %d were seen", len(seen), writers*each)
			}
			return
		default:
		}
	}
}

func entryRefused(t *testing.T, p *probe) {
	for _, bad := range unkeepable {
		if err := p.Moderation.PutListEntries(t.Context(), p.entry(bad)); !fault.Is(err, fault.Malformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func countersAddUp(t *testing.T, p *probe) {
	ends := p.now.Add(time.Hour)
	const nodes, rounds = 4, 20
	var group sync.WaitGroup
	for range nodes {
		group.Go(func() {
			for range rounds {
				sums, err := p.Moderation.AddCounts(t.Context(), []exchange.Count{{Key: "b", Amount: 2, Ends: ends}, {Key: "a", Amount: 1, Ends: ends}})
				if err != nil || len(sums) != 2 {
					t.Errorf("%v, %v", sums, err)
				}
			}
		})
	}

	group.Wait()
	sums, err := p.Moderation.Counts(t.Context(), []string{"a", "b", "c"})
	p.ok(err)
	total := map[string]int64{}
	for _, sum := range sums {
		total[sum.Key] = sum.Amount
		if !sum.Ends.Equal(ends) {
			t.Errorf("ends %v", sum.Ends)
		}
	}

	p.same(map[string]int64{"a": nodes * rounds, "b": 2 * nodes * rounds}, total)
}

func countersTogether(t *testing.T, p *probe) {
	counts := make([]exchange.Count, 777)
	for i := range counts {
		counts[i] = exchange.Count{Key: fmt.Sprint("k", i), Amount: int64(i), Ends: p.now.Add(time.Hour)}
	}

	for round := int64(1); round <= 2; round++ {
		sums, err := p.Moderation.AddCounts(t.Context(), counts)
		p.ok(err)

		if len(sums) != len(counts) {
			t.Fatalf("%d sums", len(sums))
		}

		for _, sum := range sums {
			var i int64
			if _, err := fmt.Sscanf(sum.Key, "k%d", &i); err != nil || sum.Amount != round*i {
				t.Fatalf("%+v in round %d", sum, round)
			}
		}
	}
}

func countersUnknown(t *testing.T, p *probe) {
	for _, keys := range [][]string{nil, {"x"}, {"\xff"}} {
		if sums, err := p.Moderation.Counts(t.Context(), keys); err != nil || len(sums) != 0 {
			t.Errorf("%q: %v, %v", keys, sums, err)
		}
	}
	sums, err := p.Moderation.AddCounts(t.Context(), nil)
	if err != nil || len(sums) != 0 {
		t.Errorf("%v, %v", sums, err)
	}
}
