package storetest

import (
	"encoding/json"
	"testing"
	"time"

	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/queue"
	"inbox/normalized"
)

var revisionCases = map[string]func(*testing.T, *probe){
	"an edit is stored once":           replyEdited,
	"a deleted reply leaves history":   replyDeleted,
	"sendings are read in pieces":      sendingsInPieces,
	"a job is removed unless it runs":  jobRemoved,
	"only the newest revision changes": staleRevision,
}

func (p *probe) revise(want bool, reply exchange.Reply, from int, kind string) {
	p.Helper()
	p.ok(p.Delivery.InTx(p.Context(), func(tx delivery.Tx) error {
		done, err := tx.ReviseReply(p.Context(), reply, from, exchange.Event{Kind: kind, Body: json.RawMessage(`{}`), At: p.now})
		if done != want {
			p.Errorf("revised: %v", done)
		}
		return err
	}))
}

func replyEdited(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	reply := p.answer(turn, "note 1")
	reply.Response.Parts = []normalized.Part{normalized.Text("better")}
	reply.Revision, reply.EditedAt, reply.Posts = 1, p.now.Add(time.Minute), 2
	p.revise(true, reply, 0, exchange.EventReplyEdited)
	got, nativeID, err := p.Records.Reply(t.Context(), reply.ID)
	p.ok(err)
	p.same(reply, got)

	if nativeID != "note 1" || p.turn(turn.ID).Response.Parts[0].Content != "better" {
		t.Errorf("the turn does not show the edit")
	}
	p.same([]string{"1 turn.accepted ", "2 reply.edited {}"}, p.timeline(turn.ID))
}

func staleRevision(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	reply := p.answer(turn, "")
	first := reply
	first.Revision, first.EditedAt = 1, p.now
	p.revise(true, first, 0, exchange.EventReplyEdited)
	p.revise(false, first, 0, exchange.EventReplyEdited)
	first.DeletedAt = p.now
	p.revise(true, first, 1, exchange.EventReplyDeleted)
	p.revise(false, first, 1, exchange.EventReplyDeleted)
}

func replyDeleted(t *testing.T, p *probe) {
	turn := p.message("m1")
	p.insert(turn)
	reply := p.answer(turn, "note 1")
	p.tx(func(tx pipeline.Tx) error {
		return tx.AppendEvents(t.Context(), turn.ID, []exchange.Event{{Kind: exchange.EventDelta, Body: json.RawMessage(`{}`), At: p.now}})
	})

	if got := p.excerpt(pipeline.ThreadQuery{Agent: "echo", ThreadID: "thread 1", Before: newID(), Tail: 10}); got.Total != 2 {
		t.Fatalf("%d turns of history before", got.Total)
	}

	reply.DeletedAt, reply.Response.Parts = p.now, nil
	p.revise(true, reply, 0, exchange.EventReplyDeleted)
	got := p.excerpt(pipeline.ThreadQuery{Agent: "echo", ThreadID: "thread 1", Before: newID(), Tail: 10})
	if got.Total != 1 || len(got.Tail) != 1 || got.Tail[0].Withdrawn || got.Tail[0].Answered() {
		t.Errorf("history %+v", got)
	}

	p.same([]string{"1 turn.accepted ", "3 reply.deleted {}"}, p.timeline(turn.ID))
	if list, err := p.Records.Replies(t.Context(), "echo", "", 10); err != nil || len(list) != 0 {
		t.Errorf("listed %+v, %v", list, err)
	}
	if count, err := p.Records.LocalPosts(t.Context()); err != nil || count != 0 {
		t.Errorf("%d local posts, %v", count, err)
	}
}

func sendingsInPieces(t *testing.T, p *probe) {
	record, reply := p.deliver("a.example")
	other := record
	other.ID, other.Key, other.Bulk = newID(), "b.example", true
	update := record
	update.ID, update.Action, update.Revision = newID(), exchange.ActionUpdate, 3
	p.tx(func(tx pipeline.Tx) error {
		for _, one := range []delivery.Record{other, update} {
			if err := tx.InsertDelivery(t.Context(), one); err != nil {
				return err
			}
		}
		return nil
	})

	first, err := p.Delivery.Sendings(t.Context(), reply, "", 1)
	p.ok(err)
	p.same([]delivery.Record{record}, first)
	rest, err := p.Delivery.Sendings(t.Context(), reply, record.ID, 10)
	p.ok(err)
	p.same([]delivery.Record{other}, rest)
	got, _, err := p.Delivery.Delivery(t.Context(), update.ID)
	p.ok(err)
	p.same(update, got)
}

func jobRemoved(t *testing.T, p *probe) {
	record, _ := p.deliver("a.example")
	job := delivery.FirstJob(record, "thread 1")
	after := queue.NewJob{ID: newID(), Kind: job.Kind, Partition: job.Partition, Payload: "after"}
	p.tx(func(tx pipeline.Tx) error {
		if err := tx.Enqueue(t.Context(), job); err != nil {
			return err
		}
		return tx.Enqueue(t.Context(), after)
	})

	remove := func(want bool) {
		t.Helper()
		p.ok(p.Delivery.InTx(t.Context(), func(tx delivery.Tx) error {
			removed, err := tx.RemoveJob(t.Context(), job.Kind, job.Partition, job.Payload)
			if removed != want {
				t.Errorf("removed: %v", removed)
			}
			return err
		}))
	}

	remove(true)
	remove(false)
	claimed := p.claimDeliveries()
	if len(claimed) != 1 || claimed[0].Payload != "after" {
		t.Fatalf("claimed %+v", claimed)
	}

	job.ID, job.Payload = newID(), "after"
	remove(false)
}

var conditionCases = map[string]func(*testing.T, *probe){
	"failing days make a destination dead": conditionDays,
	"pauses and clearing":                  conditionPauses,
}

func (p *probe) worsen(failure delivery.Condition) {
	p.Helper()
	p.ok(p.Delivery.InTx(p.Context(), func(tx delivery.Tx) error { return tx.WorsenCondition(p.Context(), failure, 3) }))
}

func (p *probe) condition() delivery.Condition {
	p.Helper()
	list, err := p.Delivery.Conditions(p.Context(), 10)
	p.ok(err)
	if len(list) != 1 {
		p.Fatalf("%d conditions", len(list))
	}
	return list[0]
}

func conditionDays(t *testing.T, p *probe) {
	failure := delivery.Condition{Channel: "activitypub", Key: "a.example", Reason: "refused", UpdatedAt: p.now}
	for i, day := range []int64{10, 10, 11, 11, 10, 14} {
		failure.FailedDay, failure.UpdatedAt = day, p.now.Add(time.Duration(i)*time.Second)
		p.worsen(failure)
		got := p.condition()
		if dead := day == 14; got.DeadAt.IsZero() == dead {
			t.Errorf("after failure %d: %+v", i+1, got)
		}
	}

	died := p.condition().DeadAt
	failure.FailedDay, failure.UpdatedAt = 15, p.now.Add(time.Hour)
	p.worsen(failure)

	if got := p.condition(); !got.DeadAt.Equal(died) || got.FailingDays != 4 {
		t.Errorf("%+v, died %v", got, died)
	}
}

func conditionPauses(t *testing.T, p *probe) {
	late, early := p.now.Add(time.Hour), p.now.Add(time.Minute)
	failure := delivery.Condition{Channel: "activitypub", Key: "a.example", FailedDay: 1, PausedUntil: late, Opened: 2, UpdatedAt: p.now}
	p.worsen(failure)
	failure.PausedUntil, failure.Opened = early, 1
	p.worsen(failure)

	if got := p.condition(); !got.PausedUntil.Equal(late) || got.Opened != 2 {
		t.Errorf("%+v", got)
	}

	p.ok(p.Delivery.InTx(t.Context(), func(tx delivery.Tx) error { return tx.ClearCondition(t.Context(), "activitypub", "a.example") }))
	if list, err := p.Delivery.Conditions(t.Context(), 10); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}
