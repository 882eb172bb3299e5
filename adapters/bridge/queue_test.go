package bridge_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"inbox/adapters/bridge/contract/contracttest"
	"inbox/exchange"
	"inbox/internal/await"
)

// fill puts items into a queue: "item 1" and so on.
func (b *bridged) fill(client string, count int) {
	b.Helper()
	var group sync.WaitGroup
	numbers := make(chan int)
	for range 32 {
		group.Go(func() {
			for number := range numbers {
				item := contracttest.Item(client, "session")
				item.ID = fmt.Sprint("item ", number)
				if err := b.Store().Bridge(nil).Enqueue(b.Context(), item); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for number := range count {
		numbers <- number + 1
	}
	close(numbers)
	await.Done(b, group.Wait, "the queue to be filled")
}

// TestWorkersLeaseApart has several workers with one token: with leases each item comes to one of them, without to all.
func TestWorkersLeaseApart(t *testing.T) {
	t.Parallel()
	bridgedOnBoth(t, func(b *bridged) {
		const items = 60
		relay := b.token("relay")
		b.fill("relay", items)
		var group sync.WaitGroup
		var mu sync.Mutex
		got := map[string]int{}
		for range 8 {
			group.Go(func() {
				for {
					leased, _ := b.call(relay, http.MethodGet, "/v1/bridge/pending?limit=4&lease=1h", nil, http.StatusOK)["items"].([]any)
					mu.Lock()
					for _, item := range leased {
						got[item.(map[string]any)["queue_id"].(string)]++
					}
					mu.Unlock()
					if len(leased) == 0 {
						return
					}
				}
			})
		}
		await.Done(b, group.Wait, "the end of all workers")
		if len(got) != items {
			b.Errorf("%d of %d items were leased", len(got), items)
		}
		for id, times := range got {
			if times != 1 {
				b.Errorf("%s was leased %d times", id, times)
			}
		}
		if all, _ := b.call(relay, http.MethodGet, "/v1/bridge/pending?limit=1000", nil, http.StatusOK)["items"].([]any); len(all) != items {
			b.Errorf("a lease hides %d items from who wants none", items-len(all))
		}
		for _, bad := range []string{"0", "-1s", "x", "2h"} {
			b.call(relay, http.MethodGet, "/v1/bridge/pending?lease="+bad, nil, http.StatusBadRequest)
		}
	})
}

// TestAcknowledgements acknowledges in part, twice, what belongs to another party and what no one has.
func TestAcknowledgements(t *testing.T) {
	t.Parallel()
	bridgedOnBoth(t, func(b *bridged) {
		relay, other := b.token("relay"), b.token("other")
		b.fill("relay", 5)
		ack := func(token string, want float64, ids ...string) {
			b.Helper()
			if ids == nil {
				ids = []string{}
			}
			if got := b.call(token, http.MethodPost, "/v1/bridge/ack", map[string]any{"queue_ids": ids}, http.StatusOK)["acked"]; got != want {
				b.Errorf("of %v %v were acknowledged, want %v", ids, got, want)
			}
		}
		ack(other, 0, "item 1", "item 2")
		ack(relay, 2, "item 1", "nobody has this", "item 3", "")
		ack(relay, 1, "item 1", "item 2", "item 3")
		ack(relay, 1, "item 4", "item 4")
		ack(relay, 0, "item 4")
		ack(relay, 0)
		ack(relay, 0, strings.Repeat("x", 300), "nul\x00inside")
		b.call(relay, http.MethodPost, "/v1/bridge/ack", map[string]any{}, http.StatusBadRequest)
		b.call(relay, http.MethodPost, "/v1/bridge/ack", map[string]any{"queue_ids": "item 5"}, http.StatusBadRequest)
		b.call(relay, http.MethodPost, "/v1/bridge/ack", map[string]any{"queue_ids": make([]string, 1001)}, http.StatusBadRequest)
		items, _ := b.call(relay, http.MethodGet, "/v1/bridge/pending", nil, http.StatusOK)["items"].([]any)
		if len(items) != 1 || items[0].(map[string]any)["queue_id"] != "item 5" {
			b.Errorf("%v wait", items)
		}
	})
}

// TestScopesAreNamed asks everything with tokens that lack a scope.
func TestScopesAreNamed(t *testing.T) {
	t.Parallel()
	b := newBridged(t, "")
	requests := map[string][]string{
		exchange.BridgeSend:    {"POST /v1/bridge/send", "POST /v1/bridge/queue", "GET /v1/sessions", "POST /v1/sessions", "GET /v1/runs/x", "POST /v1/import"},
		exchange.BridgePending: {"GET /v1/bridge/pending", "GET /v1/bridge/events", "GET /v1/bridge/items/x", "POST /v1/bridge/register"},
		exchange.BridgeAck:     {"POST /v1/bridge/ack", "POST /v1/bridge/items/x/ack"},
	}
	for scope, list := range requests {
		others := slices.DeleteFunc(exchange.AllBridgeScopes(), func(one string) bool { return one == scope })
		token := b.token("without-"+scope, others...)
		for _, one := range list {
			method, path, _ := strings.Cut(one, " ")
			refused := b.call(token, method, path, map[string]any{}, http.StatusForbidden)
			if told, _ := refused["error"].(map[string]any); !strings.Contains(fmt.Sprint(told["message"]), "scope "+scope) {
				b.Errorf("%s: told %v, want the scope %s", one, refused, scope)
			}
		}
	}
}

// TestTokensAreRenewed makes a second token of a name and revokes the first: the queue stays, the streams of the old one end.
func TestTokensAreRenewed(t *testing.T) {
	t.Parallel()
	b := newBridged(t, "")
	old := b.token("relay")
	next, leave := b.stream(old, http.MethodGet, "/v1/bridge/events", "")
	defer leave()
	b.call(old, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "kept"}, http.StatusAccepted)
	if got := next(); !strings.Contains(got, `"content":"kept"`) {
		t.Fatalf("the stream gave %q", got)
	}
	tokens, err := b.Operator().Tokens.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := slices.IndexFunc(tokens, func(one exchange.Token) bool { return one.Name == "relay" })
	renewed := b.token("relay")
	if err := b.Operator().Tokens.Revoke(t.Context(), tokens[first].ID); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != "" { // servers notice within seconds
		t.Errorf("the stream of a revoked token goes on with %q", got)
	}
	b.call(old, http.MethodGet, "/v1/bridge/pending", nil, http.StatusUnauthorized)
	b.pending(renewed, 1)
}

// TestSessionsWithCommas filters by ids that callers chose.
func TestSessionsWithCommas(t *testing.T) {
	t.Parallel()
	b := newBridged(t, "")
	relay := b.token("relay")
	for _, id := range []string{"a,b", "a", "c"} {
		b.call(relay, http.MethodPost, "/v1/bridge/queue", map[string]any{"agent": "echo", "content": "x", "session_id": id}, http.StatusCreated)
	}
	for query, want := range map[string]int{
		"session_id=" + url.QueryEscape("a,b"): 1, "session_ids=a,c": 2, "session_id=a&session_id=c": 2, "session_id=&session_ids=,": 3, "session_id=d": 0,
	} {
		if items, _ := b.call(relay, http.MethodGet, "/v1/bridge/pending?"+query, nil, http.StatusOK)["items"].([]any); len(items) != want {
			t.Errorf("%s finds %d items, want %d", query, len(items), want)
		}
	}
}
