package chat

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"inbox/adapters/chat/contract"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// run is one accepted question, new or repeated.
type run struct {
	turn    exchange.TurnRecord
	route   route
	after   int64 // seq of the last event that the reader has
	from    int64 // what came up to this event is of no use for the stream; 0 = all is
	resumed bool
	patient bool       // the reader stays while the run waits for somebody else
	calls   []ToolCall // that the client has to execute now
}

// accept brings a question into the engine and returns its run; the repeat of a question gives the run of the first copy. A
// reader that says which event it had last asks for the rest of that stream and sends nothing.
func (a *Adapter) accept(ctx context.Context, q question, lastEvent string) (run, error) {
	if lastEvent != "" {
		return a.resume(ctx, q, lastEvent)
	}
	if found, over, err := a.submit(ctx, &q); over || err != nil {
		return found, err
	}
	in, err := a.inbound(ctx, q)
	if err != nil {
		return run{}, err
	}
	receipt, err := a.options.Receiver.Receive(ctx, in)
	if err != nil {
		return run{}, err
	}
	turn, err := a.options.Turns.Turn(ctx, receipt.TurnID)
	if err != nil {
		return run{}, err
	}
	found := run{turn: turn, route: routeOf(turn)}
	if !found.route.Chat {
		return run{}, fault.New(fault.Gone, "the conversation with this run was deleted")
	}
	if found.route.Digest != digestOf(q.input) {
		return run{}, fault.New(fault.Conflict, "the run was started with another message; every message needs a run id of its own")
	}
	return found, nil
}

// resume finds the turn of an event. Somebody else's looks like one that is not there.
func (a *Adapter) resume(ctx context.Context, q question, lastEvent string) (run, error) {
	turnID, seq, ok := splitEventID(lastEvent)
	if !ok {
		return run{}, fault.InField("Last-Event-ID", "is not the id of an event of this server")
	}
	turn, err := a.options.Turns.Turn(ctx, turnID)
	switch {
	case fault.Is(err, fault.NotFound):
		return run{}, runNotFound()
	case err != nil:
		return run{}, err
	}
	found := run{turn: turn, route: routeOf(turn), after: seq, resumed: true}
	session := q.input.SessionID
	if session == "" && q.who.guest() { // a guest who begins again with the first request of the session
		session, _ = guestSession("", q.input.RunID, q.messageID)
	}
	if !found.route.Chat || turn.Agent != q.agent.Name || turn.Principal != a.sender(q.who, q.agent, session).Principal() {
		return run{}, runNotFound()
	}
	return found, nil
}

func runNotFound() error { return fault.New(fault.NotFound, "the run was not found") }

// eventID names an event of a stream: the turn and the seq of its row, so that every node can go on after it.
func eventID(turn string, seq int64) string { return turn + "." + strconv.FormatInt(seq, 10) }

func splitEventID(text string) (turn string, seq int64, ok bool) {
	turn, number, found := strings.Cut(text, ".")
	seq, err := strconv.ParseInt(number, 10, 64)
	return turn, seq, found && err == nil && seq >= 0 && len(turn) == uuidLength
}

// await waits until nobody needs to wait for the turn any longer, at most Options.WaitLimit. Then it returns the turn as it
// is: the run goes on in any case, and the same request again finds it.
func (a *Adapter) await(ctx context.Context, turnID string) (exchange.TurnRecord, error) {
	turn, err := a.options.Turns.Turn(ctx, turnID)
	if err != nil {
		return turn, err
	}
	serving, stop := whileServing(ctx)
	defer stop()
	waiting, cancel := context.WithTimeout(serving, a.options.WaitLimit)
	defer cancel()
	turn, err = a.wait(waiting, turn)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return a.options.Turns.Turn(ctx, turnID)
	}
	return turn, err
}

// awaitRun is await for a client that can execute tools.
func (a *Adapter) awaitRun(ctx context.Context, found run) (run, error) {
	turn, err := a.await(ctx, found.turn.ID)
	if err != nil {
		return found, err
	}
	found.turn = turn
	found.calls, err = a.calls(ctx, turn)
	return found, err
}

// wait blocks until the turn is settled for its client. Only agents whose askers execute tools stop in between.
func (a *Adapter) wait(ctx context.Context, turn exchange.TurnRecord) (exchange.TurnRecord, error) {
	if a.options.ToolKind(turn.Agent, "") != ToolOfAsker {
		return a.options.Runs.Wait(ctx, turn.ID)
	}
	for one, err := range a.options.Runs.Follow(ctx, turn.ID, 0) {
		if err != nil {
			return turn, err
		}
		state, is := strings.CutPrefix(one.Kind, "turn.")
		if !is || !exchange.Settled(state) {
			continue
		}
		if turn, err = a.options.Turns.Turn(ctx, turn.ID); err != nil || a.settled(turn) {
			return turn, err
		}
	}
	return turn, ctx.Err()
}

// StopRequest is the body of POST /v1/chat/stop.
type StopRequest struct {
	Agent   string `json:"agent"`
	Session string `json:"session"`
	RunID   string `json:"run_id,omitempty"` // empty = everything that is under way in the session
}

// serveStop is POST /v1/chat/stop: it ends runs of the caller's own session that are not answered yet (agent runtime
// contract, section 6.6). What ended before keeps its answer.
func (a *Adapter) serveStop(w http.ResponseWriter, r *http.Request) error {
	who, err := a.identify(r)
	if err != nil {
		return err
	}
	body, err := a.readBody(r, who)
	if err != nil {
		return err
	}
	given, err := value.Decode(body, value.Limits{Bytes: contract.MaxInputBytes, Depth: maxDepth})
	object, is := value.Object(given)
	if err != nil || !is {
		return fault.New(fault.Malformed, "the body must be a JSON object")
	}
	agent, known := a.agent(value.Scalar(object["agent"]))
	if !known {
		return noAgent()
	}
	if err := a.admitTo(scopeCancel, who, agent); err != nil {
		return err
	}
	q := question{agent: agent, who: who, input: contract.Input{SessionID: value.Scalar(object["session"])}}
	found, err := a.stop(r.Context(), q, value.Scalar(object["run_id"]))
	if err != nil {
		return err
	}
	httpserver.WriteJSON(w, http.StatusOK, a.shown(found))
	return nil
}

// stop returns the newest of the runs that it asked to end.
func (a *Adapter) stop(ctx context.Context, q question, runID string) (found run, err error) {
	turns, err := a.turnsOf(ctx, q, maxSessionTurns)
	if err != nil {
		return run{}, err
	}
	for _, turn := range turns {
		if kept := routeOf(turn); runID != "" && kept.Run != runID {
			continue
		}
		if !exchange.Terminal(turn.State) {
			stopped, err := a.options.Runs.Cancel(ctx, turn.ID, "stopped by its asker")
			if err != nil && !fault.Is(err, fault.Conflict) {
				return run{}, err
			}
			turn = stopped
		}
		if found.turn.ID < turn.ID {
			found = run{turn: turn, route: routeOf(turn)}
		}
	}
	if found.turn.ID == "" {
		return run{}, runNotFound()
	}
	return found, nil
}

// turnsOf returns the newest turns of a session; NotFound where there is none.
func (a *Adapter) turnsOf(ctx context.Context, q question, limit int) ([]exchange.TurnRecord, error) {
	if q.input.SessionID == "" {
		return nil, sessionNotFound()
	}
	session, owned, err := a.place(q)
	if err != nil {
		return nil, err
	}
	turns, err := a.options.Turns.Turns(ctx, exchange.TurnFilter{
		Agent: owned.agent, Principal: owned.principal, ThreadID: owned.thread(session), ReceivedVia: normalized.ViaA2A, ByArrival: true, Limit: limit,
	})
	if err != nil {
		return nil, err
	}
	turns = slices.DeleteFunc(turns, func(turn exchange.TurnRecord) bool { return !routeOf(turn).Chat }) // forgotten
	if len(turns) == 0 {
		return nil, sessionNotFound()
	}
	return turns, nil
}
