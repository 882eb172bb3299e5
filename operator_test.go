package inbox

import (
	"context"
	"testing"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
)

// stranger is a mail of somebody who proved nothing.
func stranger(id string) exchange.Inbound {
	return exchange.Inbound{
		Original: []byte("original of " + id), Channel: normalized.ViaEmail,
		Route: []byte(`{"v":1,"local":"echo","from":{"name":"","address":"ana@peer.test"},"verified":false}`),
		Message: normalized.Message{
			ID: id + "@peer.test", ThreadID: id, Recipient: "@echo@localhost:8080", ReceivedVia: normalized.ViaEmail,
			Sender:     normalized.Sender{Address: "@ana@peer.test", AuthMethod: normalized.AuthNone},
			Parts:      []normalized.Part{normalized.Text("hello " + id)},
			ReceivedAt: identity.Now(), Raw: normalized.Raw{MediaType: "message/rfc822"},
			RecipientCapabilities: normalized.RecipientCapabilities{
				MentionRelay: normalized.MentionRelay{Kind: normalized.RelayRecipientField, Fields: []string{"to", "cc"}},
			},
		},
	}
}

func TestHeldMessages(t *testing.T) {
	server := startServer(t, "INBOX_AGENTS_0_NAME=echo", "INBOX_AGENTS_0_KIND=echo", "INBOX_AGENTS_0_UNVERIFIED=hold")
	operator := server.Operator()
	ids := map[string]string{}
	for _, name := range []string{"one", "two"} {
		receipt, err := server.pipeline.Receive(t.Context(), stranger(name))
		if err != nil || receipt.State != exchange.StateHeld {
			t.Fatalf("%s: %+v, %v", name, receipt, err)
		}
		ids[name] = receipt.TurnID
	}
	held, err := operator.Held.List(t.Context(), "echo", "", 10)
	if err != nil || len(held) != 2 {
		t.Fatalf("held %v, %v", held, err)
	}
	if other, err := operator.Held.List(t.Context(), "other", "", 10); err != nil || other == nil || len(other) != 0 {
		t.Errorf("held for another agent: %v, %v", other, err)
	}
	if err := operator.Held.Release(t.Context(), ids["one"]); err != nil {
		t.Fatal(err)
	}
	if err := operator.Held.Drop(t.Context(), ids["two"], "spam"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"one": exchange.StateAnswered, "two": exchange.StateRefused} {
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		turn, err := server.pipeline.Wait(ctx, ids[name])
		cancel()
		if err != nil || turn.State != want {
			t.Errorf("%s: %s (%s), %v", name, turn.State, turn.Reason, err)
		}
	}
	if err := operator.Held.Drop(t.Context(), ids["one"], "late"); !fault.Is(err, fault.Conflict) {
		t.Errorf("dropping what was released: %v", err)
	}
	if err := operator.Held.Release(t.Context(), "019a0000-0000-7000-8000-000000000000"); !fault.Is(err, fault.NotFound) {
		t.Errorf("releasing nothing: %v", err)
	}
}
