package remote

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/agents"
	"inbox/agents/upstream"
	turns "inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// cancelLimit is how long the cancellation of an abandoned task may take.
const cancelLimit = 3 * time.Second

// exchange is one run of one turn.
type exchange struct {
	agent *Agent
	turn  agents.Turn
	id    string // of the message
	wire  *wire
	peer  *peer

	thread thread // as it was before the message
	asked  string // the question that the message answers: until it changes, the message has not been read
	said   *a2a.Message
	task   task
	noted  bool // the task is in the state, for the next attempt
	before progress
	cut    bool // updates may have been missed
	long   bool // its stream is longer than what is read of one

	emit    func(normalized.Delta) bool
	preview preview
}

func newExchange(a *Agent, turn agents.Turn, emit func(normalized.Delta) bool) *exchange {
	return &exchange{agent: a, turn: turn, id: messageID(turn), emit: emit}
}

// run does the turn within the limit of time. Its errors are faults, but for errStopped and the end of ctx.
func (x *exchange) run(ctx context.Context) (normalized.Response, error) {
	if chain := x.turn.Message.RecipientCapabilities.AgentChain; chain != nil && chain.Hop >= chain.MaxHops {
		return failed("remote:chain_exhausted", "This question has been passed on between agents as often as it may.").Answering(x.turn.Message), nil
	}

	limited, stop := context.WithTimeoutCause(ctx, x.agent.options.TimeLimit, errTimeLimit)
	defer stop()
	err := x.converse(limited)
	if err != nil && ctx.Err() == nil && !isPermanent(err) && !errors.Is(err, errStopped) && x.before.Looks > 0 {
		if awaits, kept := x.awaitLogin(ctx, ""); awaits || kept != nil { // the other server is away; the task is still there
			return x.unsaid(), kept
		}
	}

	if errors.Is(err, errTooLong) && ctx.Err() == nil { // what was read until then is the answer
		x.cancelThere(ctx)
		x.task.left.Rest, err = true, nil
	}

	if err != nil {
		if abandoned(ctx) || isPermanent(err) {
			x.cancelThere(ctx)
		}
		if ctx.Err() != nil && !errors.Is(err, errStopped) {
			return normalized.Response{}, fmt.Errorf("ask the agent: %w", context.Cause(ctx))
		}
		return normalized.Response{}, err
	}

	response, next, err := x.answer(limited)
	if err != nil {
		return normalized.Response{}, err
	}
	if err := x.agent.keep(limited, x.agent.threadKey(x.turn), next, x.agent.options.ThreadLife); err != nil {
		return normalized.Response{}, err
	}

	if next.Open != nil && next.Open.Login && response.Policy() == nil {
		told := x.before.Told
		if awaits, err := x.awaitLogin(limited, next.Open.Asked); err != nil || awaits && told == next.Open.Asked {
			return x.unsaid(), err
		}
	}

	return response, nil
}

// unsaid is the response of a run after which the turn waits without a word.
func (x *exchange) unsaid() normalized.Response {
	return normalized.Response{Silent: true, Status: normalized.StatusCompleted}.Answering(x.turn.Message)
}

// abandoned reports whether no one waits for the answer any more. A server that stops, or a worker that lost the turn to
// another, ends the context with a cause of its own: there the next attempt goes on with the same task.
func abandoned(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return ctx.Err() != nil && (cause == context.Canceled || cause == context.DeadlineExceeded) //nolint:errorlint,err113 // only the bare causes
}

// cancelThere ends the task there, as far as that can be done in a moment.
func (x *exchange) cancelThere(ctx context.Context) {
	if x.task.id == "" || x.task.status.State.Terminal() || x.wire == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelLimit)
	defer cancel()
	// A failure changes nothing: the task ends there by itself, sooner or later.
	_, _ = x.wire.transport.CancelTask(ctx, x.wire.params(), &a2a.CancelTaskRequest{Tenant: x.peer.tenant, ID: x.task.id})
}

// converse brings the message to the other agent, if no earlier attempt has, and waits until its answer is there.
func (x *exchange) converse(ctx context.Context) error {
	found, err := x.agent.resolve(ctx)
	if err != nil {
		return err
	}
	if err := x.reach(found); err != nil {
		return err
	}
	if err := x.agent.load(ctx, x.agent.threadKey(x.turn), &x.thread); err != nil {
		return err
	}
	if err := x.agent.load(ctx, x.agent.turnKey(x.turn, x.id), &x.before); err != nil {
		return err
	}

	taken, err := x.resume(ctx, x.before)
	if err == nil && !taken {
		err = x.send(ctx)
	}
	if err != nil {
		return err
	}

	return x.follow(ctx)
}

// reach makes the connection to the agent as it is now known.
func (x *exchange) reach(p *peer) (err error) {
	x.peer = p
	if x.wire, err = x.agent.wire(p, x.turn.Agent); err != nil {
		return upstream.Misconfigured(err)
	}
	return nil
}

// resume looks at the task that an earlier attempt of this very message began. taken is false when the message has to be
// sent (again).
func (x *exchange) resume(ctx context.Context, before progress) (taken bool, err error) {
	if before.Task == "" || !usableID(before.Task, x.peer.rest) {
		return false, nil
	}

	earlier, seen, err := x.look(ctx, a2a.TaskID(before.Task))
	switch {
	case err == nil:
	case noSuchThing(err):
		return false, nil
	default:
		return false, failure(ctx, seen, err)
	}

	probe := task{}
	if err := probe.replace(earlier, x.peer.rest); err != nil {
		return false, upstream.NotUsable(err)
	}
	if before.Asked != "" && probe.waits() && probe.asked() == before.Asked {
		return false, nil // it still asks what it asked before: our message did not arrive
	}

	recoveries.WithLabelValues("repeated").Inc()
	x.noted = true
	return true, x.take(ctx, earlier)
}

// noSuchThing reports whether a task, or the operation on it, is unknown there.
func noSuchThing(err error) bool {
	return errors.Is(err, a2a.ErrTaskNotFound) || errors.Is(err, a2a.ErrMethodNotFound) || errors.Is(err, a2a.ErrUnsupportedOperation)
}

// look reads the task.
func (x *exchange) look(ctx context.Context, id a2a.TaskID) (*a2a.Task, *sighting, error) {
	watchedCtx, seen := watched(ctx)
	some := historyLength
	found, err := x.wire.transport.GetTask(watchedCtx, x.wire.params(), &a2a.GetTaskRequest{Tenant: x.peer.tenant, ID: id, HistoryLength: &some})
	if err == nil && (found == nil || found.ID != id) {
		err = upstream.NotUsable(errors.New("the agent answers with another task"))
	}
	return found, seen, err
}

// historyLength is how much of the talk is asked for: an agent without artifacts may have put its answer there.
const historyLength = 4

// Bounds of following a task that waits until the person has signed in at the other agent's service. Between two looks the turn is
// a row: it holds no worker and no connection, and any node takes it up.
const (
	firstLook   = 2 * time.Second
	maxLook     = 15 * time.Minute
	followLimit = 24 * time.Hour
	maxLooks    = 120
)

// lookPause doubles from firstLook to maxLook.
func lookPause(looks int) time.Duration {
	if looks > 9 {
		return maxLook
	}
	return min(firstLook<<looks, maxLook)
}

// awaitLogin parks the turn until the next look at the task. It reports false where turns cannot wait or the task was followed long
// enough: then the asker has to write again. Asked names the question that is told to the asker; empty = that of the last look.
func (x *exchange) awaitLogin(ctx context.Context, asked string) (bool, error) {
	now := time.Now()
	next := x.before
	if next.Looks == 0 {
		next = progress{Task: string(x.task.id), Context: x.task.context, Since: now}
	}
	if x.turn.Requests == nil || next.Task == "" || next.Looks >= maxLooks || now.Sub(next.Since) > followLimit {
		return false, nil
	}

	pause := lookPause(next.Looks)
	next.Looks++

	if asked != "" {
		next.Told = asked
	}

	err := x.turn.Requests.Await(map[string]any{
		"tool_name": turns.ToolAuthorization, "tool_call_id": x.id + "-" + strconv.Itoa(next.Looks), "run_id": x.turn.ID,
		"timeout_at": now.Add(pause).UTC().Format(time.RFC3339Nano),
	})
	if err != nil {
		return false, fault.GiveUp(sayHere, err)
	}

	recoveries.WithLabelValues("followed").Inc()
	return true, x.agent.keep(ctx, x.agent.turnKey(x.turn, x.id), next, turnLife)
}

// stale reports whether the agent does not know the conversation, or its open task, any more.
func (x *exchange) stale(err error) bool {
	if x.thread.Open != nil && errors.Is(err, a2a.ErrUnsupportedOperation) {
		return true
	}
	return x.thread != (thread{}) &&
		(errors.Is(err, a2a.ErrTaskNotFound) || errors.Is(err, a2a.ErrInvalidParams) || errors.Is(err, a2a.ErrInvalidRequest))
}

// loosen goes on without the open task, and then without the conversation.
func (x *exchange) loosen() {
	if x.thread.Open == nil {
		x.thread.Context = ""
	}
	x.thread.Open, x.asked = nil, ""
}

func (x *exchange) waitsForLogin() bool {
	waiting := x.continued()
	return waiting != nil && waiting.Login
}

// askAgain takes a task that takes no messages while it waits for a login: what it wants, or what has become of it.
func (x *exchange) askAgain(ctx context.Context) error {
	found, seen, err := x.look(ctx, a2a.TaskID(x.continued().Task))
	if err != nil {
		return failure(ctx, seen, err)
	}
	x.asked = ""
	return x.take(ctx, found)
}

// overMeanwhile takes a task that waited for a login and has gone on by itself.
func (x *exchange) overMeanwhile(ctx context.Context) (over bool, err error) {
	if !x.waitsForLogin() {
		return false, nil
	}
	found, _, err := x.look(ctx, a2a.TaskID(x.continued().Task))
	if err != nil || found.Status.State != a2a.TaskStateCompleted && found.Status.State != a2a.TaskStateWorking {
		return false, nil //nolint:nilerr // then it is asked anew
	}
	x.cut = true
	return true, x.take(ctx, found)
}
