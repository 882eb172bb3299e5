package acme

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"inbox/exchange/exchangetest"
)

// TestOneNodeOrders: while a node has the lock of a name, no other node and no other order of the same node gets it.
func TestOneNodeOrders(t *testing.T) {
	documents := exchangetest.NewDocuments()
	one, other := newStorage(documents, slog.New(slog.DiscardHandler)), newStorage(documents, slog.New(slog.DiscardHandler))
	if err := one.Lock(t.Context(), "agents.example"); err != nil {
		t.Fatal(err)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, node := range []*storage{one, other} {
		if err := node.Lock(ended, "agents.example"); !errors.Is(err, context.Canceled) {
			t.Errorf("a second order: %v", err)
		}
	}
	if err := one.Unlock(t.Context(), "agents.example"); err != nil {
		t.Fatal(err)
	}
}
