package pipeline_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"inbox/agents"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/history"
	"inbox/normalized"
)

// TestHistoryIsExact: what is read of a thread gives, byte for byte, the history that all of it would give.
func TestHistoryIsExact(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		opened, err := store.Open(t.Context(), store.Options{URL: url, DataDir: directory(t)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := opened.Close(); err != nil {
				t.Error(err)
			}
		}()
		asked := mixed(t, opened)
		service := pipeline.New(pipeline.Options{Store: opened.Pipeline()})
		rapid.Check(t, func(rt *rapid.T) {
			agent := agents.Entry{Profile: exchange.AgentProfile{Name: "echo", Address: "@echo@inbox.test"}, Settings: agents.Settings{
				HistoryScope: rapid.SampledFrom([]string{agents.HistoryThread, agents.HistoryPerson}).Draw(rt, "scope"),
				History: history.Policy{
					KeepHead: rapid.IntRange(0, 4).Draw(rt, "head"), Window: rapid.IntRange(1, 30).Draw(rt, "window"),
					Slide: rapid.IntRange(1, 10).Draw(rt, "slide"), MaxBytes: rapid.SampledFrom([]int{0, 200, 2000, 5000}).Draw(rt, "bytes"),
				},
			}}
			turn := rapid.SampledFrom(asked).Draw(rt, "turn")
			query := pipeline.ThreadQuery{Agent: "echo", ThreadID: turn.ThreadID, Before: turn.ID, Tail: 1000}
			query.Principals, query.Elsewhere = []string{turn.Principal}, agent.Settings.HistoryScope == agents.HistoryPerson
			all, err := opened.ThreadExcerpt(t.Context(), query)
			if err != nil {
				rt.Fatal(err)
			}
			want, wantBreakpoint := history.TrimThread(history.Thread{
				Tail: pipeline.HistoryOf(agent, all.Tail), Total: all.Total,
			}, agent.Settings.History)
			got, breakpoint, err := service.WithHistory(t.Context(), agent, turn)
			if err != nil {
				rt.Fatal(err)
			}
			if d := cmp.Diff(document(rt, want), document(rt, got.History)) + cmp.Diff(wantBreakpoint, breakpoint); d != "" {
				rt.Fatal(d)
			}
		})
	})
}

func document(t *rapid.T, turns []normalized.HistoricalMessage) (lines []string) {
	for _, turn := range turns {
		body, err := json.Marshal(turn)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(body))
	}
	return lines
}

// mixed stores what ana and bo said in three threads: answered, not answered, held, taken back.
func mixed(t *testing.T, s *store.Store) (asked []exchange.TurnRecord) {
	t.Helper()
	for i := range 90 {
		var turn exchange.TurnRecord
		err := s.Pipeline().InTx(t.Context(), func(tx pipeline.Tx) (err error) {
			message := from([]string{"ana", "bo"}[i%5/4], fmt.Sprint("m", i), fmt.Sprint("thread ", i*i%3)).Message
			if i%7 == 3 {
				turn = exchange.TurnRecord{
					ID: newID(), Agent: "echo", Principal: message.Sender.Principal(), ThreadID: message.ThreadID, Message: message,
					State: []string{exchange.StateHeld, exchange.StateAccepted}[i%2], Shared: true, AcceptedAt: time.Now(),
				}
				_, _, err = tx.InsertTurn(t.Context(), turn, pipeline.Original{})
				return err
			}
			if turn, err = stored(t.Context(), tx, message, true); err == nil && i%11 == 5 {
				_, err = tx.WithdrawTurn(t.Context(), turn.ID, time.Now())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		asked = append(asked, turn)
	}
	return asked
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }
