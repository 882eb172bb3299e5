package storetest

import (
	"slices"
	"strings"
	"testing"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

var sentCases = map[string]func(*testing.T, *probe){
	"are found by their sender alone": sentOfSender,
	"edits":                           sentEdited,
	"deletions":                       sentDeleted,
	"are erased":                      sentErased,
	"open turns":                      openTurns,
}

func (p *probe) sent(agent, nativeID, principal string) []pipeline.SentMessage {
	p.Helper()
	found, err := p.Pipeline.SentMessages(p.Context(), agent, nativeID, principal)
	p.ok(err)
	return found
}

func sentOfSender(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	other := p.message("m1")
	other.Agent, other.Message.Recipient = "other", "@other@inbox.example"
	p.insert(other)

	for _, c := range []struct {
		agent, id, principal string
		want                 int
	}{
		{"echo", "m1", turn.Principal, 1}, {"other", "m1", turn.Principal, 1}, {"", "m1", turn.Principal, 2},
		{"third", "m1", turn.Principal, 0}, {"echo", "m2", turn.Principal, 0}, {"echo", "m1", "peer.example bob", 0},
		{"echo", "", turn.Principal, 0}, {"echo", "m1\x00", turn.Principal, 0},
	} {
		if found := p.sent(c.agent, c.id, c.principal); len(found) != c.want {
			t.Errorf("%+v: %d found", c, len(found))
		}
	}

	found := p.sent("echo", "m1", turn.Principal)[0]
	p.same(turn.Message, found.Message)
	if found.TurnID != turn.ID || found.State != turn.State || found.Edited || found.Withdrawn {
		t.Errorf("%+v", found)
	}
}

func sentEdited(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	p.answer(turn, "")
	message := turn.Message
	message.Parts = []normalized.Part{normalized.Text("hello, I meant")}
	message.History = []normalized.HistoricalMessage{{ID: "x"}}
	p.tx(func(tx pipeline.Tx) error {
		if err := tx.AmendTurn(t.Context(), turn.ID, message, p.now); err != nil {
			return err
		}
		return tx.AppendEvents(t.Context(), turn.ID, []exchange.Event{{Kind: exchange.EventMessageEdited}})
	})

	message.History = nil
	found := p.sent("echo", "m1", turn.Principal)[0]
	p.same(message, found.Message)
	p.same(message, p.excerpt(pipeline.ThreadQuery{Tail: 9}).Tail[0].Turn.Message)
	if !found.Edited || found.Withdrawn || !p.turn(turn.ID).UpdatedAt.Equal(p.now) {
		t.Errorf("%+v", found)
	}
}

func sentDeleted(t *testing.T, p *probe) {
	turns := p.conversation("aaqsa")
	held := p.message("held")
	held.State = exchange.StateHeld
	p.insert(held)
	withdraw := func(turn exchange.TurnRecord, want bool) {
		t.Helper()
		p.tx(func(tx pipeline.Tx) error {
			there, err := tx.WithdrawTurn(t.Context(), turn.ID, p.now)
			if there != want {
				t.Errorf("%s: %v", turn.Message.ID, there)
			}
			return err
		})
	}

	for _, turn := range turns[:4] {
		withdraw(turn, true)
		withdraw(turn, false)
		if !p.sent("echo", turn.Message.ID, turn.Principal)[0].Withdrawn {
			t.Errorf("%s is still there", turn.Message.ID)
		}
	}

	withdraw(held, false)
	withdraw(exchange.TurnRecord{ID: newID()}, false)

	if p.sent("echo", "held", held.Principal)[0].Withdrawn {
		t.Error("a held message was never in the history")
	}

	p.reads("… -m0+ -m1+ m4+ = 4", pipeline.ThreadQuery{Head: 2, Tail: 20})
	p.reads("-m0+ -m1+ … m4+ = 4", pipeline.ThreadQuery{Head: 2, Tail: 1})
}

// sentErased: the bytes of an original go with the last message that has them.
func sentErased(t *testing.T, p *probe) {
	original := pipeline.Original{Digest: strings.Repeat("ab", 32), MediaType: "message/rfc822", Body: []byte("secret")}
	first, second := p.message("m1"), p.message("m1")
	second.Agent, second.Message.Recipient = "other", "@other@inbox.example"

	for _, turn := range []exchange.TurnRecord{first, second} {
		p.tx(func(tx pipeline.Tx) error {
			if _, _, err := tx.InsertTurn(t.Context(), turn, original); err != nil {
				return err
			}
			return tx.AppendEvents(t.Context(), turn.ID, []exchange.Event{
				{Kind: exchange.EventMessageEdited, Body: []byte(`{"original":[]}`)}, {Kind: exchange.EventDelta, Body: []byte(`{}`)},
			})
		})
	}

	for i, turn := range []exchange.TurnRecord{first, second} {
		p.tx(func(tx pipeline.Tx) error {
			_, err := tx.WithdrawTurn(t.Context(), turn.ID, p.now)
			return err
		})

		if _, err := p.Records.Original(t.Context(), original.Digest); fault.Is(err, fault.NotFound) != (i == 1) {
			t.Errorf("original after %d deletions: %v", i+1, err)
		}
		if found := p.turn(turn.ID); len(found.Message.Parts) != 0 || found.Message.ID != "m1" {
			t.Errorf("%+v", found.Message)
		}

		events, err := p.Pipeline.Events(t.Context(), turn.ID, 0, 10)
		p.ok(err)

		for _, event := range events {
			if event.Kind == exchange.EventDelta || event.Kind == exchange.EventMessageEdited && len(event.Body) > 0 {
				t.Errorf("%s %s is left", event.Kind, event.Body)
			}
		}
	}
}

func openTurns(t *testing.T, p *probe) {
	queued, done, other := p.message("m1"), p.message("m2"), p.message("m3")
	done.State, other.Principal = exchange.StateSilent, "peer.example bob"

	for _, turn := range []exchange.TurnRecord{queued, done, other} {
		p.insert(turn)
		p.tx(func(tx pipeline.Tx) error {
			return tx.Enqueue(t.Context(), queue.NewJob{ID: turn.ID, Kind: pipeline.JobKind, Payload: turn.ID})
		})
	}

	for _, c := range []struct {
		agent, principal string
		want             []string
	}{
		{"", queued.Principal, []string{queued.ID}}, {"echo", queued.Principal, []string{queued.ID}}, {"third", queued.Principal, nil},
		{"", "\x00", nil}, {"", other.Principal, []string{other.ID}},
	} {
		found, err := p.Pipeline.OpenTurns(t.Context(), c.agent, c.principal)
		if p.ok(err); !slices.Equal(found, c.want) {
			t.Errorf("%+v: %v", c, found)
		}
	}
}
