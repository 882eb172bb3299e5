package storetest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
)

var replyCases = map[string]func(*testing.T, *probe){
	"come back with their question": replyRoundTrip,
	"one for each message":          oneReply,
	"demands come before":           notices,
	"lists":                         replyList,
	"messages are found":            findMessage,
}

func replyRoundTrip(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	reply := p.answer(turn, "note 1")
	got, nativeID, err := p.Records.Reply(t.Context(), reply.ID)
	p.ok(err)
	p.same(reply, got)

	if nativeID != "note 1" {
		t.Errorf("native id %q", nativeID)
	}

	stored := p.turn(turn.ID)
	if stored.ReplyID != reply.ID || stored.Response == nil {
		t.Fatalf("turn %+v", stored)
	}

	p.same(reply.Response, *stored.Response)
	_, _, err = p.Records.Reply(t.Context(), newID())
	p.missing(err)

	if count, err := p.Records.LocalPosts(t.Context()); err != nil || count != 1 {
		t.Errorf("local posts %d, %v", count, err)
	}
}

func oneReply(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	first := p.answer(turn, "note 1")
	err := p.Pipeline.InTx(t.Context(), func(tx pipeline.Tx) error {
		return tx.InsertReply(t.Context(), p.reply(turn), "note 2")
	})
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("second reply: %v, want fault.Conflict", err)
	}
	if got := p.turn(turn.ID).ReplyID; got != first.ID {
		t.Errorf("reply %s", got)
	}
}

// notices sends two demands before the answer: the newest reply is the turn's.
func notices(t *testing.T, p *probe) {
	turn, other := p.message("m1"), p.message("m2")
	p.insert(turn, other)
	send := func(notice int, nativeID string) (exchange.Reply, error) {
		reply := p.reply(turn)
		reply.Notice, reply.Response.Metadata = notice, map[string]string{"notice": nativeID}
		return reply, p.Pipeline.InTx(t.Context(), func(tx pipeline.Tx) error {
			return tx.InsertReply(t.Context(), reply, nativeID)
		})
	}

	for _, notice := range []int{1, 2, 0} {
		reply, err := send(notice, fmt.Sprint("note ", notice))
		p.ok(err)
		stored := p.turn(turn.ID)
		if stored.ReplyID != reply.ID || stored.Response == nil {
			t.Fatalf("turn %+v", stored)
		}

		p.same(reply.Response, *stored.Response)
		got, _, err := p.Records.Reply(t.Context(), reply.ID)
		p.ok(err)

		if got.Notice != notice {
			t.Errorf("notice %d, want %d", got.Notice, notice)
		}
		if _, err := send(notice, "again"); !fault.Is(err, fault.Conflict) {
			t.Errorf("notice %d again: %v", notice, err)
		}
	}

	turns, err := p.Records.Turns(t.Context(), exchange.TurnFilter{})
	if err != nil || len(turns) != 2 {
		t.Errorf("%d turns, %v: every turn is listed once", len(turns), err)
	}

	for _, nativeID := range []string{"note 1", "note 2", "note 0"} {
		entry, found, err := p.continued("echo", nativeID)
		if err != nil || !found || entry.TurnID != turn.ID {
			t.Errorf("%s: %+v, %v, %v", nativeID, entry, found, err)
		}
	}
}

func replyList(t *testing.T, p *probe) {
	for i := range 5 {
		turn := p.message(fmt.Sprint(i))
		if i == 3 {
			turn.Agent = "other"
		}
		p.insert(turn)
		p.answer(turn, "")
	}

	turn := p.message("private")
	p.insert(turn)
	private := p.reply(turn)
	private.Open = false
	p.tx(func(tx pipeline.Tx) error { return tx.InsertReply(t.Context(), private, "") })
	before := ""
	for _, want := range [][]string{{"4", "2", "1"}, {"0"}, {}} {
		replies, err := p.Records.Replies(t.Context(), "echo", before, 3)
		p.ok(err)
		got := []string{}
		for _, reply := range replies {
			got, before = append(got, reply.Message.ID), reply.ID
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}

	if count, err := p.Records.CountReplies(t.Context(), "echo"); err != nil || count != 4 {
		t.Errorf("%d replies, %v", count, err)
	}
}

func findMessage(t *testing.T, p *probe) {
	turn, later, foreign, burned := p.message("m1"), p.message("m2"), p.message("m1"), p.message("note 1")
	turn.Reference = "task 1"
	foreign.Principal = "peer.example mallory"
	p.insert(turn, later, foreign, burned)
	p.answer(later, "note 1")
	p.answer(turn, "")
	check := func(id, want string) {
		t.Helper()
		entry, found, err := p.continued("echo", id)
		if err != nil || found != (want != "") || entry.TurnID != want {
			t.Errorf("%q: %+v, %v, %v", id, entry, found, err)
		}
	}

	check("m1", turn.ID)
	check("note 1", later.ID) // our own reply, not the message of a sender who used its id
	check("unknown", "")
	check("", "")
	entry, _, err := p.continued("echo", "m1")
	p.ok(err)
	p.same(exchange.ThreadEntry{
		TurnID: turn.ID, ThreadID: turn.ThreadID, Reference: "task 1", Message: turn.Message, Route: turn.Route,
	}, entry)

	if _, found, err := p.continued("other", "m1"); found || err != nil {
		t.Errorf("another agent's: %v, %v", found, err)
	}
}
