package pipeline_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/normalized"
)

// TestRunOverItsTimeLimitIsRepeatedOnce: each run may cost money, so that an agent that is too slow for its limit is asked twice, whatever
// else fails between, and then the asker reads that it was too slow and the operator which limit ended it. Runs that failed before, or
// were cut off, do not count.
func TestRunOverItsTimeLimitIsRepeatedOnce(t *testing.T) {
	late := upstream.Overdue(errors.New("the webhook did not finish its answer within the time limit"))
	other := fault.RetryIn(0, upstream.Unreachable, errors.New("unexpected EOF"))
	for name, runs := range map[string][]error{
		"twice":         {late, late},
		"cut between":   {late, other, late},
		"failed before": {other, late, late},
	} {
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, url string) {
				var count atomic.Int32
				slow := func(context.Context, agents.Turn) iter.Seq2[normalized.Delta, error] {
					return func(yield func(normalized.Delta, error) bool) {
						if run := int(count.Add(1)); run <= len(runs) {
							yield(normalized.Delta{}, runs[run-1])
						}
					}
				}
				e := start(t, url, slow, agents.Settings{Unverified: agents.UnverifiedAnswer, Retry: agents.RetryPolicy{Schedule: slices.Repeat([]time.Duration{time.Millisecond}, 9)}})
				turn := e.settled(t, e.receive(t, message("m1")).TurnID)
				if int(count.Load()) != len(runs) {
					t.Errorf("%d runs, want %d", count.Load(), len(runs))
				}
				if turn.Response == nil || turn.Response.Error == nil || turn.Response.Error.Code != normalized.FailedTimeout ||
					normalized.PlainText(turn.Response.Parts) != "Sorry, I could not answer this message in time." {
					t.Errorf("the asker reads %+v", turn.Response)
				}
				if !strings.Contains(turn.Reason, "within the time limit") || !strings.Contains(turn.Reason, "raise the agent's timeout") {
					t.Errorf("the operator reads %q", turn.Reason)
				}
			})
		})
	}
}
