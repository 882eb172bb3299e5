package a2a

import (
	"context"
	"slices"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"inbox/exchange"
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

// fail keeps the problem for the edge, which writes it, and returns the SDK an error with the public text.
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
		if isTalk(t) {
			return h.talk(ctx, t)
		}
	}
	return h.render(ctx, c.answerTo(t, req.Message.ID), wanted)
}

// isTalk reports whether a task is one answer that its agent called talk: nobody has seen the task yet, so that it needs
// not be one.
func isTalk(t *task) bool {
	last := t.last()
	return len(t.turns) == 1 && last.Response != nil && last.Response.Metadata[normalized.MetadataTalk] == "true" &&
		t.state() == a2a.TaskStateCompleted
}

// talk is the answer as a plain message (A2A 1.0, section 3.1.1).
func (h *handler) talk(ctx context.Context, t *task) (*a2a.Message, error) {
	parts, err := h.renderParts(ctx, t.last().Response.Parts, true)
	return &a2a.Message{ID: answerID(*t.last()), Role: a2a.MessageRoleAgent, Parts: parts, ContextID: t.contextID}, err
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
