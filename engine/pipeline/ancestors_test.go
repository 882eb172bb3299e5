package pipeline_test

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"inbox/agents"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

func told(id, text string) normalized.HistoricalMessage {
	return normalized.HistoricalMessage{
		ID: id, Role: normalized.RoleUser, Parts: parts(text), Timestamp: identity.Now(),
		Sender: normalized.Sender{Address: identity.Stated("@bo@peer.test"), AuthMethod: normalized.AuthNone},
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
		e.toldAgain(t, "m3@peer.test", "first second hello m1 re: hello m1 hello m2 re: hello m2 between")
		if searches.Load() != 4 {
			t.Errorf("%d searches for 4 turns", searches.Load())
		}
	})
}

// toldAgain reads what an agent was told, and the message of a turn that never ran: neither asks other servers.
func (e *engine) toldAgain(t *testing.T, message, want string) {
	t.Helper()
	turns, err := e.store.Turns(t.Context(), exchange.TurnFilter{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range turns {
		turn, err := e.store.Turn(t.Context(), one.ID)
		if err != nil {
			t.Fatal(err)
		}
		if turn.Message.ID != message {
			continue
		}

		again, err := e.pipeline.Told(t.Context(), turn)
		var said []string
		for _, one := range again.History {
			said = append(said, normalized.PlainText(one.Parts))
		}
		if got := strings.Join(words(strings.Join(said, " ")), " "); err != nil || got != want {
			t.Errorf("told again %q, %v; want %q", got, err, want)
		}
		turn.ID, turn.ThreadID = "01a20969-0000-7000-8000-000000000000", "a thread that did not begin"
		if never, err := e.pipeline.Told(t.Context(), turn); err != nil || len(never.History) > 0 {
			t.Errorf("a turn that never ran was told %v, %v", never.History, err)
		}
		return
	}
	t.Fatalf("there is no turn of %s", message)
}

// TestBeginningStaysWhileTheThreadGoesOn: each turn gives what was said before its thread its whole life again, a day apart.
func TestBeginningStaysWhileTheThreadGoesOn(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		w := &witness{seen: map[string]string{}}
		e := start(t, url, w.agent, agents.Settings{})
		e.peer.late = func(turn exchange.TurnRecord) bool { return turn.Message.ID == "m1@peer.test" }
		e.peer.past = func(exchange.TurnRecord) []normalized.HistoricalMessage {
			return []normalized.HistoricalMessage{told("a", "first")}
		}
		w.ask(t, e, from("ana", "m1", "thread"))
		turn, err := e.store.Turn(t.Context(), e.receive(t, from("ana", "m2", "thread")).TurnID)
		if err != nil {
			t.Fatal(err)
		}
		e.settled(t, turn.ID)
		namespace, key := pipeline.AncestorsOf(turn.Agent, turn.ThreadID)
		kept := func() (value map[string]any, at time.Time) {
			t.Helper()
			raw, found, err := e.store.State().Get(t.Context(), namespace, key)
			if err != nil || !found {
				t.Fatalf("found %t, %v", found, err)
			}
			if err := json.Unmarshal(raw, &value); err != nil {
				t.Fatal(err)
			}
			at, err = time.Parse(time.RFC3339Nano, value["kept"].(string))
			if err != nil {
				t.Fatal(err)
			}
			return value, at
		}
		value, first := kept()
		w.ask(t, e, from("ana", "m3", "thread"))
		if _, again := kept(); !again.Equal(first) {
			t.Errorf("written at %v and again at %v", first, again)
		}
		value["kept"] = first.Add(-25 * time.Hour)
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		soon := time.Now().Add(time.Hour)
		if err := e.store.State().Put(t.Context(), namespace, key, raw, soon); err != nil {
			t.Fatal(err)
		}
		if seen := w.ask(t, e, from("ana", "m4", "thread")); !strings.HasPrefix(strings.Join(words(seen), " "), "first hello m1") {
			t.Errorf("saw %q", seen)
		}
		if _, again := kept(); again.Before(first) {
			t.Errorf("written at %v, not since", again)
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
