package a2a

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/exchange"
	"inbox/normalized"
)

const (
	maxTaskTurns  = 200 // turns of one task that are read; a longer conversation goes on in new tasks of its context
	maxTaskIDSize = 64
)

// route is what this adapter keeps with every turn.
type route struct {
	Context string `json:"context"`           // the context id as the client knows it
	Number  int    `json:"number"`            // position of the turn in its task, from 1
	Digest  string `json:"digest"`            // of the message as sent: tells a repeat from another message with the same id
	Words   *sent  `json:"words,omitempty"`   // what the normalized message does not keep; goes when the message is erased
	Awaited bool   `json:"awaited,omitempty"` // the client waited for the answer when it sent the message
}

// Awaits reports whether the client of a question waits for the answer, instead of fetching the task later.
func (*Adapter) Awaits(kept json.RawMessage) bool {
	return routeOf(exchange.TurnRecord{Route: kept}).Awaited
}

func routeOf(turn exchange.TurnRecord) route {
	var r route
	_ = json.Unmarshal(turn.Route, &r) // our own bytes
	return r
}

// task is all turns with one reference, in order of arrival. There is at least one.
type task struct {
	turns     []exchange.TurnRecord
	contextID string    // as the client knows it; the same for all turns
	cancelled time.Time // set when an interrupted task was given up by its owner
	partial   *partial  // the answer of the newest turn so far, where a follower has read it; nil = it is read when needed
}

func (t *task) last() *exchange.TurnRecord { return &t.turns[len(t.turns)-1] }

func (t *task) id() a2a.TaskID { return a2a.TaskID(t.last().Reference) }

// info names the task for the SDK's event constructors.
func (t *task) info() a2a.TaskInfo { return a2a.TaskInfo{TaskID: t.id(), ContextID: t.contextID} }

// load reads a task of the owner. Somebody else's task and a missing one are the same problem.
func (a *Adapter) load(ctx context.Context, owned owner, id a2a.TaskID) (*task, error) {
	if id == "" {
		return nil, inField("id", "is needed")
	}
	if len(id) > maxTaskIDSize || !printable(string(id)) { // none of ours; PostgreSQL has no text with a NUL
		return nil, taskNotFound()
	}
	turns, err := a.options.Turns.Turns(ctx, exchange.TurnFilter{
		Agent: owned.agent, Principal: owned.principal, Reference: string(id),
		ReceivedVia: normalized.ViaA2A, Limit: maxTaskTurns,
	})
	if err != nil {
		return nil, err
	}
	if len(turns) == 0 {
		return nil, taskNotFound()
	}
	return a.assemble(ctx, turns)
}

// assemble orders the turns of one task by their ids, which are UUIDv7, and looks whether its owner gave it up.
func (a *Adapter) assemble(ctx context.Context, turns []exchange.TurnRecord) (*task, error) {
	slices.SortFunc(turns, func(x, y exchange.TurnRecord) int { return strings.Compare(x.ID, y.ID) })
	t := &task{turns: turns}
	t.contextID = routeOf(*t.last()).Context
	if last := t.last(); exchange.Terminal(last.State) && interrupted(stateOf(*last)) {
		at, cancelled, err := a.wasCancelled(ctx, last.ID)
		if err != nil {
			return nil, err
		}
		if cancelled {
			t.cancelled = at
		}
	}
	return t, nil
}

func (t *task) state() a2a.TaskState {
	if !t.cancelled.IsZero() {
		return a2a.TaskStateCanceled
	}
	return stateOf(*t.last())
}

// interrupted reports whether the task waits for its owner.
func interrupted(state a2a.TaskState) bool {
	return state == a2a.TaskStateInputRequired || state == a2a.TaskStateAuthRequired
}

// The next step after an interrupted turn is claimed once: by the message that continues the task, or by its
// cancellation. Two followers at the same time must not both run, or a finished task would change again.
const (
	claimSpace    = "a2a.next"
	claimMessage  = "message "
	claimCancel   = "cancel "
	claimLifetime = 10 * time.Minute // of a message's claim: after that its turn is there, or it never arrived
)

// claim takes the next step for the message and reports whether it is ours.
func (a *Adapter) claim(ctx context.Context, turnID, messageID string) (bool, error) {
	value := claimMessage + messageID
	current, inserted, err := a.options.Claims.PutIfAbsent(ctx, claimSpace, turnID, []byte(value), time.Now().Add(claimLifetime))
	return inserted || string(current) == value, err
}

// release returns a claim when the message could not be stored.
func (a *Adapter) release(ctx context.Context, turnID string) {
	if err := a.options.Claims.Delete(context.WithoutCancel(ctx), claimSpace, turnID); err != nil {
		a.log.WarnContext(ctx, "claim of a task's next step was not given back", "turn", turnID, "error", err)
	}
}

// cancellation returns up an interrupted task whose turn has ended.
func cancellation(turnID string, at time.Time) exchange.Claim {
	return exchange.Claim{Namespace: claimSpace, Key: turnID, Value: []byte(claimCancel + at.Format(time.RFC3339Nano))}
}

func (a *Adapter) wasCancelled(ctx context.Context, turnID string) (at time.Time, cancelled bool, err error) {
	value, found, err := a.options.Claims.Get(ctx, claimSpace, turnID)
	if err != nil || !found {
		return at, false, err
	}
	text, cancelled := strings.CutPrefix(string(value), claimCancel)
	if cancelled {
		at, err = time.Parse(time.RFC3339Nano, text)
	}
	return at, cancelled, err
}
