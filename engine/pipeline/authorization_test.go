package pipeline_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/normalized"
)

// signsInElsewhere waits twice for someone who signs in, tells of it in the first run, and answers in the third.
func signsInElsewhere(pause time.Duration) agents.Func {
	return func(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
		if turn.Attempt > 2 {
			return normalized.Whole(texts("here it is"))
		}
		err := turn.Requests.Await(map[string]any{
			"tool_name": exchange.ToolAuthorization, "tool_call_id": string(rune('0' + turn.Attempt)), "run_id": turn.ID,
			"timeout_at": time.Now().Add(pause).UTC().Format(time.RFC3339Nano),
		})
		if err != nil {
			return normalized.Failing(err)
		}
		response := texts("sign in at the calendar")
		response.Status = normalized.StatusInputRequired
		if turn.Attempt > 1 {
			response = normalized.Response{Silent: true, Status: normalized.StatusCompleted}
		}
		return normalized.Whole(response)
	}
}

// TestWaitForALoginElsewhereIsToldOnce: the asker hears once that someone has to sign in, the turn waits as a row, goes on by
// itself when its time comes, and its answer is sent.
func TestWaitForALoginElsewhereIsToldOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, signsInElsewhere(50*time.Millisecond), agents.Settings{})
		turnID := e.receive(t, message("m1")).TurnID
		if got := e.said(t); got != "sign in at the calendar" {
			t.Fatalf("told %q", got)
		}
		if turn := e.settled(t, turnID); turn.State != exchange.StateWaiting || turn.Reason != exchange.WaitingAuthorization {
			t.Fatalf("the turn is %s (%s)", turn.State, turn.Reason)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.pipeline.ExpireTools(ctx) }()
		if got := e.said(t); got != "here it is" {
			t.Errorf("answered %q", got)
		}
		stop()
		if err := await.Receive(t, ended, "the end of the clock"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		await.Until(t, "the turn is answered", func() bool {
			turn, err := e.store.Turn(t.Context(), turnID)
			return err == nil && turn.State == exchange.StateAnswered && turn.Attempt == 3
		})
	})
}

// TestWaitForALoginAwaitsApproval: what an approver has to see first is not told.
func TestWaitForALoginAwaitsApproval(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		e := start(t, url, signsInElsewhere(time.Hour), agents.Settings{ApproveReplies: agents.ApproveAlways})
		turnID := e.receive(t, message("m1")).TurnID
		await.Until(t, "the turn waits", func() bool {
			turn, err := e.store.Turn(t.Context(), turnID)
			return err == nil && turn.Reason == exchange.WaitingAuthorization && turn.ReplyID == ""
		})
	})
}
