package store

import (
	"strings"
	"testing"
	"time"

	"inbox/engine/pipeline"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/normalized"
)

// TestHeldAndSilentMessagesEnd: a held message is refused at its time and on record, the content of both goes with its
// files, and so does that of a dropped one; what was released stays; the sums are those of the rows.
func TestHeldAndSilentMessagesEnd(t *testing.T) {
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

			now := time.Now()
			room := pipeline.Usage{Messages: 10, Bytes: 1000}
			insert := func(id, state, account string, ends time.Time) {
				turn := exchange.TurnRecord{
					ID: id, Agent: "echo", Principal: "p " + id, ThreadID: id, State: state, Network: account, AcceptedAt: now.Add(-time.Hour),
					Message: normalized.Message{ID: id, ThreadID: id, Recipient: "@echo@inbox.test", ReceivedVia: normalized.ViaEmail, Parts: []normalized.Part{
						normalized.Text("secret words"),
						{Kind: normalized.PartFile, MIME: "image/png", BytesRef: &normalized.BytesRef{Kind: "content_addressed", Algo: "sha256", Digest: strings.Repeat(id, 64)}},
					}},
				}

				err := s.InTx(t.Context(), func(tx *Tx) error {
					if _, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{Digest: strings.Repeat(id, 64), MediaType: "message/rfc822"}); err != nil {
						return err
					}
					fits, err := tx.KeepUnanswered(t.Context(), pipeline.Unanswered{TurnID: id, Account: account, Bytes: 100, Ends: ends, Quota: room, All: room})
					if !fits {
						t.Errorf("%s does not fit", id)
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}

			past, future := now.Add(-time.Second), now.Add(time.Hour)
			insert("a", exchange.StateHeld, "n", past)
			insert("b", exchange.StateHeld, "n", future)
			insert("c", exchange.StateSilent, "m", past)
			insert("d", exchange.StateSilent, "", future)
			insert("e", exchange.StateHeld, "m", past)
			insert("f", exchange.StateHeld, "m", past)

			for id, to := range map[string]string{"e": exchange.StateAccepted, "f": exchange.StateRefused} {
				err := s.InTx(t.Context(), func(tx *Tx) error {
					_, err := tx.MoveTurn(t.Context(), pipeline.Move{ID: id, From: []string{exchange.StateHeld}, To: to, At: now})
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}

			if used, err := s.Unanswered(t.Context()); err != nil || used != (pipeline.Usage{Messages: 4, Bytes: 400}) {
				t.Errorf("%+v %v", used, err)
			}

			for range 2 { // a second one finds nothing
				if err := s.sweepUnanswered(t.Context(), now); err != nil {
					t.Fatal(err)
				}
			}

			for id, want := range map[string]struct {
				state  string
				erased bool
			}{
				"a": {exchange.StateRefused, true}, "b": {exchange.StateHeld, false}, "c": {exchange.StateSilent, true},
				"d": {exchange.StateSilent, false}, "e": {exchange.StateAccepted, false}, "f": {exchange.StateRefused, true},
			} {
				turn, err := s.Turn(t.Context(), id)
				if err != nil || turn.State != want.state || (len(turn.Message.Parts) == 0) != want.erased {
					t.Errorf("%s: %s with %d parts, %v", id, turn.State, len(turn.Message.Parts), err)
				}

				garbage, err := s.Garbage(t.Context(), strings.Repeat(id, 63), 1)
				if err != nil || (len(garbage) == 1 && garbage[0].Digest == strings.Repeat(id, 64)) != want.erased {
					t.Errorf("%s: garbage %+v %v", id, garbage, err)
				}
			}

			records, err := s.AuditRecords(t.Context(), exchange.AuditFilter{Code: auditHeldExpired, Limit: 10})
			if err != nil || len(records) != 1 || records[0].TurnID != "a" {
				t.Errorf("audit: %+v %v", records, err)
			}

			events, err := s.Events(t.Context(), "a", 1, 10)
			if err != nil || len(events) != 1 || !strings.Contains(string(events[0].Body), "held until its time was over") {
				t.Errorf("timeline: %+v %v", events, err)
			}

			sums := map[string]int64{}
			if err := s.engine.Reader().Each(t.Context(), `SELECT account, messages FROM unanswered_sums`, nil, func(r row) error {
				var account string
				var messages int64
				err := r.Scan(&account, &messages)
				sums[account] = messages
				return err
			}); err != nil || len(sums) != 2 || sums["n"] != 1 || sums[""] != 2 {
				t.Errorf("sums: %v %v", sums, err)
			}
		})
	}
}
