package store

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/engine/pipeline"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

func TestRunResults(t *testing.T) {
	for name, url := range map[string]func(testing.TB) string{
		"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), Options{DataDir: migrated(t), URL: url(t)})
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})

			for name, check := range map[string]func(*testing.T, *Store){
				"of several runs": resultsOfRuns, "of a turn that ended": resultsLate, "erased": resultsErased, "swept": resultsSwept,
			} {
				t.Run(name, func(t *testing.T) { check(t, s) })
			}
		})
	}
}

// insertRunning stores a turn that runs.
func insertRunning(t *testing.T, s *Store) exchange.TurnRecord {
	t.Helper()
	id := newRowID()
	turn := exchange.TurnRecord{
		ID: id, Agent: "echo", Principal: "peer.example alice", ThreadID: id, State: exchange.StateRunning, AcceptedAt: time.Now(),
		Message: normalized.Message{
			ID: id, ThreadID: id, Recipient: "@echo@inbox.example", ReceivedVia: normalized.ViaA2A, Parts: []normalized.Part{normalized.Text("hello")},
		},
	}
	mustTx(t, s, func(tx *Tx) error {
		_, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{})
		return err
	})
	return turn
}

func mustTx(t *testing.T, s *Store, work func(*Tx) error) {
	t.Helper()
	if err := s.InTx(t.Context(), work); err != nil {
		t.Fatal(err)
	}
}

func putResult(t *testing.T, s *Store, result exchange.RunResult) {
	t.Helper()
	mustTx(t, s, func(tx *Tx) error { return tx.PutRunResult(t.Context(), result) })
}

// garbageHas reports whether a content is noted as one that may go.
func garbageHas(t *testing.T, s *Store, digest string) bool {
	t.Helper()
	contents, err := s.Garbage(t.Context(), "", 500)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(contents, func(content Garbage) bool { return content.Digest == digest })
}

func resultsOf(t *testing.T, s *Store, turnID string) []exchange.RunResult {
	t.Helper()
	found, err := s.RunResults(t.Context(), turnID)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A run has one result, the runs stand in their order, and the documents of the newest stay.
func resultsOfRuns(t *testing.T, s *Store) {
	turn, first := insertRunning(t, s), strings.Repeat("1a", 32)
	at := time.Now().UTC().Truncate(time.Microsecond)
	audit := []json.RawMessage{json.RawMessage(`{"type":"tool_call"}`)}
	putResult(t, s, exchange.RunResult{TurnID: turn.ID, Run: 1, At: at, Status: "failed", Bytes: 100_000, Digest: first, Audit: audit})
	if needed, err := s.BlobNeeded(t.Context(), first); err != nil || !needed {
		t.Errorf("needed %v, %v", needed, err)
	}

	for run := 2; run <= 1+exchange.MaxRunResults; run++ {
		for _, body := range []string{`{"again":false}`, `{"again":true}`} {
			putResult(t, s, exchange.RunResult{TurnID: turn.ID, Run: run, At: at, Status: "completed", Bytes: len(body), Body: json.RawMessage(body)})
		}
	}

	found := resultsOf(t, s, turn.ID)
	if len(found) != 1+exchange.MaxRunResults || found[0].LeftOut == "" || found[0].Digest != "" || found[0].Bytes != 100_000 {
		t.Fatalf("%+v", found)
	}
	for i, one := range found[1:] {
		kept, err := s.RunResult(t.Context(), turn.ID, one.Run)
		if err != nil || one.Run != i+2 || one.LeftOut != "" || one.Body != nil || string(kept.Body) != `{"again":true}` || !kept.At.Equal(at) || kept.Status != "completed" {
			t.Errorf("%+v, %v", kept, err)
		}
	}
	if needed, err := s.BlobNeeded(t.Context(), first); err != nil || needed || !garbageHas(t, s, first) {
		t.Errorf("the content of the first run: needed %v, %v", needed, err)
	}
	if listed, err := s.ThreadResults(t.Context(), turn.Agent, turn.ThreadID); err != nil || len(listed) != len(found) ||
		listed[0].TurnID != turn.ID || len(listed[0].Audit) != 1 || string(listed[0].Audit[0]) != string(audit[0]) || listed[1].Audit != nil {
		t.Errorf("%+v, %v", listed, err)
	}
	if listed, err := s.ThreadResults(t.Context(), "other", turn.ThreadID); err != nil || len(listed) != 0 {
		t.Errorf("%+v, %v", listed, err)
	}
	if _, err := s.RunResult(t.Context(), turn.ID, 99); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// A turn that was cancelled has no document of a late run, because what was said in it may be erased. Its row says how the run ended. A
// turn that has ended otherwise has no row either.
func resultsLate(t *testing.T, s *Store) {
	for state, want := range map[string]int{
		exchange.StateCancelled: 1, exchange.StateAnswered: 0, exchange.StateFailed: 0, exchange.StateSilent: 0, exchange.StateRefused: 0,
	} {
		turn := insertRunning(t, s)
		mustTx(t, s, func(tx *Tx) error {
			_, err := tx.MoveTurn(t.Context(), pipeline.Move{ID: turn.ID, From: []string{exchange.StateRunning}, To: state, At: time.Now()})
			return err
		})
		putResult(t, s, exchange.RunResult{
			TurnID: turn.ID, Run: 1, Status: "interrupted", Bytes: 2, Body: json.RawMessage(`{}`), Audit: []json.RawMessage{json.RawMessage(`{}`)},
		})
		putResult(t, s, exchange.RunResult{TurnID: turn.ID, Run: 2, Status: "interrupted", Bytes: 100_000, Digest: strings.Repeat("2c", 32)})

		found := resultsOf(t, s, turn.ID)
		if len(found) != 2*want {
			t.Errorf("%s: %+v", state, found)
		}
		for _, one := range found {
			if one.Status != "interrupted" || one.Digest != "" || one.Audit != nil || one.LeftOut != cancelledRun {
				t.Errorf("%s: %+v", state, one)
			}
			if kept, err := s.RunResult(t.Context(), turn.ID, one.Run); err != nil || kept.Body != nil {
				t.Errorf("%s: %s, %v", state, kept.Body, err)
			}
		}
	}

	putResult(t, s, exchange.RunResult{TurnID: newRowID(), Run: 1, Body: json.RawMessage(`{}`)}) // of no turn
}

// What was asked, and what was answered, goes from the results with the message and with the answer.
func resultsErased(t *testing.T, s *Store) {
	reply := func(turn exchange.TurnRecord) exchange.Reply {
		return exchange.Reply{ID: "reply " + turn.ID, TurnID: turn.ID, Agent: turn.Agent, Message: turn.Message, CreatedAt: time.Now(), Response: normalized.Response{
			Parts: []normalized.Part{normalized.Text("words")},
		}}
	}

	for name, erase := range map[string]func(turn exchange.TurnRecord){
		"withdrawn": func(turn exchange.TurnRecord) {
			mustTx(t, s, func(tx *Tx) error {
				_, err := tx.WithdrawTurn(t.Context(), turn.ID, time.Now())
				return err
			})
		},
		"forgotten": func(turn exchange.TurnRecord) {
			if _, err := s.ForgetThread(t.Context(), turn.Agent, turn.ThreadID); err != nil {
				t.Fatal(err)
			}
		},
		"answer taken back": func(turn exchange.TurnRecord) {
			mustTx(t, s, func(tx *Tx) error {
				gone := reply(turn)
				gone.Response, gone.Revision, gone.DeletedAt = normalized.Response{}, 1, time.Now()
				_, err := tx.ReviseReply(t.Context(), gone, 0, exchange.Event{Kind: exchange.EventReplyDeleted, At: time.Now()})
				return err
			})
		},
	} {
		turn, digest := insertRunning(t, s), strings.Repeat("2b", 31)+map[string]string{"withdrawn": "01", "forgotten": "02", "answer taken back": "03"}[name]
		putResult(t, s, exchange.RunResult{TurnID: turn.ID, Run: 1, Bytes: 100_000, Digest: digest})
		putResult(t, s, exchange.RunResult{TurnID: turn.ID, Run: 2, Body: json.RawMessage(`{"messages":["words"]}`)})
		mustTx(t, s, func(tx *Tx) error {
			_, err := tx.AnswerTurn(t.Context(), pipeline.Move{ID: turn.ID, From: []string{exchange.StateRunning}, To: exchange.StateAnswered, At: time.Now()}, reply(turn), "")
			return err
		})
		if found := resultsOf(t, s, turn.ID); len(found) != 2 {
			t.Fatalf("%s: %+v", name, found)
		}

		erase(turn)
		if found := resultsOf(t, s, turn.ID); len(found) != 0 || !garbageHas(t, s, digest) {
			t.Errorf("%s: %+v are left", name, found)
		}
	}
}

func resultsSwept(t *testing.T, s *Store) {
	turn, digest := insertRunning(t, s), strings.Repeat("3c", 32)
	old := time.Now().Add(-DefaultCeilings()[RetainResults] - time.Hour)
	putResult(t, s, exchange.RunResult{TurnID: turn.ID, Run: 1, At: old, Digest: digest})
	putResult(t, s, exchange.RunResult{TurnID: turn.ID, Run: 2, At: old.Add(2 * time.Hour), Body: json.RawMessage(`{}`)})
	if err := s.sweepOnce(t.Context(), auditRows); err != nil {
		t.Fatal(err)
	}
	if found := resultsOf(t, s, turn.ID); len(found) != 1 || found[0].Run != 2 || !garbageHas(t, s, digest) {
		t.Errorf("%+v", found)
	}
}
