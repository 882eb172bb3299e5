package pipeline_test

import (
	"fmt"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
)

// TestChainAtTheDoor: hops outside the ceiling are refused with a code and an audit row.
func TestChainAtTheDoor(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		front := &script{name: "echo", settings: agents.Settings{MaxHops: 3}, answer: says("hi")}
		e := composed(t, url, nil, front)
		for i, test := range []struct{ hop, most int }{{-1, 4}, {0, 4}, {99, 4}, {5, 4}, {4, 4}, {99, 99}} {
			_, err := e.pipeline.Receive(t.Context(), fromAgent(fmt.Sprint("x", i), "t", test.hop, test.most))
			if !fault.Is(err, fault.Forbidden) || !strings.HasPrefix(fault.Of(err).Public, "chain:exhausted") {
				t.Errorf("hop %d of %d: %v", test.hop, test.most, err)
			}
			records := e.audits(t, "chain:exhausted")
			if len(records) != i+1 || records[i].Agent != "echo" || records[i].Principal == "" {
				t.Errorf("hop %d of %d: audit %+v", test.hop, test.most, records)
			}
		}
		for _, test := range []struct {
			hop, most int
			want      normalized.AgentChain
		}{
			{1, 9, normalized.AgentChain{Hop: 1, MaxHops: 3}},
			{3, 9, normalized.AgentChain{Hop: 3, MaxHops: 3, IsFinal: true}},
			{1, 2, normalized.AgentChain{Hop: 1, MaxHops: 2}},
			{2, 2, normalized.AgentChain{Hop: 2, MaxHops: 2, IsFinal: true}},
		} {
			name := fmt.Sprint("ok", test.hop, test.most)
			turn := e.answered(t, fromAgent(name, name, test.hop, test.most))
			if got := turn.Message.RecipientCapabilities.AgentChain; *got != test.want {
				t.Errorf("hop %d of %d: the agent sees %+v", test.hop, test.most, got)
			}
		}
	})
}

// hopless is a message of an agent on a way that carries no chain.
func hopless(id, thread string, hint *normalized.AgentChain) exchange.Inbound {
	in := from("bot", id, thread)
	in.FromAgent = true
	in.Message.RecipientCapabilities.AgentChain = hint
	return in
}

// TestHopIsKeptByThread: where nothing carries the chain, the fourth message of an agent finds a ceiling of 3 used up.
func TestHopIsKeptByThread(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		front := &script{name: "echo", settings: agents.Settings{MaxHops: 3}, answer: says("hi")}
		e := composed(t, url, nil, front)
		e.answered(t, from("ana", "start", "t"))
		for hop := 1; hop <= 3; hop++ {
			turn := e.answered(t, hopless(fmt.Sprint("m", hop), "t", nil))
			if got := turn.Message.RecipientCapabilities.AgentChain; got == nil || got.Hop != hop || got.IsFinal != (hop == 3) {
				t.Errorf("message %d: %+v", hop, got)
			}
			if seen := front.turns()[hop].Message.RecipientCapabilities.AgentChain; seen == nil || seen.Hop != hop {
				t.Errorf("the agent sees %+v in message %d", seen, hop)
			}
		}
		for range 3 {
			if receipt := e.receive(t, hopless("m4", "t", nil)); receipt.State != exchange.StateSilent {
				t.Fatalf("the fourth message is %s", receipt.State)
			}
		}
		e.receive(t, hopless("m5", "t", nil))
		if records := e.audits(t, "chain:exhausted"); len(records) != 2 || records[0].TurnID == "" {
			t.Errorf("audit %+v", records)
		}
		e.answered(t, from("ana", "again", "t"))
		if turn := e.answered(t, hopless("m6", "t", nil)); turn.Message.RecipientCapabilities.AgentChain.Hop != 1 {
			t.Error("a message of a person does not begin anew")
		}
		if len(front.turns()) != 6 {
			t.Errorf("%d runs", len(front.turns()))
		}
	})
}

// TestHintsOnlyMakeItStricter: a mail can say that it comes further along, never that it does not.
func TestHintsOnlyMakeItStricter(t *testing.T) {
	e := composed(t, "sqlite", nil, &script{name: "echo", answer: says("hi")})
	first := e.answered(t, hopless("m1", "t", &normalized.AgentChain{Hop: 2, MaxHops: 3}))
	if got := first.Message.RecipientCapabilities.AgentChain; got.Hop != 2 || got.MaxHops != 3 {
		t.Errorf("first %+v", got)
	}
	second := e.answered(t, hopless("m2", "t", &normalized.AgentChain{Hop: 1, MaxHops: 99}))
	if got := second.Message.RecipientCapabilities.AgentChain; got.Hop != 3 || got.MaxHops != 4 {
		t.Errorf("second %+v", got)
	}
	receipt := e.receive(t, hopless("m3", "u", &normalized.AgentChain{Hop: 7, MaxHops: 9}))
	if receipt.State != exchange.StateSilent {
		t.Errorf("a mail is never refused for its hint, it is %s", receipt.State)
	}
}

// TestPingPong: the seventh message of one agent in one thread within ten minutes is a dead letter.
func TestPingPong(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		front := &script{name: "echo", answer: says("pong")}
		e := composed(t, url, nil, front)
		for i := 1; i <= 6; i++ {
			e.answered(t, fromAgent(fmt.Sprint("m", i), "t", 1, 4))
			if again := e.receive(t, fromAgent(fmt.Sprint("m", i), "t", 1, 4)); again.New || again.State != exchange.StateAnswered {
				t.Fatalf("repeat %d: %+v", i, again)
			}
		}
		seventh := e.receive(t, fromAgent("m7", "t", 1, 4))
		if again := e.receive(t, fromAgent("m7", "t", 1, 4)); seventh.State != exchange.StateSilent || again.New {
			t.Errorf("seventh %+v, repeated %+v", seventh, again)
		}
		records := e.audits(t, "chain:ping_pong")
		if len(records) != 1 || records[0].TurnID != seventh.TurnID || records[0].Agent != "echo" {
			t.Errorf("audit %+v", records)
		}
		turn, err := e.store.Turn(t.Context(), seventh.TurnID)
		if err != nil || !strings.HasPrefix(turn.Reason, "chain:ping_pong: more than 6") {
			t.Errorf("reason %q (%v)", turn.Reason, err)
		}
		if again := e.receive(t, fromAgent("m3", "t", 1, 4)); again.State != exchange.StateAnswered {
			t.Errorf("an old message is %s when it comes again", again.State)
		}
		e.answered(t, fromAgent("other", "u", 1, 4))
		e.answered(t, from("ana", "person", "t"))
		if len(front.turns()) != 8 {
			t.Errorf("%d runs", len(front.turns()))
		}
	})
}

// TestPingPongAtOnce: messages that come at the same time are counted one after the other.
func TestPingPongAtOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := composed(t, url, nil, &script{name: "echo", answer: says("pong")})
		e.answered(t, fromAgent("first", "t", 1, 4))
		states := make(chan string, 20)
		for i := range 20 {
			go func() {
				receipt, err := e.pipeline.Receive(t.Context(), fromAgent(fmt.Sprint("m", i), "t", 1, 4))
				if err != nil {
					t.Error(err)
				}
				states <- receipt.State
			}()
		}
		accepted := 0
		for range 20 {
			if await.Receive(t, states, "the receipts of all messages") == exchange.StateAccepted {
				accepted++
			}
		}
		if accepted != 5 {
			t.Errorf("%d accepted after the first one, want 5", accepted)
		}
		e.idle(t)
	})
}
