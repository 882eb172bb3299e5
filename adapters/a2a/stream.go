package a2a

import (
	"context"
	"crypto/sha256"
	"hash"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/internal/clip"
	"inbox/internal/clock"
	"inbox/internal/httpserver"
	"inbox/normalized"
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

// follower turns the events of a task's newest turn into protocol events for one reader.
type follower struct {
	*handler
	ctx   context.Context // ends with the reader or when the server stops //nolint:containedctx // one follower is one request
	stop  context.CancelFunc
	call  *call
	task  *task
	yield func(a2a.Event, error) bool
	ends  <-chan struct{} // closed when the server stops

	untilInput bool          // the stream ends with a question to its owner; a subscription goes on
	state      a2a.TaskState // as the reader knows it
	since      time.Time     // state changes up to here are in the snapshot
	over       bool          // the newest turn has ended and its end was told
	superseded bool          // it was dropped: a message of its owner continued the task
	seq        int64         // of the newest turn's last event that the snapshot holds
	sent       streamed
	told       map[toldCall]bool // steps of calls of tools that the reader has
	mime       string            // media type of the text part that grows
	open       bool              // an artifact was begun for the growing answer
	stopped    bool              // the reader is gone or got an error
}

func (h *handler) follower(ctx context.Context, c *call, t *task, yield func(a2a.Event, error) bool) *follower {
	streams.Inc()
	serving, stop := httpserver.Until(ctx, stoppingOf(ctx))
	return &follower{handler: h, ctx: serving, stop: stop, call: c, task: t, yield: yield, ends: stoppingOf(ctx)}
}

func (f *follower) close() {
	f.stop()
	streams.Dec()
}

// snapshot sends the task as it is stored and reports whether the stream goes on. It holds what of a growing answer was streamed
// already: the follower goes on behind that.
func (f *follower) snapshot(v view) (more bool) {
	grown, err := f.partial(f.ctx, *f.task.last())
	if err != nil {
		return f.fail(err)
	}

	f.task.partial = grown
	defer func() { f.task.partial = nil }()
	f.seq, f.sent, f.open, f.mime = grown.seq, grown.sent, grown.open, grown.mime
	rendered, err := f.render(f.ctx, f.task, v)
	if err != nil {
		return f.fail(err)
	}

	f.state, f.since = rendered.Status.State, f.task.last().UpdatedAt
	f.over = exchange.Terminal(f.task.last().State)
	return f.emit(rendered)
}

// turn streams the newest turn until it ends or asks for input. It reports whether the reader is still there.
func (f *follower) turn() bool {
	if f.ended() {
		return true
	}

	if f.seq == 0 {
		f.reset()
	}

	for event, err := range f.options.Runs.Follow(f.ctx, f.task.last().ID, f.seq) {
		if err != nil {
			return f.fail(err)
		}
		if !f.event(event) {
			return false
		}
		if f.ended() {
			return true
		}
	}

	return !f.stopped
}

// ended reports whether this stream takes no more events of the newest turn.
func (f *follower) ended() bool {
	return f.state.Terminal() || f.over || f.untilInput && f.state == a2a.TaskStateInputRequired
}

func (f *follower) event(event exchange.Event) bool {
	state, isState := strings.CutPrefix(event.Kind, "turn.")
	switch {
	case event.Kind == exchange.EventDelta:
		return f.delta(event)
	case event.Kind == exchange.EventRestarted: // what was streamed is void: the next text replaces it
		f.reset()
	case isState && exchange.Settled(state) && (exchange.Terminal(state) || event.At.After(f.since)):
		return f.settled()
	case f.begins(state) && f.state != a2a.TaskStateWorking && event.At.After(f.since):
		return f.status(a2a.TaskStatus{State: a2a.TaskStateWorking, Timestamp: stamp(event.At)})
	}
	return true
}

// begins reports whether a turn works in the state: it runs, or its demand was met and it is about to run again.
func (f *follower) begins(state string) bool {
	return state == exchange.StateRunning || state == exchange.StateAccepted && interrupted(f.state)
}

func (f *follower) status(status a2a.TaskStatus) bool {
	f.state = status.State
	info := f.task.info()
	return f.emit(&a2a.TaskStatusUpdateEvent{TaskID: info.TaskID, ContextID: info.ContextID, Status: status, Metadata: updateMetadata(*f.task.last())})
}

// delta passes growing text on, and calls of tools to those who read them. Other parts come with the final answer.
func (f *follower) delta(event exchange.Event) bool {
	text, err := textOfDelta(event, &f.mime)
	if err != nil {
		return f.fail(err)
	}
	if text == "" {
		return f.tool(event)
	}
	return f.chunk(text, false)
}

// maxChunk bounds the text of one event in bytes: what a reader that does not read holds up is one event.
const maxChunk = 8 << 10

// chunk adds text to the artifact of the answer; the first one begins it.
func (f *follower) chunk(text string, last bool) bool {
	for piece, rest := cutText(text); ; piece, rest = cutText(rest) {
		f.sent.add(piece)
		appended := f.open
		f.open = true
		more := f.artifact(&a2a.Artifact{
			ID: answerArtifact(f.task.last().ID), Parts: a2a.ContentParts{{Content: a2a.Text(piece), MediaType: f.mime}},
		}, appended, last && rest == "")
		if !more || rest == "" {
			return more
		}
	}
}

// cutText returns the first piece of a text, which ends where a character does.
func cutText(text string) (piece, rest string) {
	piece = clip.Bytes(text, maxChunk)
	return piece, text[len(piece):]
}

func (f *follower) artifact(artifact *a2a.Artifact, appended, last bool) bool {
	info := f.task.info()
	return f.emit(&a2a.TaskArtifactUpdateEvent{
		TaskID: info.TaskID, ContextID: info.ContextID, Artifact: artifact, Append: appended, LastChunk: last,
	})
}

// reset forgets what was streamed of the answer.
func (f *follower) reset() {
	f.sent.reset()
	f.open, f.mime = false, normalized.MIMEPlain
}

// settled sends the results and the final status of a turn that ended or waits.
func (f *follower) settled() bool {
	turn, err := f.options.Runs.Wait(f.ctx, f.task.last().ID)
	if err != nil {
		return f.fail(err)
	}

	*f.task.last() = turn
	if f.over = exchange.Terminal(turn.State); !f.over {
		f.reset() // the next run begins its answer anew
	}
	if f.state == a2a.TaskStateWorking && stateOf(turn) == f.state { // it waits for other agents, which is work
		return true
	}

	if f.over && (interrupted(f.state) || turn.State != exchange.StateAnswered) {
		if dropped, err := f.dropped(); dropped || err != nil {
			f.superseded = dropped
			return err == nil || f.fail(err)
		}
	}

	streamedTalk := isTalk(turn) && f.open       // its words have begun as an artifact, and end as one
	if stateOf(turn) == a2a.TaskStateCompleted { // of any other end the reader has what was said
		artifacts, err := f.artifacts(f.ctx, turn, nil)
		if streamedTalk {
			artifacts, err = f.results(f.ctx, turn)
		}
		if err != nil {
			return f.fail(err)
		}
		for _, artifact := range artifacts {
			if !f.result(artifact) {
				return false
			}
		}
	}

	status, err := f.tasks.status(f.ctx, f.task)
	if err != nil {
		return f.fail(err)
	}
	if streamedTalk {
		status.Message = paid(newAnswerMessage(f.task, turn), turn, status.State)
	}

	return f.status(status)
}

// dropped reports whether the turn ended because the next message of its owner continued the task.
func (f *follower) dropped() (bool, error) {
	t, err := f.load(f.ctx, f.call.owner, f.task.id())
	return err == nil && t.last().ID != f.task.last().ID, err
}

// result sends a whole artifact, or only what the reader lacks when its beginning was streamed as text. The last piece says
// so, and is empty where nothing lacks: there are clients that take a streamed artifact when they are told that it is whole
// (A2A 1.0, section 4.2.2: lastChunk). A long text goes in pieces also where none of it was streamed.
func (f *follower) result(artifact *a2a.Artifact) bool {
	if f.call.forgetsAppend() && f.open {
		f.reset()
	}
	if artifact.ID != answerArtifact(f.task.last().ID) || len(artifact.Parts) != 1 {
		return f.artifact(artifact, false, true)
	}

	text := artifact.Parts[0].Text()
	if rest, ok := f.sent.cut(text); ok && f.open {
		f.mime = artifact.Parts[0].MediaType
		return f.chunk(rest, true)
	}
	if len(text) <= maxChunk || f.call.forgetsAppend() && len(text) <= maxWholeChunk {
		return f.artifact(artifact, false, true)
	}

	f.reset()
	f.mime = artifact.Parts[0].MediaType
	return f.chunk(text, true)
}

// maxWholeChunk bounds an artifact that is sent whole at the end of a stream to a client that forgets appending.
const maxWholeChunk = 256 << 10

// forgetsAppend reports whether clients of the call may take each chunk for the whole artifact: the conversion of the
// JavaScript SDK from the .proto form of 0.3 drops append. They get the whole text once more in the end, with the last flag.
func (c *call) forgetsAppend() bool { return c.old && (c.rest || c.stopping != nil) }

// next waits until the owner of an interrupted task continues or cancels it and reports whether there is more to tell.
func (f *follower) next() bool {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		if !f.superseded && clock.Sleep(f.ctx, pause) != nil {
			return f.leave()
		}

		t, err := f.load(f.ctx, f.call.owner, f.task.id())
		if err != nil {
			return f.fail(err)
		}

		known := slices.IndexFunc(t.turns, func(turn exchange.TurnRecord) bool { return turn.ID == f.task.last().ID })
		switch {
		case !t.cancelled.IsZero():
			f.status(a2a.TaskStatus{State: a2a.TaskStateCanceled, Timestamp: stamp(t.cancelled)})
			return false
		case known < len(t.turns)-1:
			t.turns = t.turns[:known+2]
			f.task, f.since, f.over, f.superseded, f.seq = t, time.Time{}, false, false, 0
			f.state = a2a.TaskStateSubmitted
			return true
		}
	}
}

// emit hands one event to the reader and reports whether it wants more.
func (f *follower) emit(event a2a.Event) bool {
	if !f.yield(event, nil) {
		f.stopped = true
	}
	return !f.stopped
}

// fail tells the reader that the stream breaks. When the reader left there is nothing to tell.
func (f *follower) fail(err error) bool {
	if f.ctx.Err() != nil {
		return f.leave()
	}
	if !f.stopped {
		f.yield(nil, f.handler.fail(f.call, err))
	}
	f.stopped = true
	return false
}

// leave ends the stream before its task. When the server stops, the last event repeats the state, which is not final, and
// names how to go on: with SubscribeToTask, here or at another node. Clients that do not read it find the same out from a stream
// that ends without a final state.
func (f *follower) leave() bool {
	select {
	case <-f.ends:
	default:
		f.stopped = true
	}

	if f.stopped {
		return false
	}

	info, now := f.task.info(), time.Now().UTC()
	f.emit(&a2a.TaskStatusUpdateEvent{
		TaskID: info.TaskID, ContextID: info.ContextID, Status: a2a.TaskStatus{State: f.state, Timestamp: &now},
		Metadata: map[string]any{mentionableKey: map[string]any{"stream_ended": "server_stopping", "resume_with": "SubscribeToTask"}},
	})

	f.stopped = true
	return false
}

// streamed remembers which text a reader has, without keeping it: the readers of one task are many.
type streamed struct {
	size int
	sum  hash.Hash
}

func (s *streamed) reset() { *s = streamed{} }

func (s *streamed) add(text string) {
	if s.sum == nil {
		s.sum = sha256.New()
	}
	s.size += len(text)
	_, _ = s.sum.Write([]byte(text)) // a hash takes everything
}

// cut returns what of a text comes behind the one that was sent; false when it does not begin with that.
func (s *streamed) cut(text string) (rest string, ok bool) {
	if s.size == 0 {
		return text, true
	}
	if len(text) < s.size {
		return "", false
	}
	var begins streamed
	begins.add(text[:s.size])
	return text[s.size:], [sha256.Size]byte(begins.sum.Sum(nil)) == [sha256.Size]byte(s.sum.Sum(nil))
}
