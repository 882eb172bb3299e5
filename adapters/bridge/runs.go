package bridge

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"inbox/agents/runtime/task"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// runs shows, follows and stops turns.
type runs struct {
	*site
}

// getRun returns a run with its answer, if there is one. With wait it answers when the run has ended, or when the time is over.
func (rs *runs) getRun(w http.ResponseWriter, r *http.Request, c caller) error {
	patience, err := rs.patience(r.URL.Query().Get("wait"))
	if err != nil {
		return err
	}

	turn, err := rs.runFor(r.Context(), c, httpserver.Param(r, "run"))
	if err != nil {
		return err
	}
	if turn, err = rs.settled(r.Context(), turn, patience); err != nil {
		return err
	}
	return rs.writeRun(w, r, turn, nil)
}

func runNotFound() error { return fault.New(fault.NotFound, "the run was not found") }

// runFor returns a run that the caller may know of: one of its own, or any for an operator. Others are not found (agent
// runtime contract, section 6.6).
func (rs *runs) runFor(ctx context.Context, c caller, id string) (exchange.TurnRecord, error) {
	turn, err := rs.options.Turns.Turn(ctx, id)
	if fault.Is(err, fault.NotFound) { // or the name that a chat client knows it by
		turn, err = rs.options.Turns.TurnOf(ctx, c.owner, exchange.RunMessageID(id))
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

// settled waits for the end of a turn, at most the given time; then it returns the turn as it is: the run goes on.
func (rs *runs) settled(ctx context.Context, turn exchange.TurnRecord, patience time.Duration) (exchange.TurnRecord, error) {
	if patience <= 0 || ended(turn) {
		return turn, nil
	}

	serving, stop := httpserver.WhileServing(ctx)
	defer stop()
	waiting, cancel := context.WithTimeout(serving, patience)
	defer cancel()
	found, err := rs.options.Runs.Wait(waiting, turn.ID)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return rs.options.Turns.Turn(ctx, turn.ID)
	}
	return found, err
}

func ended(turn exchange.TurnRecord) bool {
	return exchange.Settled(turn.State) && !exchange.GoesOnByItself(turn)
}

func (rs *runs) writeRun(w http.ResponseWriter, r *http.Request, turn exchange.TurnRecord, more map[string]any) error {
	run := runOf(rs.withAddresses(turn), rs.options.Present)
	kept, err := rs.options.Notes.Get(r.Context(), controlID(turn.ID))
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
func (rs *runs) cancelRun(w http.ResponseWriter, r *http.Request, c caller) error {
	turn, err := rs.runFor(r.Context(), c, httpserver.Param(r, "run"))
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
		return rs.writeRun(w, r, turn, map[string]any{"cancelled": false})
	}
	if err := rs.noteCancel(r.Context(), turn, c); err != nil {
		return err
	}

	stopped, err := rs.options.Runs.Cancel(r.Context(), turn.ID, "stopped by "+c.owner)
	switch {
	case fault.Is(err, fault.Conflict): // it ended meanwhile
		return rs.writeRun(w, r, stopped, map[string]any{"cancelled": false})
	case err != nil:
		return err
	}

	return rs.writeRun(w, r, stopped, map[string]any{"cancelled": true})
}

func (rs *runs) noteCancel(ctx context.Context, turn exchange.TurnRecord, c caller) error {
	note := map[string]any{
		"run_id": controlID(turn.ID), "session_id": readRoute(turn.Route).Session, "status": task.StatusCancelling, "cancelled": true, "by": c.owner,
	}
	claimed, err := rs.options.Notes.Claim(ctx, note)
	if err != nil || claimed {
		return err
	}
	_, err = rs.options.Notes.Update(ctx, controlID(turn.ID), func(map[string]any) (map[string]any, error) { return note, nil })
	return err
}

// Bounds of a page of events (agent runtime contract, section 6.6).
const (
	defaultEvents = 100
	maxEvents     = 500
)

// runEvents pages through what happened to a run, or streams it.
func (rs *runs) runEvents(w http.ResponseWriter, r *http.Request, c caller) error {
	turn, err := rs.runFor(r.Context(), c, httpserver.Param(r, "run"))
	if err != nil {
		return err
	}
	if wantsStream(r) {
		after, err := lastEvent(r)
		if err != nil {
			return err
		}
		return rs.stream(w, r, turn, after)
	}

	after, limit, err := page(r)
	if err != nil {
		return err
	}

	found, err := rs.options.Turns.Events(r.Context(), turn.ID, after, limit+1)
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
	return rs.writeRun(w, r, turn, map[string]any{"events": list, "cursor": strconv.FormatInt(after, 10), "has_more": more})
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
		"id": strconv.FormatInt(one.Seq, 10), "type": exchange.RunEventType(one.Kind), "created_at": stamp(one.At), "metadata": map[string]any{"kind": one.Kind},
	}

	if one.Kind == exchange.EventDelta {
		var delta map[string]any
		if json.Unmarshal(one.Body, &delta) == nil && delta["text"] != nil {
			written["message"] = delta["text"]
		}
	}
	return written
}

// stream returns the growing answer of a run as server-sent events: accepted, then text as it grows and calls of tools (restarted = what was
// sent is void), and in the end done with the whole run, or
// resume with the place to go on from when the server stops before. The ids of the events are those of the timeline: who was cut off
// goes on behind one of them with Last-Event-ID at /v1/runs/{run}/events.
func (rs *runs) stream(w http.ResponseWriter, r *http.Request, turn exchange.TurnRecord, after int64) error {
	ctx, stop := httpserver.WhileServing(r.Context())
	defer stop()
	out := rs.openEvents(ctx, w, stop)
	defer out.Close()
	first := runOf(rs.withAddresses(turn), rs.options.Present)
	delete(first, "reply")
	delete(first, "messages")

	if after == 0 && !out.Write(event("accepted", "", first)) {
		return nil
	}

	last, begun := after, map[string]bool{}
	for one, err := range rs.options.Runs.Follow(ctx, turn.ID, after) {
		if err != nil {
			if r.Context().Err() == nil { // the server stops: the reader goes on here or at another node
				out.Write(event("resume", "", map[string]any{"run_id": first["run_id"], "after": last, "reason": "stream_cut"}))
			}
			return nil
		}

		last = one.Seq
		if !rs.pass(out, one, begun) {
			return nil
		}
		if settles(one) {
			break
		}
	}

	settled, err := rs.options.Runs.Wait(ctx, turn.ID)
	if err != nil {
		return nil
	}

	for _, part := range partsOf(settled.Response, rs.options.Present) { // the last steps of a run leave no rows of their own
		if begun[part.ID] && part.Ended() {
			out.Write(event("tool", "", runToolOf(part)))
		}
	}

	out.Write(event("done", "", runOf(rs.withAddresses(settled), rs.options.Present)))
	return nil
}

// settles reports whether nothing follows for now.
func settles(one exchange.Event) bool {
	state, is := strings.CutPrefix(one.Kind, "turn.")
	return is && exchange.Settled(state)
}

// pass writes what of a timeline a program may see. Begun are the calls of tools whose outcome the reader lacks.
func (rs *runs) pass(out *httpserver.EventWriter, one exchange.Event, begun map[string]bool) bool {
	id := strconv.FormatInt(one.Seq, 10)
	switch one.Kind {
	case exchange.EventRestarted:
		clear(begun)
		return out.Write(event("restarted", id, map[string]any{}))
	case exchange.EventDelta:
		var delta normalized.Delta
		if json.Unmarshal(one.Body, &delta) != nil {
			return true
		}
		if (delta.Kind == normalized.DeltaToolCallStart || delta.Kind == normalized.DeltaToolCallEnd) && delta.Part != nil {
			begun[delta.Part.ID] = !delta.Part.Ended()
			return out.Write(event("tool", id, runToolOf(*delta.Part)))
		}
		grown := delta.Text
		if delta.Kind == normalized.DeltaPartBegin && delta.Part != nil && delta.Part.Kind == normalized.PartText {
			grown = delta.Part.Content
		}
		return grown == "" || out.Write(event("delta", id, map[string]any{"text": grown}))
	case "turn." + exchange.StateRunning:
		return out.Write(event("status", id, map[string]any{"status": "running"}))
	}

	return true
}

// runToolOf is a call of a tool as far as its readers may see it.
func runToolOf(part normalized.Part) RunTool {
	shown := RunTool{ID: part.ID, Name: part.Name, Status: "running", Args: part.Args, Result: part.Result}
	switch {
	case part.Error != nil:
		shown.Status, shown.Error = "failed", part.Error.Message
	case part.Ended():
		shown.Status = "succeeded"
	}
	return shown
}

// lastEvent reads after which event a reader goes on.
func lastEvent(r *http.Request) (int64, error) {
	given := r.Header.Get("Last-Event-ID")
	if given == "" {
		given = r.URL.Query().Get("after")
	}
	if given == "" {
		return 0, nil
	}

	seq, err := strconv.ParseInt(given, 10, 64)
	if err != nil || seq < 0 {
		return 0, fault.InField("Last-Event-ID", "is not the id of an event of this run")
	}
	return seq, nil
}
