package pipeline_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

func told(id, text string) normalized.HistoricalMessage {
	return normalized.HistoricalMessage{
		ID: id, Role: normalized.RoleUser, Parts: parts(text), Timestamp: identity.Now(),
		Sender: normalized.Sender{Address: "@bo@peer.test", AuthMethod: normalized.AuthNone},
	}
}

// TestLateThreadsHaveTheirBeginning: what was said before the agent was asked stands in the history of the turn and of
// all that follow, is asked for once, and an unsound piece does not spoil the rest.
func TestLateThreadsHaveTheirBeginning(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		w := &witness{seen: map[string]string{}}
		e := start(t, url, w.agent, agents.Settings{})
		var searches atomic.Int32
		e.peer.past = func(turn exchange.TurnRecord) []normalized.HistoricalMessage {
			searches.Add(1)
			if turn.Message.ID == "m1@peer.test" {
				return []normalized.HistoricalMessage{told("a", "first"), {ID: "b", Role: "nobody"}, told("c", "second")}
			}
			if turn.Message.ID == "m3@peer.test" {
				return []normalized.HistoricalMessage{told("d", "between")}
			}
			return nil
		}
		one := w.ask(t, e, from("ana", "m1", "thread"))
		two := w.ask(t, e, from("ana", "m2", "thread"))
		three := w.ask(t, e, from("ana", "m3", "thread"))
		other := w.ask(t, e, from("ana", "m4", "other"))
		for _, c := range []struct{ got, want string }{
			{one, "first second"}, {two, "first second hello m1 re: hello m1"},
			{three, "first second hello m1 re: hello m1 hello m2 re: hello m2 between"}, {other, ""},
		} {
			if got := strings.Join(words(c.got), " "); got != c.want {
				t.Errorf("saw %q, want %q", c.got, c.want)
			}
		}
		if searches.Load() != 4 {
			t.Errorf("%d searches for 4 turns", searches.Load())
		}
	})
}

// words leaves out the attributions and the marks between turns.
func words(seen string) []string {
	return slices.DeleteFunc(strings.Fields(seen), func(word string) bool {
		return word == "|" || strings.HasPrefix(word, "@") || strings.HasPrefix(word, "(")
	})
}

// TestSearchIsNotRepeatedForEver: runs that end without an answer search again once, and then go without.
func TestSearchIsNotRepeatedForEver(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		var runs, searches atomic.Int32
		agent := func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			if runs.Add(1) < 2 {
				return normalized.Failing(fault.RetryIn(1, "not now", nil))
			}
			return repeats(ctx, turn)
		}
		e := start(t, url, agent, agents.Settings{})
		e.peer.past = func(exchange.TurnRecord) []normalized.HistoricalMessage { searches.Add(1); return nil }
		if turn := e.settled(t, e.receive(t, from("ana", "m1", "thread")).TurnID); turn.State != exchange.StateAnswered {
			t.Errorf("%s", turn.State)
		}
		if searches.Load() != 1 || runs.Load() != 2 {
			t.Errorf("%d searches in %d runs", searches.Load(), runs.Load())
		}
	})
}
