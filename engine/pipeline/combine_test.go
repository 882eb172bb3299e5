package pipeline_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// copies answers with an address in cc and one in to.
func copies(words string, to []string, cc ...string) func(agents.Turn) normalized.Response {
	return func(agents.Turn) normalized.Response {
		r := texts(words)
		r.To, r.Cc = to, cc
		return r
	}
}

// unrelayed is a message of a person on a way that relays no mention.
func unrelayed(id string) exchange.Inbound {
	in := message(id)
	in.Message.RecipientCapabilities.MentionRelay = normalized.MentionRelay{Kind: normalized.RelayNone}
	return in
}

func TestMentionedAgentsAnswerInOneReply(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		front := &script{name: "echo", answer: copies("Let us see.", []string{b}, "@far@far.test", "@gone@far.test", "@B@inbox.test", "@echo@inbox.test")}
		other := &script{name: "b", answer: says("It will.", "Take a coat.")}
		e := composed(t, url, func(o *pipeline.Options) {
			o.Caller = callFunc(func(_ context.Context, d exchange.Dispatch) (normalized.Response, error) {
				if d.To == "@gone@far.test" {
					return normalized.Response{}, fault.GiveUp("no card", nil)
				}
				return texts("Sun from far."), nil
			})
		}, front, other)
		turn := e.answered(t, unrelayed("m1"))
		if diff := cmp.Diff([]string{
			"Let us see.", "**" + b + "**:", "It will.", "Take a coat.", "**@far@far.test**:", "Sun from far.", "(@gone@far.test could not be reached.)",
		}, plain(turn.Response)); diff != "" {
			t.Error(diff)
		}
		if turn.State != exchange.StateAnswered || turn.Response.To != nil || turn.Response.Cc != nil {
			t.Errorf("%s with recipients %v %v", turn.State, turn.Response.To, turn.Response.Cc)
		}
		if e.peer.next(t); e.peer.count() != 1 || len(front.turns()) != 1 || len(other.turns()) != 1 {
			t.Errorf("%d deliveries, %d and %d runs", e.peer.count(), len(front.turns()), len(other.turns()))
		}
		got := other.turns()[0].Message
		if diff := cmp.Diff([]string{"@ana@peer.test:", "hello m1", "@echo@inbox.test:", "Let us see."}, plain(&normalized.Response{Parts: got.Parts})); diff != "" {
			t.Error(diff)
		}
	})
}

// TestAgentsOfThisServerAreReachedOnEveryWay: people stay in cc, agents of this server are asked.
func TestAgentsOfThisServerAreReachedOnEveryWay(t *testing.T) {
	front := &script{name: "echo", answer: copies("Ask them.", nil, "@bo@peer.test", b)}
	e := composed(t, "sqlite", nil, front, &script{name: "b", answer: says("Asked.")})
	turn := e.answered(t, message("m1"))
	if diff := cmp.Diff([]string{"Ask them.", "**" + b + "**:", "Asked."}, plain(turn.Response)); diff != "" {
		t.Error(diff)
	}
	if !cmp.Equal(turn.Response.Cc, []string{"@bo@peer.test"}) {
		t.Errorf("cc %v", turn.Response.Cc)
	}
}

// TestCrashBeforeTheCombinedAnswer: the draft is a row, so the agent is not asked again.
func TestCrashBeforeTheCombinedAnswer(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		front := &script{name: "echo", answer: copies("Let us see.", nil, b)}
		other := &script{name: "b", answer: says("It will.")}
		e := composed(t, url, func(o *pipeline.Options) {
			broken := &crashing{Store: o.Store}
			broken.before.Store(2)
			o.Store = broken
		}, front, other)
		turn := e.answered(t, unrelayed("m1"))
		if got := plain(turn.Response); len(got) != 3 || len(front.turns()) != 1 || len(other.turns()) != 1 {
			t.Errorf("%q after %d and %d runs", got, len(front.turns()), len(other.turns()))
		}
	})
}

// TestLastAgentOfAChainMentionsNobody: with is_final no one is brought in, in whatever way.
func TestLastAgentOfAChainMentionsNobody(t *testing.T) {
	front := &script{name: "echo", answer: func(agents.Turn) normalized.Response {
		r := texts("Thanks @bot@peer.test. Ask @b@inbox.test, @x@known.test or @ana@peer.test.")
		r.Cc = []string{b}
		return r
	}}
	e := composed(t, "sqlite", nil, front, &script{name: "b", answer: says("never asked")})
	turn := e.answered(t, fromAgent("m1", "t1", 4, 4))
	if text := normalized.PlainText(turn.Response.Parts); text != "Thanks @bot@peer.test. Ask b@inbox.test, @x@known.test or @ana@peer.test." || turn.Response.Cc != nil {
		t.Errorf("%q cc %v", text, turn.Response.Cc)
	}
	records := e.audits(t, "chain:stripped")
	if len(records) != 1 || records[0].TurnID != turn.ID || records[0].Detail != "recipient "+b+", mention of "+b {
		t.Errorf("audit %+v", records)
	}
}

// TestFailureMentionsNobody: an answer that failed asks no one else.
func TestFailureMentionsNobody(t *testing.T) {
	front := &script{name: "echo", answer: func(agents.Turn) normalized.Response {
		return normalized.Response{
			Cc: []string{b}, Status: normalized.StatusFailed, Error: &normalized.ResponseError{Code: "x", Message: "No."},
		}
	}}
	other := &script{name: "b", answer: says("never asked")}
	e := composed(t, "sqlite", nil, front, other)
	turn := e.answered(t, unrelayed("m1"))
	if turn.State != exchange.StateFailed || len(other.turns()) != 0 || turn.Response.Cc != nil {
		t.Errorf("%s, %d runs, cc %v", turn.State, len(other.turns()), turn.Response.Cc)
	}
}

func TestEndlessAnswersAreLeftOutOfTheReply(t *testing.T) {
	many := make([]string, 60)
	for i := range many {
		many[i] = "line"
	}
	front := &script{name: "echo", answer: func(agents.Turn) normalized.Response {
		r := texts(many...)
		r.Cc = []string{b}
		return r
	}}
	e := composed(t, "sqlite", nil, front, &script{name: "b", answer: says(many...)})
	turn := e.answered(t, unrelayed("m1"))
	got := plain(turn.Response)
	if len(got) != 61 || !strings.Contains(got[60], "does not fit") {
		t.Errorf("%d parts, the last is %q", len(got), got[len(got)-1])
	}
}
