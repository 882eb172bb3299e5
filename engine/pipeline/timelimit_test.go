package pipeline_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync/atomic"
	"testing"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/normalized"
)

// TestRunOverItsTimeLimitIsRepeatedOnce: each run may cost money, so that an agent that is too slow for its limit is asked twice, and
// then the asker reads that it was too slow and the operator which limit ended it.
func TestRunOverItsTimeLimitIsRepeatedOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		var runs atomic.Int32
		slow := func(context.Context, agents.Turn) iter.Seq2[normalized.Delta, error] {
			return func(yield func(normalized.Delta, error) bool) {
				runs.Add(1)
				yield(normalized.Delta{}, upstream.Overdue(errors.New("the webhook did not finish its answer within the time limit")))
			}
		}
		e := start(t, url, slow, soon)
		turn := e.settled(t, e.receive(t, message("m1")).TurnID)
		if runs.Load() != 2 {
			t.Errorf("%d runs", runs.Load())
		}
		if turn.Response == nil || turn.Response.Error == nil || turn.Response.Error.Code != normalized.FailedTimeout ||
			normalized.PlainText(turn.Response.Parts) != "Sorry, I could not answer this message in time." {
			t.Errorf("the asker reads %+v", turn.Response)
		}
		if !strings.Contains(turn.Reason, "within the time limit") || !strings.Contains(turn.Reason, "raise the agent's timeout") {
			t.Errorf("the operator reads %q", turn.Reason)
		}
	})
}
