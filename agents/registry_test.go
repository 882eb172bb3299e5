package agents_test

import (
	"context"
	"iter"
	"sync"
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
	registry := agents.NewRegistry()
	for _, name := range []string{"Echo", "support"} {
		if err := registry.Add(entry(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"Echo", "echo", "ECHO"} {
		if profile, found := registry.Agent(name); !found || profile.Name != "Echo" {
			t.Errorf("Agent(%q) = %q, %v; want the spelling of the operator", name, profile.Name, found)
		}
	}
	if _, found := registry.Lookup("echo2"); found {
		t.Error("Lookup found an agent that was never added")
	}
	profiles := registry.Agents()
	if len(profiles) != 2 || profiles[0].Name != "Echo" || profiles[1].Name != "support" {
		t.Errorf("Agents() = %v, want the order of Add", profiles)
	}
}

func TestRegistryFillsDefaults(t *testing.T) {
	registry := agents.NewRegistry()
	if err := registry.Add(entry("echo")); err != nil {
		t.Fatal(err)
	}
	found, _ := registry.Lookup("echo")
	want := agents.Settings{
		Unverified: agents.UnverifiedHold, TimeLimit: agents.DefaultTimeLimit,
		History: history.DefaultPolicy(), HistoryScope: agents.HistoryThread,
		ApproveReplies: agents.ApproveNever,
		Access:         identity.AccessPolicy{Access: identity.AccessPublic}, MaxHops: agents.DefaultMaxHops, ShowTools: agents.ShowToolsNone,
		AckText: agents.DefaultAckText,
		Retry: agents.RetryPolicy{
			Schedule: agents.DefaultRetrySchedule(), Waiting: agents.DefaultRetryWaiting(), Rate: agents.DefaultRetryRate, Stale: agents.StaleAnswer,
		},
	}
	if diff := cmp.Diff(want, found.Settings); diff != "" {
		t.Error(diff)
	}
}

func TestRegistryRefuses(t *testing.T) {
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
			registry := agents.NewRegistry()
			if err := registry.Add(entry("echo")); err != nil {
				t.Fatal(err)
			}
			refused := entry("fresh")
			test.change(&refused)
			got := fault.Of(registry.Add(refused))
			if got.Kind != test.kind || got.Field != test.field {
				t.Errorf("got %s in field %q (%v), want %s in %q", got.Kind, got.Field, got, test.kind, test.field)
			}
		})
	}
}

func TestRegistryIsSafeForConcurrentUse(t *testing.T) {
	registry := agents.NewRegistry()
	var group sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		group.Go(func() {
			if err := registry.Add(entry(name)); err != nil {
				t.Error(err)
			}
		})
		group.Go(func() { registry.Lookup(name); registry.Agents() })
	}
	await.Done(t, group.Wait, "all who use the registry")
	if got := len(registry.Agents()); got != 4 {
		t.Errorf("%d agents, want 4", got)
	}
}
