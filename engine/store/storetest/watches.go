package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue/queuetest"
)

// Watches is what an adapter with webhooks needs.
type Watches interface {
	PutWatch(ctx context.Context, watch exchange.Watch) error
	Watches(ctx context.Context, agent, principal, reference string) ([]exchange.Watch, error)
	Watch(ctx context.Context, id string) (exchange.Watch, bool, error)
	DeleteWatch(ctx context.Context, id string) error
}

var watchCases = map[string]func(*testing.T, *probe){
	"belong to one principal": watchOwner,
	"are bounded":             watchBounds,
	"hear of every change":    watchChanges,
	"end with their token":    watchRevoked,
}

func (p *probe) watch(turn exchange.TurnRecord, name string) exchange.Watch {
	p.now = p.now.Add(time.Millisecond)
	return exchange.Watch{
		ID: newID(), Agent: turn.Agent, Principal: turn.Principal, Reference: turn.Reference, Name: name,
		Data: json.RawMessage(`{"url":"https://peer.example/` + name + `"}`), CreatedAt: p.now,
	}
}

func (p *probe) watchJobs() (changes []exchange.WatchJob) {
	p.Helper()
	jobs, err := queuetest.Claim(p.Context(), p.Queue, "node", exchange.WatchKind, 10, time.Hour)
	p.ok(err)
	for _, job := range jobs {
		var change exchange.WatchJob
		p.ok(json.Unmarshal([]byte(job.Payload), &change))
		changes = append(changes, change)
	}
	return changes
}

func watchOwner(t *testing.T, p *probe) {
	turn := p.message("m1")
	turn.Reference = "task 1"
	watch := p.watch(turn, "one")
	p.ok(p.Watched.PutWatch(t.Context(), watch))
	again := watch
	again.ID, again.Data = newID(), json.RawMessage(`{"url":"https://peer.example/new"}`)
	p.ok(p.Watched.PutWatch(t.Context(), again))
	watch.Data = again.Data

	for _, c := range []struct {
		agent, principal, reference string
		want                        []exchange.Watch
	}{
		{"echo", turn.Principal, "task 1", []exchange.Watch{watch}}, {"other", turn.Principal, "task 1", nil},
		{"echo", "peer.example bob", "task 1", nil}, {"echo", turn.Principal, "task 2", nil},
	} {
		found, err := p.Watched.Watches(t.Context(), c.agent, c.principal, c.reference)
		p.ok(err)
		p.same(c.want, found)
	}

	p.ok(p.Watched.DeleteWatch(t.Context(), watch.ID))
	p.ok(p.Watched.DeleteWatch(t.Context(), watch.ID))

	if _, found, err := p.Watched.Watch(t.Context(), watch.ID); found || err != nil {
		t.Errorf("a deleted watch: %v, %v", found, err)
	}
}

// watchRevoked: a revoked token takes its own webhooks along, and all nodes are told.
func watchRevoked(t *testing.T, p *probe) {
	token := exchange.Token{ID: newID(), Name: "ann", Hash: "ff", CreatedAt: p.now}
	p.ok(p.Records.CreateToken(t.Context(), token))
	turn := p.message("m1")
	turn.Reference = "task 1"
	mine, other := p.watch(turn, "one"), p.watch(turn, "two")
	mine.Principal = "inbox.example token:" + token.ID
	p.ok(p.Watched.PutWatch(t.Context(), mine))
	p.ok(p.Watched.PutWatch(t.Context(), other))

	p.ok(p.Records.RevokeToken(t.Context(), token.ID))
	if _, found, err := p.Watched.Watch(t.Context(), mine.ID); found || err != nil {
		t.Errorf("the webhook of a revoked token: %v, %v", found, err)
	}
	if _, found, err := p.Watched.Watch(t.Context(), other.ID); !found || err != nil {
		t.Errorf("another one: %v, %v", found, err)
	}
}

func watchBounds(t *testing.T, p *probe) {
	turn := p.message("m1")
	turn.Reference = "task 1"

	for i := range exchange.MaxWatches {
		p.ok(p.Watched.PutWatch(t.Context(), p.watch(turn, fmt.Sprint(i))))
	}

	p.ok(p.Watched.PutWatch(t.Context(), p.watch(turn, "0"))) // in place of another
	if err := p.Watched.PutWatch(t.Context(), p.watch(turn, "more")); !fault.Is(err, fault.Conflict) {
		t.Errorf("one too many: %v, want a conflict", err)
	}

	turn.Reference = "task 2"
	p.ok(p.Watched.PutWatch(t.Context(), p.watch(turn, "more")))
}

func watchChanges(t *testing.T, p *probe) {
	early, late := p.message("m1"), p.message("m2")
	early.Reference, late.Reference = "task 1", "task 2"
	first := p.watch(early, "before the turn")
	p.ok(p.Watched.PutWatch(t.Context(), first))
	unwatched := p.message("m3")
	p.insert(early, late, unwatched)
	second := p.watch(late, "after the turn")
	p.ok(p.Watched.PutWatch(t.Context(), second))

	for _, turn := range []exchange.TurnRecord{early, late, unwatched} {
		p.moveTurn(turn, exchange.StateRunning)
		p.moveTurn(turn, exchange.StateFailed) // it runs already: nothing moves, nothing is told
	}

	jobs := p.watchJobs()
	want := []exchange.WatchJob{
		{WatchID: first.ID, TurnID: early.ID, State: exchange.StateRunning, At: p.now},
		{WatchID: second.ID, TurnID: late.ID, State: exchange.StateRunning, At: p.now},
	}

	p.same(want, jobs)
}
