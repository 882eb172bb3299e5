package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/engine/store/database"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
	"inbox/policypart"
)

func postgresAndSQLite() map[string]func(testing.TB) string {
	return map[string]func(testing.TB) string{"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres}
}

// migrated is a directory of a SQLite database of the newest schema, which has no rows.
func migrated(t testing.TB) string {
	t.Helper()
	return storetest.Directory(t, func(directory string) (io.Closer, error) {
		return Open(t.Context(), Options{DataDir: directory})
	})
}

// databases are both, by name.
func databases(t *testing.T, work func(t *testing.T, open func(t testing.TB) *Store)) {
	for name, url := range postgresAndSQLite() {
		t.Run(name, func(t *testing.T) {
			work(t, func(t testing.TB) *Store {
				s, err := Open(t.Context(), Options{DataDir: migrated(t), URL: url(t)})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				})
				return s
			})
		})
	}
}

// aged is a turn of a model: what of it must be there.
type aged struct {
	id, agent, original, file string
	arrived, updated          time.Time
	ended, pending            bool

	left map[string]bool // kinds of which there is something
}

// keptTurn stores a turn with something of every kind.
func keptTurn(t testing.TB, s *Store, number int, agent, original string, arrived, updated time.Time, state string, pending bool) aged {
	t.Helper()
	id := idBefore(arrived) + fmt.Sprintf("-7000-8000-%012x", number)
	one := aged{
		id: id, agent: agent, original: original, file: fmt.Sprintf("%064x", number+1), arrived: arrived, updated: updated,
		ended: exchange.Terminal(state), pending: pending, left: map[string]bool{},
	}
	for _, kind := range []string{RetainMessages, RetainOriginals, RetainFiles, RetainSteps, RetainDemands, RetainDispatches, RetainTools, RetainRecords} {
		one.left[kind] = true
	}

	file := normalized.Part{Kind: normalized.PartFile, MIME: "text/plain", Name: "notes.txt", BytesRef: normalized.Stored(one.file)}
	turn := exchange.TurnRecord{
		ID: id, Agent: agent, Principal: "peer.example alice", ThreadID: "thread", State: exchange.StateAccepted, AcceptedAt: arrived, UpdatedAt: arrived,
		Channel: normalized.ViaEmail, Route: json.RawMessage(`{"v":1}`),
		Message: normalized.Message{
			ID: fmt.Sprintf("<%d@peer.example>", number), ThreadID: "thread", Recipient: "@" + agent + "@inbox.example", ReceivedVia: normalized.ViaEmail,
			ReceivedAt: identity.At(arrived), Raw: normalized.Raw{Ref: "sha256:" + original, MediaType: "message/rfc822"},
			Sender:                normalized.Sender{Address: identity.Stated("@alice@peer.example"), AuthMethod: normalized.AuthNone},
			Parts:                 []normalized.Part{normalized.Text("question"), file},
			RecipientCapabilities: normalized.RecipientCapabilities{MentionRelay: normalized.MentionRelay{Kind: normalized.RelayNone}},
		},
	}
	reply := exchange.Reply{
		ID: "reply-" + id, TurnID: id, Agent: agent, Message: turn.Message, Channel: turn.Channel, Route: turn.Route, CreatedAt: arrived, Posts: 1,
		Response: normalized.Response{InReplyTo: turn.Message.ID, Parts: []normalized.Part{normalized.Text("answer"), file}},
	}

	err := s.InTx(t.Context(), func(tx *Tx) error {
		if _, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{Digest: original, MediaType: "message/rfc822", Body: []byte(original)}); err != nil {
			return err
		}
		failures := errors.Join(
			tx.PutRunResult(t.Context(), exchange.RunResult{TurnID: id, Run: 1, At: arrived, Status: "completed", Body: json.RawMessage(`{}`)}),
			tx.InsertDemand(t.Context(), policypart.Issuance{ID: "demand-" + id, StateHash: id, TurnID: id, Agent: agent, Status: policypart.StatusResolved, UpdatedAt: updated, ExpiresAt: updated}),
			tx.InsertDispatch(t.Context(), exchange.Dispatch{ID: "call-" + id, TurnID: id, State: exchange.DispatchDone, CreatedAt: arrived, UpdatedAt: updated}),
		)
		if _, err := tx.InsertToolRequest(t.Context(), exchange.ToolRequest{ID: "tool-" + id, Agent: agent, TurnID: id, ToolName: "client/x", Status: "completed", Request: []byte(`{}`)}); err != nil {
			return err
		}
		if failures != nil {
			return failures
		}

		move := pipeline.Move{ID: id, From: []string{exchange.StateAccepted}, To: state, At: updated}
		if !one.ended {
			_, err := tx.MoveTurn(t.Context(), move)
			return err
		}
		if _, err := tx.AnswerTurn(t.Context(), move, reply, ""); err != nil {
			return err
		}
		record := delivery.Record{ID: "delivery-" + id, TurnID: id, ReplyID: reply.ID, Agent: agent, Channel: turn.Channel, Key: "peer.example", Address: "alice@peer.example", State: delivery.StateDelivered, CreatedAt: updated, UpdatedAt: updated}
		if pending {
			record.State = delivery.StateRetry
		}
		return tx.InsertDelivery(t.Context(), record)
	})
	if err != nil {
		t.Fatal(err)
	}
	return one
}

// apply does to a turn of the model what the rules say.
func (a *aged) apply(rules Retention, now time.Time) {
	periods, own := rules.Agents[strings.ToLower(a.agent)]
	if !own {
		periods = rules.Default
	}
	for kind, period := range periods {
		if _, about := a.left[kind]; !about || period == 0 || !a.ended || a.pending || !a.arrived.Before(now.Add(-period)) || a.updated.Add(period).After(now) {
			continue
		}
		a.left[kind] = false
		switch kind {
		case RetainMessages:
			a.left[RetainOriginals], a.left[RetainFiles], a.left[RetainTools], a.left[RetainDispatches] = false, false, false, false
		case RetainRecords:
			for other := range a.left {
				a.left[other] = false
			}
		}
	}
}

// found is what the database has of a turn.
func found(t testing.TB, s *Store, a aged) map[string]bool {
	t.Helper()
	has := func(query string) bool {
		var one int64
		there, err := first(t.Context(), s.engine.Reader(), query, []any{a.id}, &one)
		if err != nil {
			t.Fatal(err)
		}
		return there
	}
	return map[string]bool{
		RetainRecords:    has(`SELECT 1 FROM turns WHERE id = $1`),
		RetainMessages:   has(`SELECT 1 FROM turns WHERE id = $1 AND message LIKE '%question%'`),
		RetainOriginals:  has(`SELECT 1 FROM turns WHERE id = $1 AND original_digest <> ''`),
		RetainFiles:      has(`SELECT 1 FROM turns WHERE id = $1 AND message LIKE '%"digest"%'`),
		RetainSteps:      has(`SELECT 1 FROM events WHERE turn_id = $1 AND seq = 1`),
		RetainDemands:    has(`SELECT 1 FROM demands WHERE turn_id = $1`),
		RetainDispatches: has(`SELECT 1 FROM dispatches WHERE turn_id = $1`),
		RetainTools:      has(`SELECT 1 FROM tool_requests WHERE run_id = $1`),
	}
}

// TestRetentionEqualsModel: whatever the rules, ages and states, what is left equals the model; also when another time comes, when
// deliveries end and when the rules change.
func TestRetentionEqualsModel(t *testing.T) {
	databases(t, func(t *testing.T, open func(t testing.TB) *Store) {
		s, number := open(t), 0
		now := time.Now().Truncate(time.Millisecond)
		rapid.Check(t, func(r *rapid.T) {
			if err := emptied(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			turns := make([]aged, rapid.IntRange(1, 12).Draw(r, "turns"))
			for i := range turns {
				age := rapid.IntRange(2, 200).Draw(r, "age") // days
				updated := rapid.IntRange(1, age).Draw(r, "updated")
				state := rapid.SampledFrom([]string{exchange.StateAnswered, exchange.StateFailed, exchange.StateRunning, exchange.StateWaiting}).Draw(r, "state")
				agent := rapid.SampledFrom([]string{"echo", "Helper", "gone"}).Draw(r, "agent")
				original := strings.Repeat(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(r, "original"), 64)
				number++
				turns[i] = keptTurn(t, s, number, agent, original, now.AddDate(0, 0, -age), now.AddDate(0, 0, -updated), state, rapid.Bool().Draw(r, "pending"))
			}

			for round := range 3 {
				rules := Retention{Default: drawPeriods(r, "default"), Agents: map[string]Periods{"echo": drawPeriods(r, "echo"), "helper": drawPeriods(r, "helper")}}
				at := now.AddDate(0, 0, 40*round)
				for range 2 { // the second time finds nothing
					if _, err := s.Retain(t.Context(), rules, at); err != nil {
						t.Fatal(err)
					}
				}
				if err := s.DropOriginals(t.Context()); err != nil {
					t.Fatal(err)
				}

				needed := map[string]bool{}
				for i := range turns {
					turns[i].apply(rules, at)
					if got := found(t, s, turns[i]); !maps.Equal(got, turns[i].left) {
						r.Fatalf("round %d, %+v has %v", round, turns[i], got)
					}
					needed[turns[i].original] = needed[turns[i].original] || turns[i].left[RetainOriginals]
				}
				for digest, want := range needed {
					var one int64
					if is, err := first(t.Context(), s.engine.Reader(), `SELECT 1 FROM originals WHERE digest = $1`, []any{digest}, &one); is != want || err != nil {
						r.Fatalf("round %d: the native form %s is there: %t, %v; want %t", round, digest[:1], is, err, want)
					}
				}

				// What was on its way arrives; it is looked at again within a day.
				if err := s.InTx(t.Context(), func(tx *Tx) error { return tx.sql.Do(t.Context(), `UPDATE deliveries SET state = 'delivered'`) }); err != nil {
					t.Fatal(err)
				}
				for i := range turns {
					turns[i].pending = false
				}
			}
		})
	})
}

func drawPeriods(r *rapid.T, name string) Periods {
	periods := Periods{}
	for _, kind := range RetentionKinds() {
		periods[kind] = time.Duration(rapid.SampledFrom([]int{0, 0, 1, 30, 90}).Draw(r, name+" "+kind)) * 24 * time.Hour
	}
	if periods[RetainMessages] == 0 || periods[RetainRecords] < periods[RetainMessages] {
		periods[RetainRecords] = 0 // as the settings demand
	}
	return periods
}

// emptied empties the tables of a test.
func emptied(ctx context.Context, s *Store) error {
	return s.InTx(ctx, func(tx *Tx) error {
		for _, table := range []string{
			"deliveries", "replies", "events", "demands", "dispatches", "tool_requests", "run_results", "task_runs", "turns", "originals", "blob_garbage",
			"retention_cursors", "retention_later", "retention_originals",
		} {
			if err := tx.sql.Do(ctx, `DELETE FROM `+table); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestRepeatAfterTheEnd: a message whose words are gone is recognised when it comes again; when its row is gone it is a new one.
func TestRepeatAfterTheEnd(t *testing.T) {
	databases(t, func(t *testing.T, open func(t testing.TB) *Store) {
		s, now := open(t), time.Now()
		old := keptTurn(t, s, 1, "echo", strings.Repeat("a", 64), now.AddDate(0, 0, -100), now.AddDate(0, 0, -100), exchange.StateAnswered, false)
		repeat := func() bool {
			stored, err := s.Turn(t.Context(), old.id)
			if err != nil {
				return true
			}
			stored.ID, stored.Message.Parts = newRowID(), []normalized.Part{normalized.Text("question")}
			fresh := false
			err = s.InTx(t.Context(), func(tx *Tx) (err error) {
				_, fresh, err = tx.InsertTurn(t.Context(), stored, pipeline.Original{})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return fresh
		}

		day := 24 * time.Hour
		for _, step := range []struct {
			rules Periods
			fresh bool
		}{{Periods{RetainMessages: 90 * day}, false}, {Periods{RetainMessages: 90 * day, RetainRecords: 99 * day}, true}} {
			if _, err := s.Retain(t.Context(), Retention{Default: step.rules}, now); err != nil {
				t.Fatal(err)
			}
			if fresh := repeat(); fresh != step.fresh {
				t.Errorf("%v: a repeat is new: %t", step.rules, fresh)
			}
		}

		var digests []string
		garbage, err := s.Garbage(t.Context(), "", 10)
		for _, content := range garbage {
			digests = append(digests, content.Digest)
		}
		if err != nil || !slices.Equal(digests, []string{old.file}) {
			t.Errorf("garbage %v, %v; want the file", digests, err)
		}
	})
}

// TestAuditAndSessionsEnd: records and conversations go by the time of their agent; a conversation whose answer is on its way waits.
func TestAuditAndSessionsEnd(t *testing.T) {
	databases(t, func(t *testing.T, open func(t testing.TB) *Store) {
		s, now := open(t), time.Now()
		day := 24 * time.Hour
		for number, agent := range []string{"echo", "helper"} {
			at := now.Add(-40 * day)
			record := exchange.AuditRecord{ID: idBefore(at) + fmt.Sprintf("-7000-8000-%012x", number), At: at, Code: "access:refused", Agent: agent}
			if err := s.Audit(t.Context(), record); err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{"quiet", "busy"} {
				session := exchange.Session{ID: id, Owner: "me " + agent, Agent: agent, ThreadID: id + agent, CreatedAt: at, UpdatedAt: at}
				if _, _, err := s.CreateSession(t.Context(), session); err != nil {
					t.Fatal(err)
				}
			}
			busy := keptTurn(t, s, 10+number, agent, strings.Repeat("a", 64), at, at, exchange.StateRunning, false)
			if err := s.InTx(t.Context(), func(tx *Tx) error {
				return tx.sql.Do(t.Context(), `UPDATE turns SET thread_id = $1, thread_key = $2 WHERE id = $3`, "busy"+agent, hashKey(agent, "busy"+agent), busy.id)
			}); err != nil {
				t.Fatal(err)
			}
		}

		rules := Retention{Default: Periods{RetainAudit: 30 * day, RetainSessions: 30 * day}, Agents: map[string]Periods{"helper": {RetainAudit: 60 * day}}}
		for _, want := range []map[string]int64{{RetainAudit: 1, RetainSessions: 1}, {RetainAudit: 0, RetainSessions: 0}} {
			removed, err := s.Retain(t.Context(), rules, now)
			if err != nil || removed[RetainAudit] != want[RetainAudit] || removed[RetainSessions] != want[RetainSessions] {
				t.Errorf("removed %v, %v; want %v", removed, err, want)
			}
		}
		for owner, want := range map[string]int{"me echo": 1, "me helper": 2} {
			if sessions, err := s.Sessions(t.Context(), exchange.SessionFilter{Owner: owner, Limit: 10}); err != nil || len(sessions) != want {
				t.Errorf("%s has %v, %v", owner, sessions, err)
			}
		}
	})
}

// TestRetainedWordsAreNowhere: what messages said is in no row, in no index and in no byte of SQLite's files when their time is over.
func TestRetainedWordsAreNowhere(t *testing.T) {
	databases(t, func(t *testing.T, open func(t testing.TB) *Store) {
		s, ctx := open(t), t.Context()
		const secret = "zyxmarkerwvu"
		for range 30 {
			saidBy(t, s, newRowID(), "peer.example https://peer.example/users/bob", "@bob@peer.example", secret, true)
		}
		index(t, s)
		found, err := s.Arrivals(ctx, exchange.ArrivalFilter{Text: secret, Limit: 10})
		if err != nil || len(found.Turns) == 0 || len(everywhere(ctx, t, s, secret)) == 0 {
			t.Fatalf("the words are nowhere to begin with: %+v, %v", found, err)
		}

		rules := Retention{Default: Periods{RetainMessages: time.Hour}}
		if removed, err := s.Retain(ctx, rules, time.Now().Add(2*time.Hour)); err != nil || removed[RetainMessages] != 30 {
			t.Fatalf("%v, %v", removed, err)
		}
		if err := s.DropOriginals(ctx); err != nil {
			t.Fatal(err)
		}
		if err := s.indexAll(ctx); err != nil { // what waits for the index brings nothing back
			t.Fatal(err)
		}
		if found := everywhere(ctx, t, s, secret); len(found) != 0 {
			t.Errorf("the words are in %v", found)
		}
		if found, err := s.Arrivals(ctx, exchange.ArrivalFilter{Text: secret, Limit: 10}); err != nil || len(found.Turns) != 0 {
			t.Errorf("the words are found: %+v, %v", found, err)
		}
		if s.engine.Kind() != database.SQLite {
			return
		}
		if _, err := s.engine.ForgetFree(ctx); err != nil { // the log goes by itself when it is written anew
			t.Fatal(err)
		}
		if _, err := s.words.ForgetFree(ctx); err != nil {
			t.Fatal(err)
		}
		if found := filesWith(s, secret); len(found) > 0 {
			t.Errorf("%v have the words", found)
		}
	})
}
