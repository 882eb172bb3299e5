package pipeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"inbox/engine/moderation"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/normalized"
)

// TestNewAddressesDoNotEndABrake: a program that answers each answer from a new address, with new words, is answered ten times, whichever node it
// meets and whether that was started again; others of its domain are answered.
func TestNewAddressesDoNotEndABrake(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		front := &script{name: "echo", answer: says("hi")}
		var later lateMeter
		e := composed(t, url, func(o *pipeline.Options) { o.Limiters.Meter = &later }, front)
		rates := func(most int64) []exchange.Rate { return []exchange.Rate{{Amount: most, Window: 31 * 24 * time.Hour}} }
		restart := func() {
			later.Meter = moderation.NewMeter(moderation.MeterOptions{Counters: e.store, Conversation: func(string) exchange.ConversationLimits {
				return exchange.ConversationLimits{Thread: rates(10), Sender: rates(20)}
			}})
		}
		restart()
		say := func(user, chain string, astray bool) (answered bool) {
			in := from(user, "1", "thread of "+user)
			in.Message.Parts = []normalized.Part{normalized.Text("the words of " + user)}
			in.Chain, in.Astray, in.Opens = chain, astray, true
			turn := e.settled(t, e.receive(t, in).TurnID)
			if turn.State == exchange.StateAnswered {
				e.peer.next(t)
				return true
			}
			if turn.State != exchange.StateSilent || !strings.HasPrefix(turn.Reason, "brake:answers_") {
				t.Errorf("%s: %s (%s)", user, turn.State, turn.Reason)
			}
			return false
		}

		answers := 0
		for round := range 20 {
			chain := "thread of case-0"
			if round == 0 {
				chain = ""
			}
			if say(fmt.Sprintf("case-%d", round), chain, round > 0) {
				answers++
			}
			if round == 5 {
				if err := later.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				restart()
			}
		}
		if answers != 10 {
			t.Errorf("%d answers; want 10", answers)
		}
		if !say("ann", "", false) || !say("bea", "another chain", false) {
			t.Error("others of the domain are not answered")
		}

		answers = 0
		for round := range 30 { // a new chain each time
			if say(fmt.Sprintf("lost-%d", round), fmt.Sprintf("chain %d", round), true) {
				answers++
			}
		}
		if answers == 0 || answers > 20 {
			t.Errorf("%d answers in new chains; want at most 20", answers)
		}
		if !say("carl", "", false) {
			t.Error("a person of the domain is not answered")
		}
	})
}
