package chat

import (
	"context"
	"net/http"
	"slices"

	"inbox/adapters/chat/contract"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

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
