// Package contracttest has the conformance suites of contract.Store and contract.Sessions, and their recorded cases: what
// bridges and connectors rely on, whatever keeps the rows. It is for tests only.
package contracttest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/adapters/bridge/contract"
)

// Setup is an empty store with its clock.
type Setup struct {
	Store   contract.Store
	Advance func(time.Duration) // moves the clock that the store reads
}

// Store runs the suite; every test gets an empty store.
func Store(t *testing.T, empty func(t *testing.T) Setup) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Setup){
		"keeps clients": keepsClients, "gives items in order until they are acknowledged": givesInOrder,
		"replaces in place": replacesInPlace, "refuses the id of another client": refusesForeign, "filters": filters,
		"attempts remove nothing": attemptsRemoveNothing, "acknowledges own items only": acksOwn, "leases": leases,
		"a client that dies gets everything again": clientDies, "filters sessions": filtersSessions, "digits are an id": digits, "acknowledges once under load": acksOnceUnderLoad, "one owner under load": oneOwnerUnderLoad,
	} {
		t.Run(name, func(t *testing.T) { test(t, empty(t)) })
	}
}

// Item is an item of the suite.
func Item(client, id string) contract.Item {
	return contract.Item{
		ID: id, ClientID: client, ConnectorID: "slack", Agent: "helper", SessionID: "s1", Role: "assistant",
		Content: "text of " + id, Completed: true, CreatedAt: "2026-11-21T12:00:00+00:00", Status: contract.Pending,
		Metadata: map[string]any{"turn": "t1"},
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func enqueue(t *testing.T, s Setup, client string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		must(t, s.Store.Enqueue(t.Context(), Item(client, id)))
	}
}

func ids(items []contract.Item) []string {
	found := []string{}
	for _, item := range items {
		found = append(found, item.ID)
	}
	return found
}

func pending(t *testing.T, s Setup, client string, want ...string) []contract.Item {
	t.Helper()
	items, err := s.Store.Pending(t.Context(), client, contract.Query{Limit: 100})
	must(t, err)
	if !slices.Equal(ids(items), want) {
		t.Errorf("pending of %s = %v, want %v", client, ids(items), want)
	}
	return items
}

func ack(t *testing.T, s Setup, client string, want int, ids ...string) {
	t.Helper()
	removed, err := s.Store.Ack(t.Context(), client, ids)
	must(t, err)
	if removed != want {
		t.Errorf("ack of %v by %s removed %d, want %d", ids, client, removed, want)
	}
}

func keepsClients(t *testing.T, s Setup) {
	first := contract.Client{ID: "a", ConnectorID: "slack", CallbackURL: "https://a.example/", Context: map[string]any{"x": "y"}, RegisteredAt: "2026-11-21T12:00:00+00:00"}
	second := contract.Client{ID: "a", Context: map[string]any{}, RegisteredAt: "2026-11-21T13:00:00+00:00"}
	for _, want := range []contract.Client{first, second} {
		must(t, s.Store.PutClient(t.Context(), want))
		got, known, err := s.Store.Client(t.Context(), "a")
		must(t, err)
		if difference := cmp.Diff(want, got); !known || difference != "" {
			t.Errorf("known %v, difference %s", known, difference)
		}
	}

	if _, known, err := s.Store.Client(t.Context(), "b"); known || err != nil {
		t.Errorf("client b is known %v, %v", known, err)
	}
}

func givesInOrder(t *testing.T, s Setup) {
	pending(t, s, "a")
	enqueue(t, s, "a", "q2", "q1", "q3")
	enqueue(t, s, "b", "r1")
	items := pending(t, s, "a", "q2", "q1", "q3")
	if difference := cmp.Diff(Item("a", "q2"), items[0]); difference != "" {
		t.Error(difference)
	}

	pending(t, s, "a", "q2", "q1", "q3")
	ack(t, s, "a", 1, "q1")
	pending(t, s, "a", "q2", "q3")
	pending(t, s, "b", "r1")
	enqueue(t, s, "a", "q1")
	pending(t, s, "a", "q2", "q3", "q1")
}

func replacesInPlace(t *testing.T, s Setup) {
	enqueue(t, s, "a", "q1", "q2")
	changed := Item("a", "q1")
	changed.Content, changed.SessionID, changed.Status = "another", "", contract.Delivered
	must(t, s.Store.Enqueue(t.Context(), changed))
	if difference := cmp.Diff(changed, pending(t, s, "a", "q1", "q2")[0]); difference != "" {
		t.Error(difference)
	}
}

func refusesForeign(t *testing.T, s Setup) {
	enqueue(t, s, "a", "q1")
	if err := s.Store.Enqueue(t.Context(), Item("b", "q1")); !errors.Is(err, contract.ErrForeign) {
		t.Errorf("error %v, want ErrForeign", err)
	}
	pending(t, s, "a", "q1")
	pending(t, s, "b")
	ack(t, s, "a", 1, "q1")
	enqueue(t, s, "b", "q1")
	pending(t, s, "b", "q1")
}

func filters(t *testing.T, s Setup) {
	for id, session := range map[string]string{"q1": "s1", "q2": "", "q3": "s3"} {
		item := Item("a", id)
		item.SessionID = session
		must(t, s.Store.Enqueue(t.Context(), item))
	}

	for _, test := range []struct {
		query contract.Query
		want  []string
	}{
		{contract.Query{Limit: 9}, []string{"q1", "q2", "q3"}},
		{contract.Query{Limit: 9, Sessions: []string{"s3", "s1", "s3"}}, []string{"q1", "q3"}},
		{contract.Query{Limit: 9, Sessions: []string{"S1"}}, []string{}},
	} {
		items, err := s.Store.Pending(t.Context(), "a", test.query)
		must(t, err)
		if got := slices.Sorted(slices.Values(ids(items))); !slices.Equal(got, test.want) {
			t.Errorf("%+v gives %v, want %v", test.query, got, test.want)
		}
	}

	limited, err := s.Store.Pending(t.Context(), "a", contract.Query{Limit: 2})
	must(t, err)

	if len(limited) != 2 {
		t.Errorf("%d items, want the limit of 2", len(limited))
	}
}

func attemptsRemoveNothing(t *testing.T, s Setup) {
	enqueue(t, s, "a", "q1")
	for _, status := range []contract.Status{contract.Failed, contract.Delivered} {
		kept, err := s.Store.Attempted(t.Context(), "a", "q1", status)
		must(t, err)
		if items := pending(t, s, "a", "q1"); !kept || items[0].Status != status {
			t.Errorf("kept %v, status %q, want %q", kept, items[0].Status, status)
		}
	}

	for client, id := range map[string]string{"b": "q1", "a": "q2"} {
		if kept, err := s.Store.Attempted(t.Context(), client, id, contract.Failed); kept || err != nil {
			t.Errorf("attempt for %s of %s: %v, %v", id, client, kept, err)
		}
	}

	if items := pending(t, s, "a", "q1"); items[0].Status != contract.Delivered {
		t.Errorf("another client changed the status to %q", items[0].Status)
	}
}

func acksOwn(t *testing.T, s Setup) {
	enqueue(t, s, "a", "q1", "q2")
	ack(t, s, "b", 0, "q1")
	ack(t, s, "a", 0)
	ack(t, s, "a", 2, "q1", "q1", "nothing", "", "q2")
	ack(t, s, "a", 0, "q1")
	pending(t, s, "a")
}

func leases(t *testing.T, s Setup) {
	enqueue(t, s, "a", "q1", "q2", "q3")
	lease := func(limit int, want ...string) {
		t.Helper()
		items, err := s.Store.Lease(t.Context(), "a", contract.Query{Limit: limit}, time.Minute)
		must(t, err)
		if !slices.Equal(ids(items), want) {
			t.Errorf("lease gives %v, want %v", ids(items), want)
		}
	}

	lease(2, "q1", "q2")
	lease(9, "q3")
	lease(9)
	pending(t, s, "a", "q1", "q2", "q3")
	ack(t, s, "a", 1, "q2")
	s.Advance(time.Minute - time.Second)
	lease(9)
	s.Advance(2 * time.Second)
	lease(9, "q1", "q3")
	enqueue(t, s, "a", "q3")
	lease(9, "q3")
}

func digits(t *testing.T, s Setup) {
	enqueue(t, s, "a", "17", "017", "q1")
	pending(t, s, "a", "17", "017", "q1")
	ack(t, s, "a", 1, "17")
	pending(t, s, "a", "017", "q1")
}

func acksOnceUnderLoad(t *testing.T, s Setup) {
	names := []string{}
	for i := range 20 {
		names = append(names, fmt.Sprintf("q%02d", i))
	}

	enqueue(t, s, "a", names...)
	var group sync.WaitGroup
	removed := make([]int, 8)
	for worker := range removed {
		group.Go(func() {
			for _, name := range names {
				count, err := s.Store.Ack(t.Context(), "a", []string{name})
				if err != nil {
					t.Error(err)
				}
				removed[worker] += count
			}
		})
	}

	group.Wait()
	total := 0
	for _, count := range removed {
		total += count
	}

	if total != len(names) {
		t.Errorf("%d items were removed, there were %d", total, len(names))
	}
}

func oneOwnerUnderLoad(t *testing.T, s Setup) {
	var group sync.WaitGroup
	errs := make([]error, 8)
	for worker := range errs {
		group.Go(func() { errs[worker] = s.Store.Enqueue(t.Context(), Item(fmt.Sprintf("c%d", worker), "q1")) })
	}

	group.Wait()
	owners := 0
	for worker, err := range errs {
		items, failed := s.Store.Pending(t.Context(), fmt.Sprintf("c%d", worker), contract.Query{Limit: 9})
		must(t, failed)
		if owners += len(items); (len(items) == 1) != (err == nil) || err != nil && !errors.Is(err, contract.ErrForeign) {
			t.Errorf("worker %d has %d items and got %v", worker, len(items), err)
		}
	}

	if owners != 1 {
		t.Errorf("%d clients own the item", owners)
	}
}

// clientDies is what the protocol is for: a client that dies between reading and acknowledging gets everything again.
func clientDies(t *testing.T, s Setup) {
	b := contract.Bridge{Store: s.Store}
	for _, id := range []string{"q1", "q2", "q3"} {
		if _, err := b.Enqueue(t.Context(), map[string]any{"queue_id": id, "client_id": "cli", "agent": "bot", "content": "hello"}); err != nil {
			t.Fatal(err)
		}
	}

	for range 2 { // the first client dies with the items in its hands
		items, err := b.Pending(t.Context(), "CLI", 0, nil)
		if err != nil || len(items) != 3 {
			t.Fatalf("%d items, %v", len(items), err)
		}
	}

	if kept, err := b.Attempted(t.Context(), "cli", "q1", true); !kept || err != nil {
		t.Errorf("attempt: %v, %v", kept, err)
	}
	if kept, err := b.Attempted(t.Context(), "cli", "q2", false); !kept || err != nil {
		t.Errorf("attempt: %v, %v", kept, err)
	}

	leased, err := b.Lease(t.Context(), "cli", -1, nil, time.Hour)
	if err != nil || len(leased) != 1 {
		t.Errorf("a limit below one leased %d, %v", len(leased), err)
	}

	acked, err := b.Ack(t.Context(), "cli", []string{"q1", "q2", "q3"})
	if err != nil || acked != 3 {
		t.Errorf("acked %d, %v", acked, err)
	}
	if again, _ := b.Ack(t.Context(), "cli", []string{"q1", "q2", "q3"}); again != 0 {
		t.Errorf("acked %d twice", again)
	}
	if items, _ := b.Pending(t.Context(), "cli", 0, nil); len(items) != 0 {
		t.Errorf("%d items after the ack", len(items))
	}
}

func filtersSessions(t *testing.T, s Setup) {
	b := contract.Bridge{Store: s.Store}
	for id, session := range map[string]any{"q1": "s1", "q2": nil} {
		if _, err := b.Enqueue(t.Context(), map[string]any{"queue_id": id, "session_id": session, "client_id": "cli", "agent": "bot", "content": "hello"}); err != nil {
			t.Fatal(err)
		}
	}

	for _, test := range []struct {
		sessions []string
		want     int
	}{{nil, 2}, {[]string{""}, 2}, {[]string{"", "s1"}, 1}, {[]string{"s2"}, 0}} {
		if items, err := b.Pending(t.Context(), "cli", 0, test.sessions); err != nil || len(items) != test.want {
			t.Errorf("sessions %q: %d items, %v", test.sessions, len(items), err)
		}
	}
}
