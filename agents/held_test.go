package agents_test

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"testing"

	"inbox/agents"
	"inbox/exchange"
	"inbox/normalized"
)

func held(name string, ended *atomic.Int64) agents.Entry {
	silent := agents.Func(func(context.Context, agents.Turn) iter.Seq2[normalized.Delta, error] { return nil })
	return agents.Entry{
		Agent: silent, Profile: exchange.AgentProfile{Name: name, Address: "@" + name + "@agents.test"},
		Held: agents.NewHeld(func() { ended.Add(1) }),
	}
}

func tableOf(t *testing.T, entries ...agents.Entry) *agents.Table {
	t.Helper()
	table, err := agents.NewTable(entries...)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestWhatAnAgentHoldsEndsAfterItsLastRun: a table that is replaced does not end what a run uses, nor what the next one has, too.
func TestWhatAnAgentHoldsEndsAfterItsLastRun(t *testing.T) {
	var keptEnded, goneEnded atomic.Int64
	kept, gone := held("kept", &keptEnded), held("gone", &goneEnded)
	var current atomic.Pointer[agents.Table]
	first := tableOf(t, kept, gone)
	first.Hold()
	current.Store(first)
	registry := agents.RegistryOf(current.Load)

	_, release, found := registry.Acquire("GONE")
	if !found {
		t.Fatal("the agent is not found")
	}

	second := tableOf(t, kept)
	second.Hold()
	current.Store(second)
	first.Release()
	if _, _, found := registry.Acquire("gone"); found {
		t.Error("an agent is found that is not in the table of now")
	}
	if goneEnded.Load() != 0 || keptEnded.Load() != 0 {
		t.Error("it ended during its run")
	}

	release()
	if goneEnded.Load() != 1 || keptEnded.Load() != 0 {
		t.Errorf("ended %d and %d times, want once and never", goneEnded.Load(), keptEnded.Load())
	}

	unused := held("unused", &goneEnded)
	unused.Held.Discard()
	kept.Held.Discard() // the table has it
	if goneEnded.Load() != 2 || keptEnded.Load() != 0 {
		t.Errorf("after Discard: ended %d and %d times", goneEnded.Load(), keptEnded.Load())
	}
}

// TestAcquireWhileTablesChange: no run gets an agent that has ended, and each ends once.
func TestAcquireWhileTablesChange(t *testing.T) {
	var made, ended atomic.Int64
	var current atomic.Pointer[agents.Table]
	fresh := func() *agents.Table {
		made.Add(1)
		var closed atomic.Bool
		entry := held("a", &ended)
		entry.Held = agents.NewHeld(func() { closed.Store(true); ended.Add(1) })
		entry.Agent = agents.Func(func(context.Context, agents.Turn) iter.Seq2[normalized.Delta, error] {
			if closed.Load() {
				t.Error("an agent runs that has ended")
			}
			return nil
		})
		table := tableOf(t, entry)
		table.Hold()
		return table
	}
	current.Store(fresh())
	registry := agents.RegistryOf(current.Load)

	var working sync.WaitGroup
	for range 4 {
		working.Go(func() {
			for range 2000 {
				entry, release, found := registry.Acquire("a")
				if !found {
					t.Error("the agent is not found")
				} else {
					entry.Agent.Handle(t.Context(), agents.Turn{})
				}
				release()
			}
		})
	}
	working.Go(func() {
		for range 500 {
			next := fresh()
			current.Swap(next).Release()
		}
	})
	working.Wait()
	current.Load().Release()
	if made.Load() != ended.Load() {
		t.Errorf("%d were made and %d ended", made.Load(), ended.Load())
	}
}
