package pipeline_test

import (
	"strings"
	"testing"

	"inbox/agents"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

// TestYesIsNoAnswerToADemand: a reply "yes" to the message that asked for consent was a question to the agent, without a word that a
// request was open.
func TestYesIsNoAnswerToADemand(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		front := &script{name: "echo", answer: func(turn agents.Turn) normalized.Response {
			if normalized.PlainText(turn.Message.Parts) == "read it" {
				part := policypart.Part{Kind: policypart.ConsentRequired, Title: "May I read your mail?", Message: "The agent wants to read your mail."}
				return normalized.Response{Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &part}}}
			}
			return texts("said")
		}}
		e := composed(t, url, func(*pipeline.Options) {}, front)
		say := func(who, id, thread, text string) exchange.TurnRecord {
			t.Helper()
			in := from(who, id, thread)
			in.Message.Parts = []normalized.Part{normalized.Text(text)}
			return e.settled(t, e.receive(t, in).TurnID)
		}
		answer := func(turn exchange.TurnRecord) string {
			t.Helper()
			if turn.Response == nil {
				t.Fatalf("%s (%s) has no answer", turn.State, turn.Reason)
			}
			return normalized.PlainText(turn.Response.Parts)
		}

		if parked := say("ana", "1", "t", "read it"); parked.State != exchange.StateWaiting {
			t.Fatalf("%s (%s)", parked.State, parked.Reason)
		}
		if got := answer(say("bea", "b1", "t", "yes")); got != "said" {
			t.Errorf("somebody else in the thread is told %q", got)
		}
		if got := answer(say("ana", "2", "other", "yes")); got != "said" {
			t.Errorf("in another conversation the sender is told %q", got)
		}
		ran := len(front.turns())
		reminded := say("ana", "3", "t", "Yes!\n\n> May I read your mail?")
		if got := answer(reminded); !strings.Contains(got, "“May I read your mail?”") || !strings.Contains(got, "Open the link") || strings.Contains(got, "/policy/") {
			t.Errorf("the sender is told %q", got)
		}
		if reminded.Response.Visibility != normalized.VisibilityDirect || len(front.turns()) != ran {
			t.Errorf("visibility %q, the agent ran %d times more", reminded.Response.Visibility, len(front.turns())-ran)
		}
		if got := answer(say("ana", "4", "t", "what for?")); got != "said" {
			t.Errorf("a question while the demand is open is answered %q", got)
		}
		if got := answer(say("ana", "5", "t", "yes")); got != "said" {
			t.Errorf("yes to the agent's newer answer is answered %q", got)
		}
	})
}
