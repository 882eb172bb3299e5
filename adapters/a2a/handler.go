package a2a

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"inbox/exchange"
	"inbox/internal/clock"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// handler answers the operations of every binding and version. Each begins with enter and reads only what belongs
// to the caller.
type handler struct{ *Adapter }

var _ a2asrv.RequestHandler = (*handler)(nil)

// enter marks that the binding understood the request. A binding without our edge has no caller.
func (h *handler) enter(ctx context.Context, operation string) (*call, error) {
	c, ok := callOf(ctx)
	if !ok {
		return nil, a2a.ErrUnauthenticated
	}
	c.reached.Store(&operation)
	if err := h.outOfScope(c, scopesOf(operation, nil)); err != nil {
		return nil, h.fail(c, err)
	}
	return c, nil
}

// enterSend is enter for a message, which may ask for more than to be sent.
func (h *handler) enterSend(ctx context.Context, operation string, req *a2a.SendMessageRequest) (*call, error) {
	c, err := h.enter(ctx, operation)
	if err != nil || req.Config == nil {
		return c, err
	}
	if err := h.outOfScope(c, scopesOf(operation, req.Config.PushConfig)); err != nil {
		return nil, h.fail(c, err)
	}
	return c, nil
}

// fail keeps the problem for the edge, which writes it, and returns an error with the public text for the SDK.
func (h *handler) fail(c *call, err error) error {
	p := problemOf(err)
	c.problem.Store(p)
	return a2a.NewError(p.sentinel, p.Error())
}

// SendMessage accepts a message and waits for the end of its turn, unless the caller wants the task at once.
func (h *handler) SendMessage(ctx context.Context, req *a2a.SendMessageRequest) (a2a.SendMessageResult, error) {
	c, err := h.enterSend(ctx, "SendMessage", req)
	if err != nil {
		return nil, err
	}
	rendered, err := h.send(ctx, c, req)
	if err != nil {
		return nil, h.fail(c, err)
	}
	return rendered, nil
}

func (h *handler) send(ctx context.Context, c *call, req *a2a.SendMessageRequest) (a2a.SendMessageResult, error) {
	wanted, immediately, err := sendView(req.Config)
	if err != nil {
		return nil, err
	}

	c.awaited = !immediately
	t, err := h.accept(ctx, c, req)
	if err != nil {
		return nil, err
	}

	if !immediately {
		if t, err = h.settle(ctx, c, t); err != nil {
			return nil, err
		}
		if len(t.turns) == 1 && isTalk(*t.last()) { // no one has seen the task yet, so that it needs not be one
			return h.talk(ctx, t)
		}
	}

	return h.render(ctx, c.answerTo(t, req.Message.ID), wanted)
}

func sendView(config *a2a.SendMessageConfig) (v view, immediately bool, err error) {
	v.artifacts = true
	if config == nil {
		return v, false, nil
	}
	v.history = config.HistoryLength
	return v, config.ReturnImmediately, checkHistory("configuration.historyLength", config.HistoryLength)
}

func checkHistory(field string, length *int) error {
	if length != nil && *length < 0 {
		return inField(field, "must not be negative")
	}
	return nil
}

// accept brings a message into the engine and returns its task. A duplicate returns the task of the first copy.
func (h *handler) accept(ctx context.Context, c *call, req *a2a.SendMessageRequest) (*task, error) {
	offered, err := takeOffer(req)
	if err != nil {
		return nil, err
	}
	if err := checkSend(req); err != nil {
		return nil, err
	}

	message := req.Message
	for _, id := range message.ReferenceTasks {
		if _, err := h.load(ctx, c.owner, id); err != nil {
			return nil, err
		}
	}

	var hook *a2a.PushConfig
	if req.Config != nil {
		hook = req.Config.PushConfig
	}
	if message.TaskID != "" {
		return h.continueTask(ctx, c, message, offered, hook)
	}

	where, err := newDestination(c.owner, message)
	if err != nil {
		return nil, err
	}

	return h.receiveWatched(ctx, c, where, hook, func() (*task, error) {
		return h.receive(ctx, c, message, where, offered, nil)
	})
}

// place puts a message into the conversation of its speaker: the one of the task that it continues, or of its context.
func (h *handler) place(ctx context.Context, c *call, in *exchange.Inbound, where destination, earlier []exchange.TurnRecord) (err error) {
	speaker := in.Message.Sender.Principal()
	if len(earlier) > 0 {
		if earlier[len(earlier)-1].Principal != speaker {
			return inField("message.taskId", "is the task of another person; send valid identity evidence about the person who began it, or begin a new task")
		}
		return nil
	}

	name := c.owner.context(where.route.Context, speaker)
	if where.fresh {
		in.Message.ThreadID = name.ID()
		return nil
	}
	if in.Message.ThreadID, err = h.options.Conversations.Conversation(ctx, name); err != nil {
		return err
	}
	in.Message.InReplyTo, err = h.answerBefore(ctx, c.owner, in.Message.ThreadID)
	return err
}

// answerBefore returns the id of the newest answer in a thread of the owner; empty if the thread has no answer.
func (h *handler) answerBefore(ctx context.Context, owned owner, thread string) (string, error) {
	turns, err := h.options.Turns.Turns(ctx, exchange.TurnFilter{
		Agent: owned.agent, Carrier: owned.caller, ThreadID: thread, States: []string{exchange.StateAnswered},
		ByArrival: true, Limit: 1,
	})
	if err != nil || len(turns) == 0 {
		return "", err
	}
	return answerID(turns[0]), nil
}

// receiveWatched registers the webhook that came with a message before the message is stored, so that it misses nothing.
// Of a message that was refused nothing stays; a repeat's webhook goes to the task of the first copy.
func (h *handler) receiveWatched(
	ctx context.Context, c *call, where destination, hook *a2a.PushConfig, receive func() (*task, error),
) (*task, error) {
	if hook == nil {
		return receive()
	}

	watch, err := h.watch(ctx, c, a2a.TaskID(where.reference), hook)
	if err != nil {
		return nil, err
	}
	if err := h.options.Push.Watches.PutWatch(ctx, watch); err != nil {
		return nil, err
	}

	t, err := receive()
	if err == nil && string(t.id()) == where.reference {
		return t, nil
	}

	if dropped := h.options.Push.Watches.DeleteWatch(context.WithoutCancel(ctx), watch.ID); dropped != nil {
		h.log.WarnContext(ctx, "webhook of a message that was not taken stays", "watch", watch.ID, "error", dropped)
	}
	if err != nil {
		return nil, err
	}
	if watch, err = h.watch(ctx, c, t.id(), hook); err != nil {
		return nil, err
	}

	return t, h.options.Push.Watches.PutWatch(ctx, watch)
}

// continueTask is a message to a task of the caller that waits for it.
func (h *handler) continueTask(ctx context.Context, c *call, message *a2a.Message, offered *offer, hook *a2a.PushConfig) (*task, error) {
	t, err := h.load(ctx, c.owner, message.TaskID)
	if err != nil {
		return nil, err
	}

	for _, turn := range t.turns {
		if turn.Message.ID == message.ID {
			return t, sameMessage(turn, message)
		}
	}

	state := t.state()
	switch {
	case message.ContextID != "" && message.ContextID != t.contextID:
		return nil, inField("message.contextId", "does not belong to the task")
	case state.Terminal():
		return nil, newProblem(a2a.ErrUnsupportedOperation, "the task has ended; send the message without taskId to begin a new one")
	case !interrupted(state) || len(t.turns) >= maxTaskTurns:
		return nil, busy()
	}

	return h.receiveNext(ctx, c, t, message, offered, hook)
}

func busy() *problem {
	return newProblem(a2a.ErrUnsupportedOperation, "the task takes no message while it works; wait until it asks for input")
}

// receiveNext stores the next message of a task. A webhook that came with it stays whatever becomes of the message: the
// task is its owner's.
func (h *handler) receiveNext(
	ctx context.Context, c *call, t *task, message *a2a.Message, offered *offer, hook *a2a.PushConfig,
) (*task, error) {
	if hook != nil {
		watch, err := h.watch(ctx, c, t.id(), hook)
		if err != nil {
			return nil, err
		}
		if err := h.options.Push.Watches.PutWatch(ctx, watch); err != nil {
			return nil, err
		}
	}
	return h.receive(ctx, c, message, nextDestination(t, message), offered, t.turns)
}

// receive stores the message. A new turn is not read back: what was stored is what we have here.
func (h *handler) receive(ctx context.Context, c *call, message *a2a.Message, where destination, offered *offer, earlier []exchange.TurnRecord) (*task, error) {
	in, err := h.inbound(ctx, c, message, &where, offered)
	if err != nil {
		return nil, err
	}
	if first, err := h.firstCopy(ctx, c, message, in); err != nil || first != nil {
		return first, err
	}
	if err := h.place(ctx, c, &in, where, earlier); err != nil {
		return nil, err
	}

	if len(earlier) > 0 {
		in.Claim = nextStep(earlier[len(earlier)-1].ID, message.ID)
	}

	receipt, err := h.options.Receiver.Receive(ctx, in)
	switch {
	case err == nil && receipt.Claimed != nil: // another message, or a cancellation, has the next step
		return nil, busy()
	case in.Continues != "" && fault.Is(err, fault.Conflict): // its demand was met on another way meanwhile
		return nil, busy()
	case err != nil && offered.payment != nil && in.Continues != "": // a payment that its facilitator refused ends the task, which says why
		if t, loadErr := h.load(ctx, c.owner, a2a.TaskID(in.Reference)); loadErr == nil && t.state().Terminal() {
			return t, nil
		}
		return nil, acceptProblem(err)
	case err != nil:
		return nil, acceptProblem(err)
	}

	if !receipt.New {
		return h.repeated(ctx, c, message, receipt)
	}
	if exchange.Terminal(receipt.State) { // it declined a demand, or the chain ends here: the row decides
		return h.load(ctx, c.owner, a2a.TaskID(receipt.Reference))
	}

	at := in.Message.ReceivedAt.Time
	turn := exchange.TurnRecord{
		ID: receipt.TurnID, Agent: c.owner.agent, Principal: in.Message.Sender.Principal(), ThreadID: in.Message.ThreadID,
		Reference: in.Reference, State: receipt.State, Channel: ChannelName, Message: in.Message, Route: in.Route, AcceptedAt: at, UpdatedAt: at,
	}

	return &task{turns: append(earlier, turn), contextID: where.route.Context, own: &ownRoute{where.route, in.Route}}, nil
}

// maxCopies bounds the messages with one id whose speakers are compared.
const maxCopies = 16

// firstCopy returns the task of a message that is repeated with the evidence of its first copy, which was good for one use: it
// proves nothing any more, and names the speaker. Nil = the message is no such repeat.
func (h *handler) firstCopy(ctx context.Context, c *call, message *a2a.Message, in exchange.Inbound) (*task, error) {
	if in.Message.Sender.Speaker() != nil || len(in.Rejected) == 0 {
		return nil, nil
	}

	turns, err := h.options.Turns.Turns(ctx, exchange.TurnFilter{
		Agent: c.owner.agent, Carrier: c.owner.caller, MessageID: message.ID, ReceivedVia: normalized.ViaA2A, Limit: maxCopies,
	})
	if err != nil {
		return nil, err
	}

	for _, turn := range turns {
		if turn.Message.ID == message.ID && turn.Reference != "" && attests(in.Rejected, turn) && sameMessage(turn, message) == nil {
			return h.load(ctx, c.owner, a2a.TaskID(turn.Reference))
		}
	}
	return nil, nil
}

// acceptProblem keeps "no such agent" from reading as "no such task".
func acceptProblem(err error) error {
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Gone) {
		return &problem{sentinel: a2a.ErrInvalidRequest, message: "no such agent here", http: http.StatusNotFound, cause: err}
	}
	return err
}

// repeated is a message whose id we have already.
func (h *handler) repeated(ctx context.Context, c *call, message *a2a.Message, receipt exchange.Receipt) (*task, error) {
	t, err := h.load(ctx, c.owner, a2a.TaskID(receipt.Reference))
	if err != nil {
		return nil, err
	}

	for _, turn := range t.turns {
		if turn.ID == receipt.TurnID {
			return t, sameMessage(turn, message)
		}
	}
	return nil, fmt.Errorf("turn %s of a repeated message is not in its task", receipt.TurnID)
}

func sameMessage(turn exchange.TurnRecord, message *a2a.Message) error {
	if routeOf(turn).Digest == digestOf(message) {
		return nil
	}
	return inField("message.messageId", "was used for another message; every new message needs its own id")
}

// settle waits for the end of the newest turn, at most WaitLimit and not while the server stops: then the caller gets
// the working task and asks again. The run goes on in any case.
func (h *handler) settle(ctx context.Context, c *call, t *task) (*task, error) {
	if exchange.Settled(t.last().State) && stateOf(*t.last()) != a2a.TaskStateWorking {
		return t, nil
	}

	serving, stop := httpserver.Until(ctx, stoppingOf(ctx))
	defer stop()
	waiting, cancel := context.WithTimeout(serving, h.options.WaitLimit)
	defer cancel()
	turn, err := h.settled(waiting, t.last().ID)
	switch {
	case err == nil:
		*t.last() = turn
		return t, nil
	case ctx.Err() == nil && waiting.Err() != nil:
		return h.load(ctx, c.owner, t.id())
	}

	return nil, err
}

// settled waits until a turn ended or waits for its owner. A turn that waits for a tool or another agent goes on by
// itself.
func (h *handler) settled(ctx context.Context, turnID string) (exchange.TurnRecord, error) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		turn, err := h.options.Runs.Wait(ctx, turnID)
		if err != nil || stateOf(turn) != a2a.TaskStateWorking {
			return turn, err
		}
		if err := clock.Sleep(ctx, pause); err != nil {
			return turn, err
		}
	}
}

func stoppingOf(ctx context.Context) <-chan struct{} {
	if c, has := callOf(ctx); has && c.stopping != nil {
		return c.stopping
	}
	return httpserver.Stopping(ctx)
}

// talk is the answer as a plain message (A2A 1.0, section 3.1.1).
func (h *handler) talk(ctx context.Context, t *task) (*a2a.Message, error) {
	parts, err := h.of(*t.last()).renderParts(ctx, t.last().Response.Parts, true)
	return &a2a.Message{ID: answerID(*t.last()), Role: a2a.MessageRoleAgent, Parts: parts, ContextID: t.contextID}, err
}

// answerTo is the part of a task that a token without a2a:read gets for a message of its own: the turn of the message, not
// what was said in the task before or after it.
func (c *call) answerTo(t *task, messageID string) *task {
	if c.caller.may(scopeRead) {
		return t
	}

	own := slices.IndexFunc(t.turns, func(turn exchange.TurnRecord) bool { return turn.Message.ID == messageID })
	if own < 0 {
		return t
	}

	alone := *t
	alone.turns = t.turns[own : own+1 : own+1]
	if own < len(t.turns)-1 {
		alone.cancelled = time.Time{}
	}
	return &alone
}

// GetTask returns a task of the caller.
func (h *handler) GetTask(ctx context.Context, req *a2a.GetTaskRequest) (*a2a.Task, error) {
	c, err := h.enter(ctx, "GetTask")
	if err != nil {
		return nil, err
	}
	if err := checkHistory("historyLength", req.HistoryLength); err != nil {
		return nil, h.fail(c, err)
	}

	t, err := h.load(ctx, c.owner, req.ID)
	if err != nil {
		return nil, h.fail(c, err)
	}

	rendered, err := h.render(ctx, t, view{history: req.HistoryLength, artifacts: true})
	if err != nil {
		return nil, h.fail(c, err)
	}

	return rendered, nil
}

// CancelTask ends a task of the caller that has not ended; a running agent is stopped.
func (h *handler) CancelTask(ctx context.Context, req *a2a.CancelTaskRequest) (*a2a.Task, error) {
	c, err := h.enter(ctx, "CancelTask")
	if err != nil {
		return nil, err
	}

	t, err := h.cancel(ctx, c, req.ID)
	if err != nil {
		return nil, h.fail(c, err)
	}

	rendered, err := h.render(ctx, t, cancelView(c))
	if err != nil {
		return nil, h.fail(c, err)
	}
	return rendered, nil
}

// cancelView is what of a cancelled task its caller sees: the task is read only by who may read it.
func cancelView(c *call) view {
	if c.caller.may(scopeRead) {
		return view{artifacts: true}
	}
	none := 0
	return view{history: &none}
}

// GetExtendedAgentCard returns the card with the skills that are open to the caller.
func (h *handler) GetExtendedAgentCard(ctx context.Context, _ *a2a.GetExtendedAgentCardRequest) (*a2a.AgentCard, error) {
	c, err := h.enter(ctx, "GetExtendedAgentCard")
	if err != nil {
		return nil, err
	}
	card, err := h.extendedCard(ctx, c)
	if err != nil {
		return nil, h.fail(c, err)
	}
	return card, nil
}
