package a2a

import (
	"context"
	"iter"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var streams = promauto.NewGauge(prometheus.GaugeOpts{
	Name: "inbox_a2a_streams_open",
	Help: "Streams of task events that clients hold open.",
})

// A subscriber of a task that waits for its owner looks for the next turn with these pauses.
const (
	firstPause = 250 * time.Millisecond
	maxPause   = 5 * time.Second
)

// SendStreamingMessage accepts a message and streams its task: the task first, then updates in order until it ended
// or asks for input.
func (h *handler) SendStreamingMessage(ctx context.Context, req *a2a.SendMessageRequest) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		c, err := h.enterSend(ctx, "SendStreamingMessage", req)
		if err != nil {
			yield(nil, err)
			return
		}
		wanted, _, err := sendView(req.Config)
		if err != nil {
			yield(nil, h.fail(c, err))
			return
		}
		c.awaited = true
		t, err := h.accept(ctx, c, req)
		if err != nil {
			yield(nil, h.fail(c, err))
			return
		}
		f := h.follower(ctx, c, c.answerTo(t, req.Message.ID), yield)
		defer f.close()
		f.untilInput = true
		if !f.snapshot(wanted) {
			return
		}
		for f.turn() && f.superseded && f.next() {
			continue
		}
	}
}

// SubscribeToTask streams a task that has not ended: its snapshot, then what follows, also over a question to its
// owner and the next turn.
func (h *handler) SubscribeToTask(ctx context.Context, req *a2a.SubscribeToTaskRequest) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		c, err := h.enter(ctx, "SubscribeToTask")
		if err != nil {
			yield(nil, err)
			return
		}
		t, err := h.load(ctx, c.owner, req.ID)
		if err == nil && t.state().Terminal() {
			err = newProblem(a2a.ErrUnsupportedOperation, "the task has ended; read it with GetTask")
		}
		if err != nil {
			yield(nil, h.fail(c, err))
			return
		}
		f := h.follower(ctx, c, t, yield)
		defer f.close()
		if !f.snapshot(view{artifacts: true}) {
			return
		}
		for f.turn() && (f.superseded || interrupted(f.state)) && f.next() {
			continue
		}
	}
}
