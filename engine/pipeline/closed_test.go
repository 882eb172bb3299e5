package pipeline_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
)

// doorman is a Closed that a test changes.
type doorman struct {
	mu     sync.Mutex
	closed exchange.Closure
	paused bool
}

func (d *doorman) set(closed exchange.Closure, paused bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed, d.paused = closed, paused
}

func (d *doorman) ClosedToGuests() exchange.Closure { return "" }

func (d *doorman) Closed(string) exchange.Closure {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

func (d *doorman) Admit(int64) {}

func (d *doorman) Paused(string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.paused
}

// TestClosedAgents: put off with a time before anything is stored; what was taken waits while its agent is paused.
func TestClosedAgents(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		door := &doorman{}
		front := &script{name: "echo", answer: says("hi")}
		e := composed(t, url, func(o *pipeline.Options) { o.Closed = door }, front)
		for _, reason := range []exchange.Closure{exchange.ClosedPaused, exchange.ClosedBacklog, exchange.ClosedDisk, exchange.ClosedClock} {
			door.set(reason, false)
			_, err := e.pipeline.Receive(t.Context(), from("ana", string(reason), "t"))
			if !fault.Is(err, fault.Unavailable) || fault.Of(err).RetryAfter < time.Minute || fault.Of(err).Public == "" {
				t.Errorf("%s: %v", reason, err)
			}
		}
		if turns, err := e.store.Turns(t.Context(), exchange.TurnFilter{Limit: 10}); err != nil || len(turns) != 0 {
			t.Fatalf("%d turns, %v", len(turns), err)
		}
		door.set("", true)
		for i := range 3 {
			e.receive(t, from("ana", fmt.Sprint(i), fmt.Sprint("t", i)))
		}
		for agent, want := range map[string]int{"": 3, "echo": 3, "ech": 0, "echo2": 0, "ec_o": 0} {
			if waiting, err := e.store.WaitingTurns(t.Context(), agent, 10); err != nil || waiting != want {
				t.Errorf("%d wait for %q (%v), want %d", waiting, agent, err, want)
			}
		}
		if waiting, err := e.store.WaitingTurns(t.Context(), "echo", 2); err != nil || waiting != 2 {
			t.Errorf("counted on to %d, %v", waiting, err)
		}
		if len(front.turns()) != 0 {
			t.Error("a paused agent ran")
		}
		door.set("", false)
		for range 3 {
			e.peer.next(t)
		}
	})
}

// counts is a BacklogStore.
type counts struct {
	mu      sync.Mutex
	waiting map[string]int
}

func (c *counts) WaitingTurns(_ context.Context, agent string, most int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if agent == "broken" {
		return 0, fault.New(fault.Unavailable, "down")
	}
	return min(c.waiting[agent], most), nil
}

func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counts{waiting: map[string]int{"": 5, "a": 4, "b": 1}}
		backlog := pipeline.NewBacklog(store, 4, func() []string { return []string{"a", "b"} }, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- backlog.Run(ctx) }()
		if backlog.Full("a") {
			t.Error("full before anything was counted")
		}
		<-time.After(3 * time.Second)
		synctest.Wait()
		if !backlog.Full("a") || backlog.Full("b") {
			t.Errorf("a full %v, b full %v", backlog.Full("a"), backlog.Full("b"))
		}
		store.mu.Lock()
		store.waiting[""] = 3
		store.mu.Unlock()
		<-time.After(3 * time.Second)
		synctest.Wait()
		if backlog.Full("a") {
			t.Error("a stays full")
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
