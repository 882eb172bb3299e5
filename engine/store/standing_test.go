package store

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/engine/pipeline"
	"inbox/engine/store/database"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

// responsesOfStandings is one response for each thing that a reply can be to its asker; the first is none.
func responsesOfStandings() []*normalized.Response {
	list := []*normalized.Response{nil}
	quoted := normalized.Text(`say {"status":"failed"} and "policy"`)
	for _, status := range []string{"", normalized.StatusCompleted, normalized.StatusInputRequired, normalized.StatusFailed} {
		list = append(list, &normalized.Response{Status: status, Parts: []normalized.Part{quoted}})
		for _, kind := range []string{
			policypart.ConsentRequired, policypart.Unauthorized, policypart.PaymentRequired, policypart.Forbidden,
			policypart.TooManyRequests, policypart.UnavailableForLegalReasons, policypart.ServiceUnavailable, "com.example.newer",
		} {
			part := normalized.Part{Kind: normalized.PartPolicy, Policy: &policypart.Part{Kind: kind, Message: "m"}}
			list = append(list, &normalized.Response{Status: status, Parts: []normalized.Part{quoted, part}})
		}
	}

	return append(list, &normalized.Response{Silent: true, Status: normalized.StatusCompleted, Parts: []normalized.Part{}})
}

// turnsOfStandings is a turn for each way to stand.
func turnsOfStandings() (list []exchange.TurnRecord) {
	for _, state := range turnStates {
		reasons, attempts := []string{"why"}, []int{1}
		switch state {
		case exchange.StateWaiting:
			reasons = []string{
				"", "payment", "payment_required", "input", "consent_required", exchange.WaitingDispatch, exchange.WaitingTool,
				exchange.WaitingTool + " x", exchange.WaitingTool + "s", exchange.WaitingAuthorization, "Payment", "approval",
			}

		case exchange.StateAccepted:
			attempts = []int{0, 1}
		}

		for _, response := range responsesOfStandings() {
			for _, reason := range reasons {
				for _, attempt := range attempts {
					turn := exchange.TurnRecord{
						ID: uuid.Must(uuid.NewV7()).String(), Agent: "echo", Principal: "p", ThreadID: "t", State: state, Reason: reason, Attempt: attempt,
						Response: response, Message: normalized.Message{ReceivedVia: normalized.ViaA2A}, AcceptedAt: time.UnixMicro(1),
					}
					turn.Reference, turn.Message.ID = "task of "+turn.ID, turn.ID
					if response != nil {
						turn.ReplyID = "reply of " + turn.ID
					}

					list = append(list, turn)
				}
			}
		}
	}
	return list
}

// TestStandings: the lists of tasks in a state hold those that package exchange puts in it, and an owner's context
// returns the same; for rows that were stored now and for those of an earlier schema.
func TestStandings(t *testing.T) {
	for name, open := range map[string]func(*testing.T, func(*sql.DB, string)) *Store{
		"sqlite": func(t *testing.T, before func(*sql.DB, string)) *Store {
			directory := t.TempDir()
			prepared(t, "sqlite", sqliteURL(filepath.Join(directory, File)), database.SQLite, before)
			return openedStore(t, Options{DataDir: directory})
		},
		"postgres": func(t *testing.T, before func(*sql.DB, string)) *Store {
			url := storetest.EmptyPostgres(t)
			prepared(t, "pgx", url, database.Postgres, before)
			return openedStore(t, Options{URL: url, Connections: 2})
		},
	} {
		t.Run(name, func(t *testing.T) {
			turns := turnsOfStandings()
			s := open(t, nil)
			if err := s.InTx(t.Context(), func(tx *Tx) error { return insertStandings(t, tx, turns) }); err != nil {
				t.Fatal(err)
			}

			checkStandings(t, s, turns, nil)
			checkGivenUp(t, s, turns)
		})

		t.Run(name+", migrated", func(t *testing.T) {
			turns := turnsOfStandings()
			given := map[string]bool{}
			s := open(t, func(pool *sql.DB, kind string) { insertBefore(t, pool, kind, turns, given) })
			checkStandings(t, s, turns, given)
		})
	}
}

func prepared(t *testing.T, driver, url string, kind string, before func(*sql.DB, string)) {
	t.Helper()
	if before == nil {
		return
	}

	pool, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}

	before(pool, kind)
	if err := pool.Close(); err != nil {
		t.Fatal(err)
	}
}

func openedStore(t *testing.T, options Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func insertStandings(t *testing.T, tx *Tx, turns []exchange.TurnRecord) error {
	t.Helper()
	for _, turn := range turns {
		earlier := turn // of the same task, and of no standing of its own
		earlier.ID, earlier.Message.ID, earlier.State = "00"+turn.ID[2:], "first of "+turn.ID, exchange.StateHeld
		for _, one := range []exchange.TurnRecord{earlier, turn} {
			if _, inserted, err := tx.InsertTurn(t.Context(), one, pipeline.Original{}); err != nil || !inserted {
				return fmt.Errorf("insert %s: %v, %w", one.ID, inserted, err)
			}
		}

		if turn.Response == nil {
			continue
		}
		if err := tx.InsertReply(t.Context(), exchange.Reply{ID: turn.ReplyID, TurnID: turn.ID, Response: *turn.Response}, ""); err != nil {
			return err
		}
	}
	return nil
}

// insertBefore stores the turns in the schema before this one. Every second question was given up.
func insertBefore(t *testing.T, pool *sql.DB, kind string, turns []exchange.TurnRecord, given map[string]bool) {
	t.Helper()
	if err := database.MigrateTo(t.Context(), pool, kind, 18); err != nil {
		t.Fatal(err)
	}

	transaction, err := pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}

	do := func(query string, arguments ...any) {
		t.Helper()
		if _, err := transaction.ExecContext(t.Context(), query, arguments...); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}

	const insert = `INSERT INTO turns (id, agent, recipient, received_via, principal, native_id, thread_id, reference, native_key, sender_key,
		thread_key, owner_key, reference_key, state, reason, attempt, reply_id, accepted_at, updated_at, original_digest, route, message)
		VALUES ($1, 'echo', '', 'a2a', 'p', $1, 't', $2, $3, 'k', $4, $5, $6, $7, $8, $9, $10, 1, 1, '', '{}', '{}')`
	for i, turn := range turns {
		for _, id := range []string{"00" + turn.ID[2:], turn.ID} {
			do(insert, id, turn.Reference, hashKey(id), hashKey("echo", "t"), hashKey("echo", "p"), hashKey(turn.Reference),
				turn.State, turn.Reason, turn.Attempt, turn.ReplyID)
		}

		if turn.Response != nil {
			body, err := json.Marshal(turn.Response)
			if err != nil {
				t.Fatal(err)
			}
			do(`INSERT INTO replies (id, turn_id, notice, agent, native_id, native_key, created_at, response) VALUES ($1, $2, 0, 'echo', '', '', 1, $3)`,
				turn.ReplyID, turn.ID, string(body))
		}

		value := "message m"
		if i%2 == 0 && asks(turn) {
			given[turn.ID], value = true, "cancel 2026-01-02T03:04:05Z"
		}

		do(`INSERT INTO documents (namespace, key, encoding, value, expires_at) VALUES ('a2a.next', $1, 'utf8', $2, 0)`, turn.ID, value)
	}

	if err := transaction.Commit(); err != nil {
		t.Fatal(err)
	}
}

// asks reports whether a turn has ended with a question to its asker.
func asks(turn exchange.TurnRecord) bool {
	standing := exchange.StandingOf(turn)
	return exchange.Terminal(turn.State) && (standing == exchange.StandingInput || standing == exchange.StandingAuthorize)
}

func checkStandings(t *testing.T, s *Store, turns []exchange.TurnRecord, given map[string]bool) {
	t.Helper()
	want := map[string][]string{}
	for _, turn := range turns {
		standing := exchange.StandingOf(turn)
		if given[turn.ID] {
			standing = exchange.StandingCancelled
		}
		want[standing] = append(want[standing], turn.ID)
		want[""] = append(want[""], turn.ID)
	}

	for _, thread := range []string{"", "t"} {
		for _, standing := range append([]string{""}, exchange.Standings...) {
			filter := exchange.TurnFilter{
				Agent: "echo", Principal: "p", ThreadID: thread, ReceivedVia: normalized.ViaA2A, Latest: true, Standing: standing, Limit: 97,
			}

			var got []string
			for next := true; next; next = filter.Before != "" {
				page, err := s.Turns(t.Context(), filter)
				if err != nil {
					t.Fatal(err)
				}

				page, filter.Before = exchange.NextPage(page, 96, exchange.TurnCursor)
				for _, turn := range page {
					got = append(got, turn.ID)
				}
			}

			filter.Before = ""
			counted, err := s.CountTurns(t.Context(), filter)
			slices.Reverse(got)
			if !slices.Equal(got, want[standing]) || err != nil || int(counted) != len(want[standing]) || len(got) == 0 {
				t.Errorf("%q in thread %q: %d listed, %d counted, %v; want %d", standing, thread, len(got), counted, err, len(want[standing]))
				explainStandings(t, turns, got, want[standing])
			}
		}
	}
}

func explainStandings(t *testing.T, turns []exchange.TurnRecord, got, want []string) {
	t.Helper()
	for _, turn := range turns {
		if in := slices.Contains(got, turn.ID); in != slices.Contains(want, turn.ID) {
			t.Errorf("listed %v: %s %q attempt %d outcome %q", in, turn.State, turn.Reason, turn.Attempt, exchange.OutcomeOf(turn.Response))
		}
	}
}

// checkGivenUp returns all questions up that have ended their turns.
func checkGivenUp(t *testing.T, s *Store, turns []exchange.TurnRecord) {
	t.Helper()
	given := map[string]bool{}
	err := s.InTx(t.Context(), func(tx *Tx) error {
		for _, turn := range turns {
			if !asks(turn) {
				continue
			}
			given[turn.ID] = true
			moved, err := tx.MoveTurn(t.Context(), pipeline.Move{
				ID: turn.ID, From: []string{turn.State}, To: turn.State, At: time.UnixMicro(1), GivenUp: true,
			})
			if err != nil || !moved {
				return fmt.Errorf("give %s up: %v, %w", turn.ID, moved, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	checkGiven(t, s, turns, given)
}

func checkGiven(t *testing.T, s *Store, turns []exchange.TurnRecord, given map[string]bool) {
	t.Helper()
	cancelled, err := s.Turns(t.Context(), exchange.TurnFilter{
		Agent: "echo", Principal: "p", ReceivedVia: normalized.ViaA2A, Latest: true, Standing: exchange.StandingCancelled,
	})
	if err != nil {
		t.Fatal(err)
	}

	want := len(given)
	for _, turn := range turns {
		if turn.State == exchange.StateCancelled {
			want++
		}
	}

	if len(cancelled) != want || len(given) == 0 {
		t.Errorf("%d are cancelled, want %d", len(cancelled), want)
	}
}
