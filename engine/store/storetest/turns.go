package storetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

var turnCases = map[string]func(*testing.T, *probe){
	"come back as they were":           turnRoundTrip,
	"a second copy is recognised":      secondCopy,
	"the natural key":                  naturalKey,
	"long ids":                         longIDs,
	"text that a database cannot keep": unstorable,
	"originals":                        originals,
	"moves":                            moves,
	"events count without gaps":        eventsCount,
	"events are read by cursor":        eventsByCursor,
	"events of no turn":                eventsOfNoTurn,
}

func turnRoundTrip(_ *testing.T, p *probe) {
	turn := p.message("m1")
	turn.Reference, turn.Reason, turn.Shared = "task 7", "because", true
	p.insert(turn)
	p.same(turn, p.turn(turn.ID))

	if !p.turn(turn.ID).Shared {
		p.Error("not shared")
	}

	p.same([]string{`1 turn.accepted {"reason":"because"}`}, p.timeline(turn.ID))
	_, err := p.Pipeline.Turn(p.Context(), newID())
	p.missing(err)

	withHistory := p.message("m2")
	withHistory.Message.History = []normalized.HistoricalMessage{{ID: "m1", Role: normalized.RoleUser}}
	p.insert(withHistory)
	withHistory.Message.History = nil
	p.same(withHistory, p.turn(withHistory.ID))
}

func secondCopy(t *testing.T, p *probe) {
	first := p.message("m1")
	first.Reference = "task 7"
	p.insert(first)
	second := p.message("m1")
	second.Reference = "task 8"
	stored, inserted := p.offer(second)
	if inserted {
		t.Fatal("the same message was stored twice")
	}

	p.same(first, stored)
	_, err := p.Pipeline.Turn(t.Context(), second.ID)
	p.missing(err)
	p.same([]string{`1 turn.accepted `}, p.timeline(first.ID))

	var group sync.WaitGroup
	results := make([]bool, 8)
	copies := make([]exchange.TurnRecord, len(results))
	for i := range copies {
		copies[i] = p.message("m2")
	}

	for i, turn := range copies {
		group.Go(func() { _, results[i] = p.offer(turn) })
	}

	group.Wait()
	count := 0
	for _, inserted := range results {
		if inserted {
			count++
		}
	}

	if count != 1 {
		t.Errorf("%d of 8 copies at once were stored", count)
	}
}

func naturalKey(_ *testing.T, p *probe) {
	p.insert(p.message("m1"))
	other := p.message("m1")
	other.Principal = "peer.example bob"
	p.insert(other)
	other = p.message("m1")
	other.Message.Recipient = "@other@inbox.example"
	p.insert(other)
	other = p.message("m1")
	other.Message.ReceivedVia = normalized.ViaA2A
	p.insert(other)

	for _, carrier := range []string{"inbox.example token:1", "inbox.example token:2"} { // each may use an id for somebody
		other = p.message("m1")
		other.Carrier = carrier
		p.insert(other)
		other.ID = newID()
		if first, inserted := p.offer(other); inserted || first.Carrier != carrier {
			p.Errorf("the repeat of what %s brought is another message, or that of %q", carrier, first.Carrier)
		}
	}

	// Parts that run together when they are joined without care.
	other = p.message("m1")
	other.Message.Recipient, other.Message.ReceivedVia = "@echo@inbox.examplee", "mail"
	p.insert(other)
}

func longIDs(t *testing.T, p *probe) {
	long := strings.Repeat("ä", 1024)
	turn := p.message(long + "1")
	turn.ThreadID, turn.Reference, turn.Principal = long+"2", long+"3", long+long
	p.insert(turn)
	p.same(turn, p.turn(turn.ID))

	if _, found, err := p.Records.ContinuedMessage(t.Context(), "echo", normalized.ViaEmail, long+long, []string{long + "1"}); err != nil || !found {
		t.Errorf("found %v, %v", found, err)
	}

	turns, err := p.Records.Turns(t.Context(), exchange.TurnFilter{Agent: "echo", Principal: long + long, Reference: long + "3"})
	if err != nil || len(turns) != 1 {
		t.Errorf("turns %v, %v", turns, err)
	}
}

func unstorable(t *testing.T, p *probe) {
	for _, bad := range []string{"a\x00b", "a\xffb"} {
		changes := map[string]func(*exchange.TurnRecord){
			"id":        func(turn *exchange.TurnRecord) { turn.Message.ID = bad },
			"thread_id": func(turn *exchange.TurnRecord) { turn.ThreadID = bad },
			"principal": func(turn *exchange.TurnRecord) { turn.Principal = bad },
			"reference": func(turn *exchange.TurnRecord) { turn.Reference = bad },
		}

		for field, change := range changes {
			turn := p.message("m1")
			change(&turn)
			err := p.Pipeline.InTx(t.Context(), func(tx pipeline.Tx) error {
				_, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{})
				return err
			})
			if f := fault.Of(err); f.Kind != fault.Malformed || f.Field != field {
				t.Errorf("%s %q: got %v", field, bad, err)
			}
		}

		turn := p.message("reason " + bad[:1] + fmt.Sprint(len(p.Notified())))
		turn.Reason = bad // text for people is cleaned instead
		p.insert(turn)

		if got := p.turn(turn.ID).Reason; got != "a\uFFFDb" {
			t.Errorf("reason %q", got)
		}
		if _, found, err := p.continued("echo", bad); found || err != nil {
			t.Errorf("found %v, %v", found, err)
		}
	}

	turn := p.message("text") // JSON escapes NUL, so a message's own text keeps it
	turn.Message.Parts = []normalized.Part{normalized.Text("a\x00b")}
	p.insert(turn)
	p.same(turn, p.turn(turn.ID))
}

func originals(t *testing.T, p *probe) {
	bodies := map[string][]byte{
		"text": []byte("Subject: grüße\r\n\r\nhello"), "bytes": {0xff, 0xfe, 0, 1}, "nul": []byte("a\x00b"), "empty": {}, "blob": nil,
	}

	for digest, body := range bodies {
		for range 2 { // a message to two agents has one original
			turn := p.message(newID())
			p.tx(func(tx pipeline.Tx) error {
				_, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{Digest: digest, MediaType: "message/rfc822", Body: body})
				return err
			})
		}

		got, err := p.Records.Original(t.Context(), digest)
		if err != nil || !bytes.Equal(got.Body, body) || (got.Body == nil) != (body == nil) || got.MediaType != "message/rfc822" {
			t.Errorf("%s: got %+v, %v", digest, got, err)
		}
	}

	_, err := p.Records.Original(t.Context(), "none")
	p.missing(err)
}

func moves(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	move := func(want bool, m pipeline.Move) {
		t.Helper()
		m.ID, m.At = turn.ID, p.now
		p.tx(func(tx pipeline.Tx) error {
			moved, err := tx.MoveTurn(t.Context(), m)
			if moved != want {
				t.Errorf("%+v: moved %v", m, moved)
			}
			return err
		})
	}

	move(true, pipeline.Move{From: []string{"accepted", "running"}, To: "running", Attempt: 1})
	move(false, pipeline.Move{From: []string{"accepted"}, To: "cancelled", Reason: "too late"})
	move(true, pipeline.Move{From: []string{"running"}, To: "failed", Reason: "no\x00model"})
	got := p.turn(turn.ID)
	if got.State != "failed" || got.Attempt != 1 || got.Reason != "no\uFFFDmodel" || !got.UpdatedAt.Equal(p.now) {
		t.Errorf("turn %+v", got)
	}

	p.same([]string{"1 turn.accepted ", `2 turn.running {"attempt":1}`, "3 turn.failed {\"reason\":\"no\uFFFDmodel\"}"}, p.timeline(turn.ID))
}

// eventsCount has several transactions append to one timeline at once.
func eventsCount(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	const writers, each = 6, 10
	var group sync.WaitGroup
	for writer := range writers {
		group.Go(func() {
			for i := range each {
				err := p.Pipeline.InTx(t.Context(), func(tx pipeline.Tx) error {
					if writer == 0 {
						_, err := tx.MoveTurn(t.Context(), pipeline.Move{ID: turn.ID, From: []string{"accepted"}, To: "accepted", At: p.now})
						return errors.Join(err, tx.AppendEvents(t.Context(), turn.ID, []exchange.Event{{Kind: "x"}}))
					}
					return tx.AppendEvents(t.Context(), turn.ID, []exchange.Event{
						{Kind: "delta", Body: json.RawMessage(fmt.Sprintf(`"%d %d"`, writer, i))}, {Kind: "delta"},
					})
				})
				if err != nil {
					t.Errorf("append: %v", err)
				}
			}
		})
	}

	group.Wait()
	events, err := p.Pipeline.Events(t.Context(), turn.ID, 0, 1000)
	p.ok(err)

	if len(events) != 1+writers*each*2 {
		t.Errorf("%d events", len(events))
	}

	for i, event := range events {
		if event.Seq != int64(i+1) {
			t.Fatalf("event %d has seq %d", i, event.Seq)
		}
	}
}

func eventsByCursor(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	p.tx(func(tx pipeline.Tx) error {
		return tx.AppendEvents(t.Context(), turn.ID, []exchange.Event{{Kind: "a", At: p.now}, {Kind: "b"}, {Kind: "c"}})
	})

	events, err := p.Pipeline.Events(t.Context(), turn.ID, 1, 2)
	p.ok(err)
	kinds := []string{}
	for _, event := range events {
		kinds = append(kinds, event.Kind)
	}

	if diff := cmp.Diff([]string{"a", "b"}, kinds); diff != "" || !events[0].At.Equal(p.now) {
		t.Errorf("events %+v", events)
	}
}

func eventsOfNoTurn(t *testing.T, p *probe) {
	p.tx(func(tx pipeline.Tx) error { return tx.AppendEvents(t.Context(), newID(), nil) })
}
