package inbox_test

import (
	"strings"
	"testing"

	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/operator"
)

// TestBlockedHeldMessagesAreRestored: held messages that a block drops keep their text, are put back on hold once the block is gone, and
// are answered once; those that their sender took back or that an erasure took are not.
func TestBlockedHeldMessagesAreRestored(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]string{"sqlite": "sqlite", "postgres": storetest.Postgres(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := inboxtest.Start(t, withMail, "INBOX_DATABASE_URL="+database, "INBOX_AGENTS_0_NAME=echo", "INBOX_AGENTS_0_KIND=echo", "INBOX_AGENTS_0_UNVERIFIED=hold")
			here := server.Operator()
			ids := map[string]string{}
			for _, name := range []string{"kept", "erased", "withdrawn"} {
				receipt, err := server.Pipeline().Receive(t.Context(), stranger(name))
				if err != nil || receipt.State != exchange.StateHeld {
					t.Fatalf("%s: %+v, %v", name, receipt, err)
				}
				ids[name] = receipt.TurnID
			}
			if _, err := server.Pipeline().Cancel(t.Context(), ids["withdrawn"], "its sender took it back"); err != nil {
				t.Fatal(err)
			}
			if err := here.Held.Restore(t.Context(), ids["kept"]); !fault.Is(err, fault.Conflict) {
				t.Errorf("restoring what is held: %v", err)
			}

			if _, _, err := here.Lists.Add(t.Context(), exchange.ListEntry{List: exchange.ListBlock, Target: "*.peer.test", Reason: "spam"}); err != nil {
				t.Fatal(err)
			}
			var dropped []exchange.TurnRecord
			await.Until(t, "the server drops what is held of the blocked sender", func() bool {
				var err error
				if dropped, err = here.Held.Dropped(t.Context(), "echo", "", 10); err != nil {
					t.Fatal(err)
				}
				return len(dropped) == 2
			})
			for _, turn := range dropped {
				if turn.State != exchange.StateRefused || !strings.Contains(turn.Reason, "spam") || len(turn.Message.Parts) == 0 || turn.ExpiresAt == nil {
					t.Errorf("dropped: %s (%s), %d parts, until %v", turn.State, turn.Reason, len(turn.Message.Parts), turn.ExpiresAt)
				}
			}
			if err := here.Held.Restore(t.Context(), ids["kept"]); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.Of(err).Public, "spam") {
				t.Errorf("restoring a message of a blocked sender: %v", err)
			}

			if err := here.Lists.Remove(t.Context(), exchange.ListEntry{List: exchange.ListBlock, Target: "*.peer.test"}); err != nil {
				t.Fatal(err)
			}
			await.Until(t, "the server reads that the block is gone, and restores", func() bool {
				err := here.Held.Restore(t.Context(), ids["kept"])
				if err != nil && !strings.Contains(fault.Of(err).Public, "spam") {
					t.Fatal(err)
				}
				return err == nil
			})
			for name, id := range map[string]string{"restored already": ids["kept"], "withdrawn": ids["withdrawn"]} {
				if err := here.Held.Restore(t.Context(), id); !fault.Is(err, fault.Conflict) {
					t.Errorf("restoring what is %s: %v", name, err)
				}
			}
			if err := here.Held.Release(t.Context(), ids["kept"]); err != nil {
				t.Fatal(err)
			}
			if turn := server.Settled(ids["kept"]); turn.State != exchange.StateAnswered || turn.Response == nil {
				t.Errorf("the restored message is %s (%s)", turn.State, turn.Reason)
			}

			named, err := here.Persons.Erase(t.Context(), operator.PersonName{Name: "ana@peer.test"}, "a test", nil)
			if err != nil || len(named.Items) != 1 || named.Items[0].NotTaken == nil || len(named.Items[0].NotTaken.Unproven) != 1 {
				t.Errorf("an erasure by an address that nothing proves does not say what it leaves: %+v, %v", named, err)
			}
			if _, err := here.Erasures.Begin(t.Context(), operator.PersonName{Name: "ana@peer.test", Unproven: true}, "a test"); err != nil {
				t.Fatal(err)
			}
			await.Until(t, "the erasure takes what was dropped", func() bool {
				left, err := here.Held.Dropped(t.Context(), "echo", "", 10)
				if err != nil {
					t.Fatal(err)
				}
				return len(left) == 0
			})
			if err := here.Held.Restore(t.Context(), ids["erased"]); err == nil {
				t.Error("an erased message was restored")
			}
		})
	}
}
