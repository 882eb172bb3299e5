package chat

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// runs finds, follows and stops turns.
type runs struct {
	*site
	access   *access
	sessions *sessions
	tools    *clientTools
}

// run is one accepted question, new or repeated.
type run struct {
	turn    exchange.TurnRecord
	route   route
	after   int64 // seq of the last event that the reader has
	from    int64 // what came up to this event is of no use for the stream; 0 = all is
	resumed bool
	patient bool       // the reader stays while the run waits for what is not the reader's to do
	calls   []ToolCall // that the client has to execute now

	lacks func(reply string) (rest string, one bool) // what the reader of a stream has not got of the whole answer
}

// resume finds the turn of an event. That of another caller looks like one that does not exist.
func (rs *runs) resume(ctx context.Context, q question, lastEvent string) (run, error) {
	turnID, seq, ok := splitEventID(lastEvent)
	if !ok {
		return run{}, fault.InField("Last-Event-ID", "is not the id of an event of this server")
	}

	turn, err := rs.options.Turns.Turn(ctx, turnID)
	switch {
	case fault.Is(err, fault.NotFound):
		return run{}, runNotFound()
	case err != nil:
		return run{}, err
	}

	found := run{turn: turn, route: routeOf(turn), after: seq, resumed: true}
	session := q.input.SessionID
	if session == "" && q.who.guest() { // a guest who begins again with the first request of the session
		session, _ = guestSession(rs.options.Secret, "", q.input.RunID, q.messageID)
	}
	if !found.route.Chat || turn.Agent != q.agent.Name || turn.Principal != rs.access.sender(q.who, q.agent, session).Principal() {
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

// await waits until there is nothing more to wait for in this request, at most Options.WaitLimit. Then it returns the turn as it
// is: the run goes on in any case, and the same request again finds it.
func (rs *runs) await(ctx context.Context, turnID string) (exchange.TurnRecord, error) {
	turn, err := rs.options.Turns.Turn(ctx, turnID)
	if err != nil {
		return turn, err
	}

	serving, stop := httpserver.WhileServing(ctx)
	defer stop()
	waiting, cancel := context.WithTimeout(serving, rs.options.WaitLimit)
	defer cancel()
	turn, err = rs.wait(waiting, turn)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return rs.options.Turns.Turn(ctx, turnID)
	}
	return turn, err
}

// awaitRun is await for a client that can execute tools.
func (rs *runs) awaitRun(ctx context.Context, found run) (run, error) {
	turn, err := rs.await(ctx, found.turn.ID)
	if err != nil {
		return found, err
	}
	found.turn = turn
	found.calls, err = rs.tools.calls(ctx, turn)
	return found, err
}

// wait blocks until the turn is settled for its client. Only agents whose askers execute tools stop in between.
func (rs *runs) wait(ctx context.Context, turn exchange.TurnRecord) (exchange.TurnRecord, error) {
	if rs.options.ToolKind(turn.Agent, "") != ToolOfAsker {
		return rs.options.Runs.Wait(ctx, turn.ID)
	}

	for one, err := range rs.options.Runs.Follow(ctx, turn.ID, 0) {
		if err != nil {
			return turn, err
		}

		state, is := strings.CutPrefix(one.Kind, "turn.")
		if !is || !exchange.Settled(state) {
			continue
		}
		if turn, err = rs.options.Turns.Turn(ctx, turn.ID); err != nil || rs.tools.settled(turn) {
			return turn, err
		}
	}

	return turn, ctx.Err()
}

// stop returns the newest of the runs that it asked to end.
func (rs *runs) stop(ctx context.Context, q question, runID string) (found run, err error) {
	turns, err := rs.sessions.turnsOf(ctx, q, maxSessionTurns)
	if err != nil {
		return run{}, err
	}

	for _, turn := range turns {
		if kept := routeOf(turn); runID != "" && kept.Run != runID {
			continue
		}

		if !exchange.Terminal(turn.State) {
			stopped, err := rs.options.Runs.Cancel(ctx, turn.ID, "stopped by its asker")
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

// allowWait lets a plain answer take longer than the server allows for an ordinary one.
func allowWait(w http.ResponseWriter, limit time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(limit + time.Minute))
}
