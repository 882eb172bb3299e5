package bridge

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"inbox/agents/runtime/task"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

func runNotFound() error { return fault.New(fault.NotFound, "the run was not found") }

// runFor returns a run that the caller may know of: one of its own, or any for an operator. Others are not found (agent
// runtime contract, section 6.6).
func (a *Adapter) runFor(ctx context.Context, c caller, id string) (exchange.TurnRecord, error) {
	turn, err := a.options.Turns.Turn(ctx, id)
	if fault.Is(err, fault.NotFound) { // or the name that a chat client knows it by
		turn, err = a.options.Turns.TurnOf(ctx, c.owner, exchange.RunMessageID(id))
	}
	switch {
	case fault.Is(err, fault.NotFound):
		return turn, runNotFound()
	case err != nil:
		return turn, err
	case !c.manager && ownerOf(turn) != c.owner, c.agent != "" && !strings.EqualFold(c.agent, turn.Agent):
		return exchange.TurnRecord{}, runNotFound()
	}
	return turn, nil
}

// getRun returns a run with its answer, if there is one. With wait it answers when the run has ended, or when the time is over.
func (a *Adapter) getRun(w http.ResponseWriter, r *http.Request, c caller) error {
	patience, err := a.patience(r.URL.Query().Get("wait"))
	if err != nil {
		return err
	}
	turn, err := a.runFor(r.Context(), c, httpserver.Param(r, "run"))
	if err != nil {
		return err
	}
	if turn, err = a.settled(r.Context(), turn, patience); err != nil {
		return err
	}
	return a.writeRun(w, r, turn, nil)
}

func (a *Adapter) writeRun(w http.ResponseWriter, r *http.Request, turn exchange.TurnRecord, more map[string]any) error {
	run := runOf(turn, a.options.Present)
	kept, err := a.options.Tasks.Get(r.Context(), controlID(turn.ID))
	if err != nil {
		return err
	}
	if cancelled, there := kept["cancelled"]; there {
		run["cancelled"] = cancelled
		if value.Truthy(cancelled) && !ended(turn) {
			run["status"] = task.StatusCancelling
		}
	}
	maps.Copy(run, more)
	httpserver.WriteJSON(w, http.StatusOK, run)
	return nil
}

// controlID names what is kept about the control of a run.
func controlID(turnID string) string { return "control:" + turnID }

// cancelRun asks a run to end. It is written down before it is done, so that a crash between the two loses nothing: asking
// again does the rest. A run that has ended keeps its status, and cancelled is false.
func (a *Adapter) cancelRun(w http.ResponseWriter, r *http.Request, c caller) error {
	turn, err := a.runFor(r.Context(), c, httpserver.Param(r, "run"))
	if err != nil {
		return err
	}
	body, _, err := readObject(r)
	if err != nil {
		return err
	}
	if session := text(body, "session_id"); session != "" && session != readRoute(turn.Route).Session {
		return runNotFound()
	}
	if exchange.Terminal(turn.State) {
		return a.writeRun(w, r, turn, map[string]any{"cancelled": false})
	}
	if err := a.noteCancel(r.Context(), turn, c); err != nil {
		return err
	}
	stopped, err := a.options.Runs.Cancel(r.Context(), turn.ID, "stopped by "+c.owner)
	switch {
	case fault.Is(err, fault.Conflict): // it ended meanwhile
		return a.writeRun(w, r, stopped, map[string]any{"cancelled": false})
	case err != nil:
		return err
	}
	return a.writeRun(w, r, stopped, map[string]any{"cancelled": true})
}

func (a *Adapter) noteCancel(ctx context.Context, turn exchange.TurnRecord, c caller) error {
	note := map[string]any{
		"run_id": controlID(turn.ID), "session_id": readRoute(turn.Route).Session, "status": task.StatusCancelling, "cancelled": true, "by": c.owner,
	}
	claimed, err := a.options.Tasks.Claim(ctx, note)
	if err != nil || claimed {
		return err
	}
	_, err = a.options.Tasks.Update(ctx, controlID(turn.ID), func(map[string]any) (map[string]any, error) { return note, nil })
	return err
}

// Bounds of a page of events (agent runtime contract, section 6.6).
const (
	defaultEvents = 100
	maxEvents     = 500
)

// runEvents pages through what happened to a run, or streams it.
func (a *Adapter) runEvents(w http.ResponseWriter, r *http.Request, c caller) error {
	turn, err := a.runFor(r.Context(), c, httpserver.Param(r, "run"))
	if err != nil {
		return err
	}
	if wantsStream(r) {
		after, err := lastEvent(r)
		if err != nil {
			return err
		}
		return a.stream(w, r, turn, after)
	}
	after, limit, err := page(r)
	if err != nil {
		return err
	}
	found, err := a.options.Turns.Events(r.Context(), turn.ID, after, limit+1)
	if err != nil {
		return err
	}
	more := len(found) > limit
	found = found[:min(len(found), limit)]
	list := []any{}
	for _, one := range found {
		list = append(list, runEvent(one))
		after = one.Seq
	}
	// The cursor is there on the last page too: a run that goes on has more behind it later.
	return a.writeRun(w, r, turn, map[string]any{"events": list, "cursor": strconv.FormatInt(after, 10), "has_more": more})
}

func page(r *http.Request) (after int64, limit int, err error) {
	query := r.URL.Query()
	if cursor := query.Get("cursor"); cursor != "" {
		if after, err = strconv.ParseInt(cursor, 10, 64); err != nil || after < 0 {
			return 0, 0, fault.InField("cursor", "is no cursor of this list")
		}
	}
	if limit, err = limitOf(query.Get("limit"), maxEvents); limit == 0 {
		limit = defaultEvents
	}
	return after, limit, err
}

// runEvent writes a row of the timeline. Only streamed text and who decided what is shown; the operator's own notes (calls of
// models and tools) keep their kind and nothing else.
func runEvent(one exchange.Event) map[string]any {
	written := map[string]any{
		"id": strconv.FormatInt(one.Seq, 10), "type": eventType(one.Kind), "created_at": stamp(one.At), "metadata": map[string]any{"kind": one.Kind},
	}
	if one.Kind == exchange.EventDelta {
		var delta map[string]any
		if json.Unmarshal(one.Body, &delta) == nil && delta["text"] != nil {
			written["message"] = delta["text"]
		}
	}
	return written
}

// eventType returns the contract's name of a row.
func eventType(kind string) string {
	state, is := strings.CutPrefix(kind, "turn.")
	switch {
	case is && state == exchange.StateRunning:
		return "run_started"
	case is && state == exchange.StateCancelled:
		return "cancel_requested"
	case is && exchange.Terminal(state):
		return "run_finished"
	}
	return "run_updated"
}
