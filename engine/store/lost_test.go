package store_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inbox/engine/delivery"
	"inbox/engine/notice"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/normalized"
)

// TestRowsWithoutTheirJobAreQueuedAgain: of every kind, once, as a repeat, and counted. A row that changes between the two looks, that has another
// job or a dead letter, or that needs none, is left.
func TestRowsWithoutTheirJobAreQueuedAgain(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			s := open(t, url(t))
			ctx := t.Context()
			lost := rowsWithJobs(t, s)
			look := func(want int, when string) {
				t.Helper()
				if queued, err := s.LookForLost(ctx); err != nil || queued != want {
					t.Errorf("%s: %d rows queued, want %d, %v", when, queued, want, err)
				}
			}
			look(0, "with all jobs")
			look(0, "with all jobs, again")

			before := lostCounts(t)
			for _, id := range lost {
				if err := s.Execute(ctx, `DELETE FROM jobs WHERE id = $1`, id); err != nil {
					t.Fatal(err)
				}
			}
			look(0, "a first look")
			if err := s.Execute(ctx, `UPDATE turns SET updated_at = updated_at + 1 WHERE id = $1`, lost["changes"]); err != nil {
				t.Fatal(err)
			}
			look(4, "a second look")
			look(1, "after the change")
			look(0, "at the end")

			for work, want := range map[string]float64{"turn": 2, "dispatch": 1, "delivery": 1, "notice": 1} {
				if got := lostCounts(t)[work] - before[work]; got != want {
					t.Errorf("%s: %v counted, want %v", work, got, want)
				}
			}
			for kind, want := range map[string][]string{
				pipeline.JobKind: {lost["turn"], lost["changes"]}, pipeline.DispatchKind: {lost["dispatch"]},
				delivery.JobKind: {lost["delivery"]}, notice.JobKind: {`{"way":"` + lost["notice"] + `"}`},
			} {
				for _, payload := range want {
					checkRepeat(t, s, kind, payload)
				}
			}
		})
	}
}

// checkRepeat looks for the one job of a row, whose first run counts as a second one.
func checkRepeat(t *testing.T, s *store.Store, kind, payload string) {
	t.Helper()
	jobs, err := s.Jobs(t.Context(), store.JobFilter{Kind: kind, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var found []store.JobRecord
	for _, job := range jobs {
		if job.Payload == payload {
			found = append(found, job)
		}
	}
	if len(found) != 1 || found[0].Attempt != 1 || found[0].State != "ready" {
		t.Errorf("%s %s has the jobs %+v, want one that was attempted once", kind, payload, found)
	}
}

// lostCounts reads the metric by its label.
func lostCounts(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() == "inbox_jobs_lost_total" {
			for _, one := range family.GetMetric() {
				counts[one.GetLabel()[0].GetValue()] = one.GetCounter().GetValue()
			}
		}
	}
	return counts
}

// rowsWithJobs stores rows of all kinds. It returns the ids of those that a test takes the job from, which are also those of their jobs.
func rowsWithJobs(t *testing.T, s *store.Store) map[string]string {
	t.Helper()
	ids := map[string]string{}
	number := int64(100)
	do := func(work func(ctx context.Context, tx *store.Tx) error) {
		t.Helper()
		if err := s.InTx(t.Context(), func(tx *store.Tx) error { return work(t.Context(), tx) }); err != nil {
			t.Fatal(err)
		}
	}
	turn := func(state, reason string) exchange.TurnRecord {
		number += 4 // each in a thread of its own
		one := sample(number)
		one.State, one.Reason = state, reason
		do(func(ctx context.Context, tx *store.Tx) error {
			_, _, err := tx.InsertTurn(ctx, one, pipeline.Original{Digest: one.ID, Body: []byte("{}")})
			return err
		})
		return one
	}
	job := func(tx *store.Tx, id string, of exchange.TurnRecord) error {
		next := pipeline.NextJob(of)
		next.ID = id
		return tx.Enqueue(t.Context(), next)
	}

	accepted, changes, resumed, dead := turn(exchange.StateAccepted, ""), turn(exchange.StateRunning, ""), turn(exchange.StateAccepted, ""), turn(exchange.StateAccepted, "")
	turn(exchange.StateHeld, "")
	turn(exchange.StateWaiting, "consent")
	asking := turn(exchange.StateWaiting, exchange.WaitingDispatch)
	call := exchange.Dispatch{ID: newID(), TurnID: asking.ID, Agent: "echo", To: "other", ThreadID: "d", State: exchange.DispatchPending, CreatedAt: time.Now(), UpdatedAt: time.Now()}
	reply := exchange.Reply{
		ID: newID(), TurnID: resumed.ID, Agent: "echo", Channel: resumed.Channel, Message: resumed.Message, Notice: exchange.NoticeAck, CreatedAt: time.Now(),
		Response: normalized.Response{InReplyTo: resumed.Message.ID, ThreadID: resumed.ThreadID, Parts: []normalized.Part{normalized.Text("one moment")}},
	}
	record := delivery.Record{
		ID: newID(), TurnID: resumed.ID, ReplyID: reply.ID, Agent: "echo", Channel: resumed.Channel, Key: "peer.example", Address: "a@peer.example", Data: json.RawMessage(`{}`),
		State: delivery.StatePending, CreatedAt: time.Now(), UpdatedAt: time.Now(),
	}
	way := exchange.NoticeWay{ID: newID(), Address: "mail", State: exchange.NoticePending, UpdatedAt: time.Now()}
	way.NoticeID = newID()
	older := exchange.NoticeWay{ID: newID(), NoticeID: way.NoticeID, Address: "hook", State: exchange.NoticePending, UpdatedAt: time.Now()}
	do(func(ctx context.Context, tx *store.Tx) error {
		for _, one := range []exchange.TurnRecord{accepted, changes} {
			if err := job(tx, one.ID, one); err != nil {
				return err
			}
		}
		if err := job(tx, newID(), resumed); err != nil {
			return err
		}
		if err := tx.InsertDispatch(ctx, call); err != nil {
			return err
		}
		if err := tx.Enqueue(ctx, pipeline.DispatchJob(call)); err != nil {
			return err
		}
		if _, err := tx.InsertAck(ctx, reply, "native"); err != nil {
			return err
		}
		if err := tx.InsertDelivery(ctx, record); err != nil {
			return err
		}
		if err := tx.Enqueue(ctx, delivery.FirstJob(record, resumed.ThreadID)); err != nil {
			return err
		}
		if err := tx.InsertNotice(ctx, exchange.Notice{ID: way.NoticeID, CreatedAt: time.Now(), Ways: []exchange.NoticeWay{way, older}}); err != nil {
			return err
		}
		for _, id := range []string{way.ID, newID()} { // the second one as nodes of earlier versions stored it
			next, err := notice.WayJob(map[bool]string{true: way.ID, false: older.ID}[id == way.ID])
			next.ID = id
			if err != nil {
				return err
			}
			if err := tx.Enqueue(ctx, next); err != nil {
				return err
			}
		}
		return job(tx, newID(), dead)
	})
	if err := s.Execute(t.Context(), `UPDATE jobs SET state = 'dead', lease_owner = '', lease_until = 0 WHERE payload = $1`, dead.ID); err != nil {
		t.Fatal(err)
	}

	ids["turn"], ids["changes"], ids["dispatch"], ids["delivery"], ids["notice"] = accepted.ID, changes.ID, call.ID, record.ID, way.ID
	return ids
}
