package storetest

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"inbox/adapters/bridge/contract"
	"inbox/exchange"
	"inbox/internal/queue"
	"inbox/internal/queue/queuetest"
)

// BridgeQueue is what the bridge adapter needs beside contract.Store, whose suite is contracttest.Store.
type BridgeQueue interface {
	contract.Store
	Offer(ctx context.Context, item contract.Item) error
	Item(ctx context.Context, client, id string) (contract.Item, bool, error)
	Register(ctx context.Context, client contract.Client, secret string) error
	ClientSecret(ctx context.Context, id string) (contract.Client, string, bool, error)
}

var bridgeCases = map[string]func(*testing.T, *probe){
	"offer an answer once":           offersOnce,
	"give an item to its client":     givesItem,
	"keep a secret":                  keepsBridgeSecret,
	"call back what is queued":       callsBack,
	"tell who waits for their queue": tellsWaiting,
}

func answerItem(client, id string) contract.Item {
	return contract.Item{
		ID: id, ClientID: client, Agent: "echo", SessionID: "s1", Role: "assistant", Content: "answer " + id, Completed: true,
		CreatedAt: "2026-11-21T12:00:00+00:00", Status: contract.Pending, Metadata: map[string]any{"n": json.Number("1")},
	}
}

func offersOnce(t *testing.T, p *probe) {
	item := answerItem("a", "q1")
	for range 2 {
		p.ok(p.Bridge.Offer(t.Context(), item))
	}

	if removed, err := p.Bridge.Ack(t.Context(), "a", []string{"q1"}); removed != 1 || err != nil {
		t.Fatalf("acknowledged %d, %v", removed, err)
	}

	p.ok(p.Bridge.Offer(t.Context(), item))
	items, err := p.Bridge.Pending(t.Context(), "a", contract.Query{Limit: 9})
	p.ok(err)

	if len(items) != 0 {
		t.Errorf("an answer came back after it was acknowledged: %v", items)
	}
}

func givesItem(t *testing.T, p *probe) {
	p.ok(p.Bridge.Offer(t.Context(), answerItem("a", "q1")))
	for _, c := range []struct {
		client, id string
		want       bool
	}{{"a", "q1", true}, {"b", "q1", false}, {"a", "q2", false}, {"a", "q1\x00", false}} {
		_, found, err := p.Bridge.Item(t.Context(), c.client, c.id)
		if p.ok(err); found != c.want {
			t.Errorf("%s of %s is found %v", c.id, c.client, found)
		}
	}
}

func keepsBridgeSecret(t *testing.T, p *probe) {
	client := contract.Client{ID: "a", CallbackURL: "https://a.example/", Context: map[string]any{}, RegisteredAt: "2026-11-21T12:00:00+00:00"}
	p.ok(p.Bridge.Register(t.Context(), client, "sealed"))
	client.CallbackURL = "https://b.example/"
	p.ok(p.Bridge.PutClient(t.Context(), client))
	got, secret, found, err := p.Bridge.ClientSecret(t.Context(), "a")
	if p.ok(err); !found || secret != "sealed" || got.CallbackURL != client.CallbackURL {
		t.Errorf("found %v, secret %q, client %+v", found, secret, got)
	}
}

func callsBack(t *testing.T, p *probe) {
	p.ok(p.Bridge.Offer(t.Context(), answerItem("a", "before")))
	p.ok(p.Bridge.Register(t.Context(), contract.Client{ID: "a", CallbackURL: "https://a.example/", RegisteredAt: "x"}, ""))
	p.ok(p.Bridge.Offer(t.Context(), answerItem("a", "q1")))
	p.ok(p.Bridge.Offer(t.Context(), answerItem("a", "q1")))
	p.ok(p.Bridge.Enqueue(t.Context(), answerItem("a", "q2")))
	p.ok(p.Bridge.Offer(t.Context(), answerItem("b", "r1")))
	var told []string
	for range 2 { // those of one session are told one after the other
		jobs, err := queuetest.Claim(t.Context(), p.Queue, "node", exchange.BridgeCallbackKind, 10, time.Hour)
		p.ok(err)
		for _, job := range jobs {
			var one exchange.BridgeCallback
			p.ok(json.Unmarshal([]byte(job.Payload), &one))
			told = append(told, one.Client+" "+one.Item)
			p.ok(p.Queue.Settle(t.Context(), job.Lease, queue.Outcome{Kind: queue.Done}))
		}
	}

	if want := []string{"a q1", "a q2"}; !slices.Equal(told, want) {
		t.Errorf("called back %v, want %v", told, want)
	}
}

func tellsWaiting(t *testing.T, p *probe) {
	p.ok(p.Bridge.Offer(t.Context(), answerItem("a", "q1")))
	if told := p.Notified(); !slices.Contains(told, "bridge a") {
		t.Errorf("told %v", told)
	}
}
