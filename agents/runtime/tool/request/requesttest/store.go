// Package requesttest is the conformance suite of request.Store: what lifecycles, programs and waiting runs rely on
// whatever keeps the requests. It is for tests only.
package requesttest

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
)

// Request is a pending request of the suite, normalized.
func Request(t *testing.T, raw map[string]any) map[string]any {
	t.Helper()
	normalized, err := request.Normalize(raw)
	if err != nil {
		t.Fatal(err)
	}
	return normalized
}

// Store runs the suite; every test gets an empty store. own prepares the raw form of a request for the store, where that
// keeps only requests of its own, such as those of turns that are there; nil = it takes any.
func Store(t *testing.T, empty func(t *testing.T) (store request.Store, own func(raw map[string]any) map[string]any)) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, *bench){
		"keeps a request": keeps, "knows nothing of others": unknown, "lets one transition win": transitions,
		"lets one transition win under load": underLoad, "keeps the result": keepsResult, "times out without a result": timesOut,
		"lists what is pending, oldest first": lists, "lists what is due": due, "gives copies": copies,
		"refuses what is too large": refusesLarge, "is led by a lifecycle": lifecycle,
	} {
		t.Run(name, func(t *testing.T) {
			store, own := empty(t)
			if own == nil {
				own = func(raw map[string]any) map[string]any { return raw }
			}
			test(t, &bench{store: store, own: own})
		})
	}
}

type bench struct {
	store request.Store
	own   func(map[string]any) map[string]any
}

func (b *bench) put(t *testing.T, raw map[string]any) map[string]any {
	t.Helper()
	if raw["tool_call_id"] == nil {
		raw["tool_call_id"] = "call " + fmt.Sprint(raw["request_id"])
	}
	if raw["tool_name"] == nil {
		raw["tool_name"] = "client/pick"
	}

	normalized := Request(t, b.own(raw))
	must(t, b.store.Create(t.Context(), normalized))
	return normalized
}

func (b *bench) get(t *testing.T, id string) map[string]any {
	t.Helper()
	found, err := b.store.Get(t.Context(), id)
	must(t, err)
	return found
}

func (b *bench) pending(t *testing.T, query request.Query) []string {
	t.Helper()
	found, err := b.store.RecentPending(t.Context(), query)
	must(t, err)
	ids := []string{}
	for _, one := range found {
		ids = append(ids, value.Text(one["request_id"]))
	}
	return ids
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func same(t *testing.T, want, got any) {
	t.Helper()
	if !value.Equal(want, got) {
		t.Errorf("want %s\ngot  %s", value.EncodeText(want), value.EncodeText(got))
	}
}

func keeps(t *testing.T, b *bench) {
	put := b.put(t, map[string]any{
		"request_id": "one", "parameters": map[string]any{"text": "a<b>\u2028\u0000", "list": []any{1, 1.5, nil, true}},
		"timeout_at": "2126-01-02T15:04:05Z", "runtime": map[string]any{"environment": "runtime_local"}, "metadata": map[string]any{"turn_count": 2},
	})

	got := b.get(t, "one")
	if !request.Pending(got) {
		t.Errorf("it is %v", got["status"])
	}

	normalized, err := request.Normalize(got)
	must(t, err)
	same(t, put, normalized)
}

func unknown(t *testing.T, b *bench) {
	for _, id := range []string{"none", "", "with\x00nul", strings.Repeat("x", 5000)} {
		if found := b.get(t, id); found != nil {
			t.Errorf("there is %v", found)
		}
		won, err := b.store.TransitionPending(t.Context(), id, request.StatusTimeout, nil)
		if won || err != nil {
			t.Errorf("transition of %.20q: %t, %v", id, won, err)
		}
	}
}

func result(text string) map[string]any {
	return map[string]any{
		"status": request.StatusSubmitted, "request_id": "one", "tool_name": "client/pick", "success": true,
		"metadata": map[string]any{}, "result": map[string]any{"value": text},
	}
}

func transitions(t *testing.T, b *bench) {
	b.put(t, map[string]any{"request_id": "one"})
	first, err := b.store.TransitionPending(t.Context(), "one", request.StatusCompleted, result("first"))
	must(t, err)
	second, err := b.store.TransitionPending(t.Context(), "one", request.StatusTimeout, nil)
	must(t, err)

	if !first || second {
		t.Errorf("first %t, second %t", first, second)
	}

	got := b.get(t, "one")
	same(t, result("first"), got["result"])

	if got["status"] != request.StatusCompleted {
		t.Errorf("it is %v", got["status"])
	}
}

func underLoad(t *testing.T, b *bench) {
	b.put(t, map[string]any{"request_id": "one"})
	var wins atomic.Int32
	var group sync.WaitGroup
	for number := range 8 {
		group.Go(func() {
			status, value := request.StatusCompleted, result(fmt.Sprint(number))
			if number%2 == 0 {
				status, value = request.StatusTimeout, nil
			}

			won, err := b.store.TransitionPending(t.Context(), "one", status, value)
			if err != nil {
				t.Error(err)
			}
			if won {
				wins.Add(1)
			}
		})
	}

	group.Wait()
	if wins.Load() != 1 {
		t.Errorf("%d transitions won", wins.Load())
	}
}

func keepsResult(t *testing.T, b *bench) {
	b.put(t, map[string]any{"request_id": "one"})
	want := result("<&>\u2029é\U0001F600")
	_, err := b.store.TransitionPending(t.Context(), "one", request.StatusCompleted, want)
	must(t, err)
	same(t, want, b.get(t, "one")["result"])

	if left := b.pending(t, request.Query{}); len(left) > 0 {
		t.Errorf("pending: %v", left)
	}

	outcome, ended, err := request.Outcome(b.get(t, "one"))
	must(t, err)

	if !ended {
		t.Error("it has no outcome")
	}

	same(t, want, outcome)
}

func timesOut(t *testing.T, b *bench) {
	b.put(t, map[string]any{"request_id": "one"})
	_, err := b.store.TransitionPending(t.Context(), "one", request.StatusTimeout, nil)
	must(t, err)
	got := b.get(t, "one")
	if got["status"] != request.StatusTimeout || got["result"] != nil {
		t.Errorf("it is %v with %v", got["status"], got["result"])
	}

	outcome, ended, err := request.Outcome(got)
	if err != nil || !ended || !value.Equal(outcome["success"], false) || outcome["error"] != "Runtime tool request timed out." {
		t.Errorf("outcome %v, %t, %v", outcome, ended, err)
	}
}

func lists(t *testing.T, b *bench) {
	before := time.Now()
	b.put(t, map[string]any{"request_id": "one"})
	b.put(t, map[string]any{"request_id": "two", "tool_name": "client/put"})
	b.put(t, map[string]any{"request_id": "three"})
	run := value.Text(b.get(t, "one")["run_id"])
	_, err := b.store.TransitionPending(t.Context(), "one", request.StatusTimeout, nil)
	must(t, err)

	for _, c := range []struct {
		query request.Query
		want  []string
	}{
		{request.Query{}, []string{"two", "three"}},
		{request.Query{Limit: 1}, []string{"two"}},
		{request.Query{ToolName: "client/put"}, []string{"two"}},
		{request.Query{RunID: run, ToolName: "client/pick"}, []string{"three"}},
		{request.Query{RunID: "another"}, []string{}},
		{request.Query{After: before.Add(-time.Minute)}, []string{"two", "three"}},
		{request.Query{After: before.Add(time.Hour)}, []string{}},
		{request.Query{Before: before.Add(-time.Minute)}, []string{}},
	} {
		if difference := cmp.Diff(c.want, b.pending(t, c.query)); difference != "" {
			t.Errorf("%+v: %s", c.query, difference)
		}
	}
}

func due(t *testing.T, b *bench) {
	now := time.Now()
	b.put(t, map[string]any{"request_id": "never"})
	b.put(t, map[string]any{"request_id": "later", "timeout_at": now.Add(time.Hour).UTC().Format(time.RFC3339Nano)})
	b.put(t, map[string]any{"request_id": "now", "timeout_at": now.UTC().Add(-time.Second).Format(time.DateTime)})
	if got := b.pending(t, request.Query{DueBy: now}); !cmp.Equal(got, []string{"now"}) {
		t.Errorf("due: %v", got)
	}
}

func copies(t *testing.T, b *bench) {
	b.put(t, map[string]any{"request_id": "one"})
	got := b.get(t, "one")
	got["status"] = request.StatusCompleted
	value.Assoc(got["parameters"])["changed"] = true
	if again := b.get(t, "one"); !request.Pending(again) || len(value.Assoc(again["parameters"])) > 0 {
		t.Errorf("the store gave its own record away: %v", again)
	}
}

func refusesLarge(t *testing.T, b *bench) {
	b.put(t, map[string]any{"request_id": "one"})
	large := result(strings.Repeat("x", 2*request.MaxRecordBytes))
	won, err := b.store.TransitionPending(t.Context(), "one", request.StatusCompleted, large)
	if won || err == nil {
		t.Errorf("a result over the limit: %t, %v", won, err)
	}
	if !request.Pending(b.get(t, "one")) {
		t.Error("it is not pending any more")
	}
}

func lifecycle(t *testing.T, b *bench) {
	b.put(t, map[string]any{"request_id": "one"})
	b.put(t, map[string]any{"request_id": "two", "timeout_at": time.Now().Add(-time.Minute).UTC().Format(time.RFC3339)})
	led := request.Lifecycle{Store: b.store}
	first, err := led.Submit(t.Context(), map[string]any{"request_id": "one", "result": "done"}, nil, nil)
	must(t, err)
	again, err := led.Submit(t.Context(), map[string]any{"request_id": "one", "result": "other"}, nil, nil)
	must(t, err)

	if first.Duplicate || !again.Duplicate {
		t.Errorf("first %t, again %t", first.Duplicate, again.Duplicate)
	}

	same(t, first.Result, again.Result)
	ended, err := led.Expire(t.Context(), time.Now(), nil, nil)
	if err != nil || ended != 1 {
		t.Errorf("%d expired, %v", ended, err)
	}
	if _, err := led.Submit(t.Context(), map[string]any{"request_id": "two", "result": 1}, nil, nil); err == nil {
		t.Error("a result came after the time was over")
	}
}
