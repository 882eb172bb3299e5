package agents_test

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents"
	"inbox/exchange"
	"inbox/history"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
)

var silent = agents.Func(func(context.Context, agents.Turn) iter.Seq2[normalized.Delta, error] {
	return func(func(normalized.Delta, error) bool) {}
})

func entry(name string) agents.Entry {
	return agents.Entry{Agent: silent, Profile: exchange.AgentProfile{Name: name, Address: "@" + name + "@example.org"}}
}

func TestRegistryFindsNamesInAnySpelling(t *testing.T) {
	table := tableOf(t, entry("Echo"), entry("support"))
	registry := agents.RegistryOf(func() *agents.Table { return table })
	for _, name := range []string{"Echo", "echo", "ECHO"} {
		if profile, found := registry.Agent(name); !found || profile.Name != "Echo" {
			t.Errorf("Agent(%q) = %q, %v; want the spelling of the operator", name, profile.Name, found)
		}
	}
	if _, found := registry.Lookup("echo2"); found {
		t.Error("Lookup found an agent that is not in the table")
	}
	profiles := registry.Agents()
	if len(profiles) != 2 || profiles[0].Name != "Echo" || profiles[1].Name != "support" {
		t.Errorf("Agents() = %v, want the order of the table", profiles)
	}
}

func TestTableFillsDefaults(t *testing.T) {
	found, _ := tableOf(t, entry("echo")).Lookup("echo")
	want := agents.Settings{
		Unverified: agents.UnverifiedHold, TimeLimit: agents.DefaultTimeLimit,
		History: history.DefaultPolicy(), HistoryScope: agents.HistoryThread,
		ApproveReplies: agents.ApproveNever,
		Access:         identity.AccessPolicy{Access: identity.AccessPublic}, MaxHops: agents.DefaultMaxHops, ShowTools: agents.ShowToolsNone,
		AckText: agents.DefaultAckText,
		Retry: agents.RetryPolicy{
			Schedule: agents.DefaultRetrySchedule(), Waiting: agents.DefaultRetryWaiting(), Rate: agents.DefaultRetryRate, Probe: agents.DefaultProbe, Stale: agents.StaleAnswer,
		},
	}
	if diff := cmp.Diff(want, found.Settings); diff != "" {
		t.Error(diff)
	}
}

func TestTableRefuses(t *testing.T) {
	tests := map[string]struct {
		change func(*agents.Entry)
		kind   fault.Kind
		field  string
	}{
		"no agent":        {func(e *agents.Entry) { e.Agent = nil }, fault.Malformed, "agent"},
		"no name":         {func(e *agents.Entry) { e.Profile.Name = "" }, fault.Malformed, "name"},
		"name with blank": {func(e *agents.Entry) { e.Profile.Name = "two words" }, fault.Malformed, "name"},
		"no address":      {func(e *agents.Entry) { e.Profile.Address = "" }, fault.Malformed, "address"},
		"foreign address": {func(e *agents.Entry) { e.Profile.Address = "@other@example.org" }, fault.Malformed, "address"},
		"unknown setting": {func(e *agents.Entry) { e.Settings.Unverified = "maybe" }, fault.Malformed, "unverified"},
		"negative limit":  {func(e *agents.Entry) { e.Settings.TimeLimit = -1 }, fault.Malformed, "time_limit"},
		"taken name": {func(e *agents.Entry) {
			e.Profile.Name, e.Profile.Address = "ECHO", "@ECHO@example.org"
		}, fault.Conflict, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			refused := entry("fresh")
			test.change(&refused)
			_, err := agents.NewTable(entry("echo"), refused)
			got := fault.Of(err)
			if got.Kind != test.kind || got.Field != test.field {
				t.Errorf("got %s in field %q (%v), want %s in %q", got.Kind, got.Field, got, test.kind, test.field)
			}
		})
	}
}

// TestRegistryIsSafeForConcurrentUse: who looks while tables take each other's place sees one of them whole.
func TestRegistryIsSafeForConcurrentUse(t *testing.T) {
	tables := []*agents.Table{tableOf(t, entry("a"), entry("b")), tableOf(t, entry("c"), entry("d"), entry("e"))}
	var current atomic.Pointer[agents.Table]
	current.Store(tables[0])
	registry := agents.RegistryOf(current.Load)

	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() { current.Store(tables[i%2]) })
		group.Go(func() {
			profiles := registry.Agents()
			if first := profiles[0].Name; len(profiles) != map[string]int{"a": 2, "c": 3}[first] {
				t.Errorf("%d agents beside %s", len(profiles), first)
			}
			if _, release, found := registry.Acquire(profiles[0].Name); found {
				release()
			}
		})
	}
	await.Done(t, group.Wait, "all who use the registry")
}
