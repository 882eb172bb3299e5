package bridge_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"inbox/agents/bridge"
	"inbox/agents/bridge/bridgetest"
)

func TestMemory(t *testing.T) {
	bridgetest.Store(t, func(*testing.T) bridgetest.Setup {
		store, now := bridge.NewMemory(0, 0), time.Unix(1e9, 0)
		store.SetClock(func() time.Time { return now })
		return bridgetest.Setup{Store: store, Advance: func(passed time.Duration) { now = now.Add(passed) }}
	})
}

func TestMemoryRefusesWhenFull(t *testing.T) {
	store := bridge.NewMemory(2, 2)
	for i, want := range []error{nil, nil, bridge.ErrFull} {
		if err := store.Enqueue(t.Context(), bridgetest.Item("a", fmt.Sprintf("q%d", i))); !errors.Is(err, want) {
			t.Errorf("item %d: %v, want %v", i, err, want)
		}
	}
	if err := store.Enqueue(t.Context(), bridgetest.Item("a", "q1")); err != nil {
		t.Errorf("the repeat of an item was refused: %v", err)
	}
	for client, want := range map[string]error{"b": nil} {
		if err := store.Enqueue(t.Context(), bridgetest.Item(client, "r")); !errors.Is(err, want) {
			t.Error(err)
		}
	}
	if err := store.Enqueue(t.Context(), bridgetest.Item("c", "s")); !errors.Is(err, bridge.ErrFull) {
		t.Errorf("a third queue: %v", err)
	}
	if _, err := store.Ack(t.Context(), "a", []string{"q0", "q1"}); err != nil {
		t.Fatal(err)
	}
	if err := store.Enqueue(t.Context(), bridgetest.Item("c", "s")); err != nil {
		t.Errorf("there is room again: %v", err)
	}
	for _, id := range []string{"a", "b", "a"} {
		if err := store.PutClient(t.Context(), bridge.Client{ID: id}); err != nil {
			t.Error(err)
		}
	}
	if err := store.PutClient(t.Context(), bridge.Client{ID: "c"}); !errors.Is(err, bridge.ErrFull) {
		t.Errorf("a third client: %v", err)
	}
}
