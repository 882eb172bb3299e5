package operator

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/operator/lookup"
	"inbox/operator/takeover"
)

// idsOf finds messages of the agent echo.
func idsOf(rows *store.Store) *lookup.Index {
	return lookup.New(rows, func() []string { return []string{"echo"} }, func(context.Context, string) (exchange.Approval, error) {
		return exchange.Approval{}, fault.New(fault.NotFound, "none")
	})
}

// TestAddressee: senders choose the ids of their messages, so an id may fit messages of two people, and the operator must not write to the
// wrong one.
func TestAddressee(t *testing.T) {
	rows := openStore(t)
	takeovers := takeover.New(rows, nil, idsOf(rows))
	say := func(sender, nativeID, thread, state, text string) string {
		t.Helper()
		turn := exchange.TurnRecord{
			ID: uuid.Must(uuid.NewV7()).String(), Agent: "echo", Principal: "inbox.test mailto:" + sender, ThreadID: thread, State: state, Channel: normalized.ViaEmail,
			AcceptedAt: time.Now(), Message: normalized.Message{
				ID: nativeID, ThreadID: thread, Recipient: "@echo@inbox.test", ReceivedVia: normalized.ViaEmail, ReceivedAt: identity.Now(),
				Sender: normalized.Sender{Address: identity.Stated("@" + sender), Identities: []identity.Evidence{{Subject: "mailto:" + sender, Issuer: "inbox.test"}}},
				Parts:  []normalized.Part{normalized.Text(text)},
				Surface: &normalized.Surface{
					Channel: normalized.ViaEmail, To: []normalized.SurfaceRecipient{{Address: "@echo@inbox.test"}, {Address: "@desk@a.example"}},
					Cc: []normalized.SurfaceRecipient{{Address: "@" + sender}, {Address: "@bob@b.example"}, {Address: "@desk@a.example"}},
				},
			},
		}
		if state == exchange.StateWaiting {
			turn.Reason = exchange.WaitingOperator
		}
		if err := rows.InTx(t.Context(), func(tx *store.Tx) error {
			_, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return turn.ID
	}

	first := say("ann@a.example", "first@a.example", "c-ann", exchange.StateWaiting, "My PIN is 4711.")
	second := say("ann@a.example", "second@a.example", "c-ann", exchange.StateAnswered, "Thank you.")
	const reply = "reply-1@inbox.test" // Message-ID of the answer to the first one
	if err := rows.InTx(t.Context(), func(tx *store.Tx) error {
		return tx.InsertReply(t.Context(), exchange.Reply{ID: uuid.Must(uuid.NewV7()).String(), TurnID: first, Agent: "echo", Channel: normalized.ViaEmail}, reply)
	}); err != nil {
		t.Fatal(err)
	}
	say("eve@e.example", reply, "c-eve-4", exchange.StateAnswered, "One that is called like an answer to Ann.")
	say("eve@e.example", "c-ann", "c-eve-2", exchange.StateAnswered, "A message that is called like a conversation of Ann.")
	say("eve@e.example", first, "c-eve-3", exchange.StateAnswered, "One that is called like a message of Ann.")
	other := say("eve@e.example", "first@a.example", "c-eve", exchange.StateAccepted, "What was said before?")

	for _, id := range []string{"first@a.example", "<first@a.example>"} {
		_, err := takeovers.Addressee(t.Context(), lookup.ConversationID{ID: id})
		if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), first+" from @ann@a.example") || !strings.Contains(err.Error(), other+" from @eve@e.example") {
			t.Errorf("%s: %v; want a refusal that lists both messages", id, err)
		}
	}

	messages := Messages{Timelines: rows, Finder: idsOf(rows), Rows: rows}
	if _, err := messages.Show(t.Context(), "<first@a.example>"); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), first+" from @ann@a.example") ||
		!strings.Contains(err.Error(), other+" from @eve@e.example") {
		t.Errorf("show by an id of two senders: %v; want a refusal that lists both messages", err)
	}
	for id, want := range map[string]string{first: first, other: other, "c-ann": second, "second@a.example": second, reply: first} {
		if shown, err := messages.Show(t.Context(), id); err != nil || shown.Turn.ID != want {
			t.Errorf("show %s: %s, %v; want %s", id, shown.Turn.ID, err, want)
		}
	}
	if shown, err := messages.Show(t.Context(), "c-ann"); err != nil || !slices.Equal(shown.Others, []string{first}) {
		t.Errorf("show c-ann names the others %v, %v; want only those of the conversation", shown.Others, err)
	}

	for _, c := range []struct {
		id   lookup.ConversationID
		turn string
		to   string
	}{
		{lookup.ConversationID{ID: first}, first, "@ann@a.example"},
		{lookup.ConversationID{ID: other}, other, "@eve@e.example"},
		{lookup.ConversationID{ID: reply}, first, "@ann@a.example"},
		{lookup.ConversationID{ID: "c-ann"}, first, "@ann@a.example"}, // it waits for the operator
		{lookup.ConversationID{ID: "c-eve", Whole: true}, other, "@eve@e.example"},
	} {
		got, err := takeovers.Addressee(t.Context(), c.id)
		if err != nil || got.TurnID != c.turn || got.To != c.to || !got.Proven || !slices.Equal(got.Also, []string{"@desk@a.example", "@bob@b.example"}) {
			t.Errorf("%+v: %+v, %v; want %s to %s", c.id, got, err, c.turn, c.to)
		}
	}
}
