// Package tooltest is the conformance suite of tool.PendingStore: what resolvers and consoles rely on whoever keeps the
// actions. It is for tests only.
package tooltest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/tool"
	"inbox/internal/fault"
)

// Moment is the time at which the suite lets actions begin.
var Moment = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Action is a pending action of the suite: it waits from Moment for an hour.
func Action(id string) tool.PendingAction {
	return tool.PendingAction{
		ActionID: id, Kind: "publish", Summary: "Publish post 1", Preview: map[string]any{"title": "One"},
		ApplyInput: map[string]any{"id": "1"}, Agent: "writer", Creator: "loop", Status: tool.StatePending,
		CreatedAt: Moment.Format(time.RFC3339), ExpiresAt: Moment.Add(time.Hour).Format(time.RFC3339),
		ResolutionMetadata: map[string]any{}, Metadata: map[string]any{"tool_name": "post/publish"},
	}
}

// PendingStore runs the suite; every test gets an empty store.
func PendingStore(t *testing.T, empty func(t *testing.T) tool.PendingStore) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, tool.PendingStore){
		"keeps an action": keepsAction, "refuses another action of the same id": refusesOther,
		"decides once": decidesOnce, "decides once under load": decidesOnceUnderLoad,
		"decides nothing after the time": decidesNothingAfterTime, "expires": expires, "deletes": deletes,
		"lists and counts": listsAndCounts, "records a result once": recordsResultOnce,
	} {
		t.Run(name, func(t *testing.T) { test(t, empty(t)) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func store(t *testing.T, pending tool.PendingStore, ids ...string) {
	t.Helper()
	for _, id := range ids {
		must(t, pending.Store(t.Context(), Action(id)))
	}
}

func get(t *testing.T, pending tool.PendingStore, id string) tool.PendingAction {
	t.Helper()
	action, err := pending.Get(t.Context(), id, true)
	must(t, err)
	return action
}

func accept(id string) tool.Resolution {
	return tool.Resolution{ActionID: id, Decision: tool.StateAccepted, Resolver: "anna", Metadata: map[string]any{"note": "fine"}}
}

func wantKind(t *testing.T, err error, kind fault.Kind) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Errorf("error %v, want a fault of kind %s", err, kind)
	}
}

func keepsAction(t *testing.T, pending tool.PendingStore) {
	store(t, pending, "one", "one")
	if difference := cmp.Diff(Action("one").Object(), get(t, pending, "one").Object()); difference != "" {
		t.Error(difference)
	}
	_, err := pending.Get(t.Context(), "two", true)
	wantKind(t, err, fault.NotFound)
	wantKind(t, pending.Store(t.Context(), tool.PendingAction{ActionID: "three"}), fault.Malformed)
}

func refusesOther(t *testing.T, pending tool.PendingStore) {
	store(t, pending, "one")
	other := Action("one")
	other.Summary = "Delete everything"
	wantKind(t, pending.Store(t.Context(), other), fault.Conflict)
	if got := get(t, pending, "one").Summary; got != "Publish post 1" {
		t.Errorf("summary is now %q", got)
	}
}

func decidesOnce(t *testing.T, pending tool.PendingStore) {
	store(t, pending, "one")
	moment := Moment.Add(time.Minute)
	won, err := pending.RecordResolution(t.Context(), accept("one"), moment)
	must(t, err)
	again, err := pending.RecordResolution(t.Context(), tool.Resolution{ActionID: "one", Decision: tool.StateRejected, Resolver: "ben"}, moment)
	must(t, err)
	unknown, err := pending.RecordResolution(t.Context(), accept("two"), moment)
	must(t, err)
	if !won || again || unknown {
		t.Errorf("first %t, again %t, unknown %t", won, again, unknown)
	}
	action := get(t, pending, "one")
	if action.Status != tool.StateAccepted || action.Resolver != "anna" || action.ResolutionMetadata["note"] != "fine" {
		t.Errorf("kept %+v", action)
	}
	if at, err := tool.ParseTime(action.ResolvedAt); err != nil || !at.Equal(moment) {
		t.Errorf("resolved at %q", action.ResolvedAt)
	}
	_, err = pending.Get(t.Context(), "one", false)
	wantKind(t, err, fault.NotFound)
	_, err = pending.RecordResolution(t.Context(), tool.Resolution{ActionID: "one", Decision: "maybe", Resolver: "ben"}, moment)
	wantKind(t, err, fault.Malformed)
}

func decidesOnceUnderLoad(t *testing.T, pending tool.PendingStore) {
	store(t, pending, "one")
	var wins atomic.Int32
	var deciders sync.WaitGroup
	for index := range 8 {
		deciders.Go(func() {
			resolution := accept("one")
			resolution.Resolver = fmt.Sprintf("person %d", index)
			won, err := pending.RecordResolution(t.Context(), resolution, Moment)
			if err != nil {
				t.Error(err)
			}
			if won {
				wins.Add(1)
			}
		})
	}
	deciders.Wait()
	if wins.Load() != 1 {
		t.Errorf("%d deciders won", wins.Load())
	}
}

func decidesNothingAfterTime(t *testing.T, pending tool.PendingStore) {
	store(t, pending, "one")
	won, err := pending.RecordResolution(t.Context(), accept("one"), Moment.Add(time.Hour))
	must(t, err)
	if won {
		t.Error("an action was accepted when its time was over")
	}
}

func expires(t *testing.T, pending tool.PendingStore) {
	store(t, pending, "one", "two")
	_, err := pending.RecordResolution(t.Context(), accept("two"), Moment)
	must(t, err)
	early, err := pending.Expire(t.Context(), Moment.Add(time.Hour-time.Second))
	must(t, err)
	due, err := pending.Expire(t.Context(), Moment.Add(time.Hour))
	must(t, err)
	if early != 0 || due != 1 {
		t.Errorf("%d expired early, %d when due", early, due)
	}
	if one, two := get(t, pending, "one").Status, get(t, pending, "two").Status; one != tool.StateExpired || two != tool.StateAccepted {
		t.Errorf("states %s and %s", one, two)
	}
}

func deletes(t *testing.T, pending tool.PendingStore) {
	store(t, pending, "one")
	first, err := pending.Delete(t.Context(), "one", "anna", Moment)
	must(t, err)
	second, err := pending.Delete(t.Context(), "one", "anna", Moment)
	must(t, err)
	if action := get(t, pending, "one"); !first || second || action.Status != tool.StateDeleted || action.Resolver != "anna" {
		t.Errorf("first %t, second %t, %+v", first, second, action)
	}
}

func listsAndCounts(t *testing.T, pending tool.PendingStore) {
	store(t, pending, "one", "two", "three")
	other := Action("four")
	other.Kind = "send"
	must(t, pending.Store(t.Context(), other))
	_, err := pending.RecordResolution(t.Context(), accept("two"), Moment)
	must(t, err)
	for _, c := range []struct {
		filter tool.PendingFilter
		want   []string
	}{
		{tool.PendingFilter{}, []string{"one", "three", "four"}},
		{tool.PendingFilter{Kind: "publish"}, []string{"one", "three"}},
		{tool.PendingFilter{Statuses: []string{tool.StateAccepted}, Resolver: "anna"}, []string{"two"}},
		{tool.PendingFilter{Agent: "other"}, []string{}},
		{tool.PendingFilter{Limit: 1, Offset: 1}, []string{"three"}},
		{tool.PendingFilter{Offset: 9}, []string{}},
	} {
		actions, err := pending.List(t.Context(), c.filter)
		must(t, err)
		ids := []string{}
		for _, action := range actions {
			ids = append(ids, action.ActionID)
		}
		if difference := cmp.Diff(c.want, ids); difference != "" {
			t.Errorf("%+v: %s", c.filter, difference)
		}
	}
	summary, err := pending.Summary(t.Context(), tool.PendingFilter{})
	must(t, err)
	want := tool.PendingSummary{Total: 4, ByStatus: map[string]int{"pending": 3, "accepted": 1}, ByKind: map[string]int{"publish": 3, "send": 1}}
	if difference := cmp.Diff(want, summary); difference != "" {
		t.Error(difference)
	}
}

func recordsResultOnce(t *testing.T, pending tool.PendingStore) {
	store(t, pending, "one")
	wantKind(t, pending.RecordResult(t.Context(), "one", "early", ""), fault.Conflict)
	_, err := pending.RecordResolution(t.Context(), accept("one"), Moment)
	must(t, err)
	must(t, pending.RecordResult(t.Context(), "one", map[string]any{"done": true}, ""))
	wantKind(t, pending.RecordResult(t.Context(), "one", nil, "broke"), fault.Conflict)
	wantKind(t, pending.RecordResult(t.Context(), "two", nil, ""), fault.NotFound)
	if action := get(t, pending, "one"); !cmp.Equal(action.ResolutionResult, map[string]any{"done": true}) || action.ResolutionError != "" {
		t.Errorf("kept %v and %q", action.ResolutionResult, action.ResolutionError)
	}
}
