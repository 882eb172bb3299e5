package pipeline_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"inbox/agents"
	"inbox/engine/moderation"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
)

// forged is a mail that proves nothing.
func forged(i int, address string, size int) exchange.Inbound {
	in := from(fmt.Sprint("forged", i), fmt.Sprint("f", i), fmt.Sprint("thread", i))
	in.Message.Sender.Identities, in.Message.Sender.Verified = nil, false
	in.Message.Sender.AuthMethod = "none"
	in.Original = make([]byte, size)
	copy(in.Original, fmt.Sprint("original ", i))
	in.Client = netip.MustParseAddr(address)
	return in
}

// TestForgedMailLeavesABoundedDisk: what is held is bounded for each network and for all, in number and bytes; a repeat
// is no new message; what leaves hold makes room; senders with proof keep a reserve.
func TestForgedMailLeavesABoundedDisk(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := composed(t, url, func(o *pipeline.Options) {
			o.Limiters.Networks = moderation.NewNetworks([]byte("key"))
			o.Quotas = pipeline.Quotas{
				Sender: pipeline.Usage{Messages: 5, Bytes: 400 << 10}, All: pipeline.Usage{Messages: 8, Bytes: 4 << 20}, Kept: 25,
				HeldFor: 14 * 24 * time.Hour, SilentFor: 30 * 24 * time.Hour, GuestBytes: 300 << 10,
			}
		}, &script{name: "echo", answer: says("hi"), settings: agents.Settings{Unverified: agents.UnverifiedHold}})
		holds := func(in exchange.Inbound, want bool) exchange.Receipt {
			t.Helper()
			receipt, err := e.pipeline.Receive(t.Context(), in)
			if want && (err != nil || receipt.State != exchange.StateHeld) || !want && !fault.Is(err, fault.RateLimited) {
				t.Fatalf("%s (%v), want held: %v", receipt.State, err, want)
			}
			return receipt
		}
		if _, err := e.pipeline.Receive(t.Context(), forged(0, "192.0.2.1", 1<<20)); !fault.Is(err, fault.TooLarge) {
			t.Errorf("%v, want too large", err)
		}
		first := holds(forged(1, "192.0.2.1", 200<<10), true)
		holds(forged(2, "192.0.2.1", 190<<10), true)
		holds(forged(3, "192.0.2.1", 20<<10), false) // too many bytes
		if again, err := e.pipeline.Receive(t.Context(), forged(2, "192.0.2.1", 190<<10)); err != nil || again.New {
			t.Errorf("a repeat is %+v %v", again, err)
		}
		for i := range 3 {
			holds(forged(10+i, "192.0.2.1", 100), true)
		}
		holds(forged(13, "192.0.2.1", 100), false) // too many
		holds(forged(14, "198.51.100.1", 100), true)
		holds(forged(15, "203.0.113.1", 100), false) // three quarters of all
		if used, err := e.store.Unanswered(t.Context()); err != nil || used.Messages != 6 || used.Bytes < 390<<10 || used.Bytes > 400<<10 {
			t.Errorf("%+v %v", used, err)
		}

		automatic := from("ana", "auto", "auto")
		automatic.NoReply = "automatic"
		if receipt := e.receive(t, automatic); receipt.State != exchange.StateSilent {
			t.Errorf("a proven sender's automatic mail is %s", receipt.State)
		}
		turns, err := e.store.Turns(t.Context(), exchange.TurnFilter{States: []string{exchange.StateHeld}})
		if err != nil || len(turns) != 6 {
			t.Fatalf("%d held, %v", len(turns), err)
		}
		for _, turn := range turns {
			if turn.ExpiresAt == nil || turn.ExpiresAt.Sub(turn.AcceptedAt).Round(time.Second) != 14*24*time.Hour || turn.Network == "" {
				t.Errorf("expires %v, network %q", turn.ExpiresAt, turn.Network)
			}
		}
		if err := e.pipeline.Release(t.Context(), first.TurnID); err != nil {
			t.Fatal(err)
		}
		e.settled(t, first.TurnID)
		holds(forged(16, "192.0.2.1", 100), false) // all is full, with the automatic mail
		for _, turn := range turns[:2] {
			if err := e.pipeline.Drop(t.Context(), turn.ID, "spam"); err != nil {
				t.Fatal(err)
			}
		}
		holds(forged(16, "192.0.2.1", 100), true)
	})
}
