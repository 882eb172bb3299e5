package tasks

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"inbox/agents/runtime/task"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// Bounds of a request.
const (
	maxTaskBytes   = 8 << 20
	maxCancelBytes = 16 << 10
	maxDepth       = 64
	defaultRuns    = 50
	maxRuns        = 500
)

// listTargets answers with the targets that the query allows, of those that the caller may use.
func (a *Adapter) listTargets(w http.ResponseWriter, r *http.Request, c caller) error {
	query := r.URL.Query()
	httpserver.WriteJSON(w, http.StatusOK, a.dispatcher(c, nil).Targets(c.Caller, map[string]any{
		"resource_class": query.Get("resource_class"), "allowed_targets": words(query, "allowed_targets"),
		"required_capabilities": words(query, "required_capabilities"),
	}))
	return nil
}

// words reads a parameter that is a list with commas, or there several times.
func words(query url.Values, name string) []any {
	list := []any{}
	for _, given := range query[name] {
		for word := range strings.SplitSeq(given, ",") {
			list = append(list, word)
		}
	}
	return list
}

// run begins a task: 202, or 200 when it ends while the request waits.
func (a *Adapter) run(w http.ResponseWriter, r *http.Request, c caller) error {
	patience, err := a.patience(r)
	if err != nil {
		return err
	}

	body, original, err := readObject(r, maxTaskBytes)
	if err != nil {
		return err
	}

	begun, err := a.dispatcher(c, original).Run(r.Context(), c.Caller, body)
	if err != nil {
		return err
	}

	run := c.Visible(begun)
	if patience > 0 {
		if run, err = a.settled(r.Context(), c, addressOf(begun), patience); err != nil {
			return err
		}
	}

	w.Header().Set("Location", "/v1/tasks/"+url.PathEscape(value.Text(begun["run_id"]))+"?session_id="+url.QueryEscape(value.Text(begun["session_id"])))
	httpserver.WriteJSON(w, statusFor(run), run)
	return nil
}

func addressOf(run map[string]any) map[string]any {
	return map[string]any{"run_id": run["run_id"], "session_id": run["session_id"]}
}

// statusFor is 200 where the run has ended, else 202.
func statusFor(run map[string]any) int {
	if task.Terminal(value.Text(run["status"])) {
		return http.StatusOK
	}
	return http.StatusAccepted
}

// settled returns a run when it has ended, or the time is over.
func (a *Adapter) settled(ctx context.Context, c caller, address map[string]any, patience time.Duration) (map[string]any, error) {
	run, err := a.dispatcher(c, nil).Get(ctx, c.Caller, address)
	if err != nil || patience <= 0 || task.Terminal(value.Text(run["status"])) {
		return run, err
	}

	if err := a.runs.wait(ctx, value.Text(run["run_id"]), patience); err != nil {
		return nil, err
	}
	return a.dispatcher(c, nil).Get(ctx, c.Caller, address)
}

// get answers with a run; with wait when it has ended, or when the time is over.
func (a *Adapter) get(w http.ResponseWriter, r *http.Request, c caller) error {
	patience, err := a.patience(r)
	if err != nil {
		return err
	}

	run, err := a.settled(r.Context(), c, asked(r), patience)
	if err != nil {
		return err
	}
	httpserver.WriteJSON(w, http.StatusOK, run)
	return nil
}

func asked(r *http.Request) map[string]any {
	return map[string]any{"run_id": httpserver.Param(r, "run"), "session_id": r.URL.Query().Get("session_id")}
}

// envelope answers with a run in the form of all kinds of runs.
func (a *Adapter) envelope(w http.ResponseWriter, r *http.Request, c caller) error {
	run, err := a.dispatcher(c, nil).Get(r.Context(), c.Caller, asked(r))
	if err != nil {
		return err
	}
	envelope, err := task.RunResult(run)
	if err != nil {
		return err
	}
	httpserver.WriteJSON(w, http.StatusOK, envelope)
	return nil
}

// cancel ends a run. A run that has ended keeps its status, and cancelled is false.
func (a *Adapter) cancel(w http.ResponseWriter, r *http.Request, c caller) error {
	body, _, err := readObject(r, maxCancelBytes)
	if err != nil {
		return err
	}

	address := asked(r)
	if session := value.Word(body["session_id"]); session != "" {
		address["session_id"] = session
	}
	run, err := a.dispatcher(c, nil).Cancel(r.Context(), c.Caller, address)
	if err != nil {
		return err
	}
	httpserver.WriteJSON(w, http.StatusOK, run)
	return nil
}

// list answers with the caller's runs, newest first; an operator reads those of all.
func (a *Adapter) list(w http.ResponseWriter, r *http.Request, c caller) error {
	query := r.URL.Query()
	size, err := limitOf(query.Get("limit"))
	if err != nil {
		return err
	}

	filter := exchange.TaskRunFilter{Before: query.Get("before"), Limit: size + 1, Owner: c.key()}
	if c.Manager {
		filter.Owner = ""
	}

	rows, err := a.options.Rows.TaskRuns(r.Context(), filter)
	if err != nil {
		return err
	}

	rows, next := exchange.NextPage(rows, size, func(row exchange.TaskRun) string { return row.TurnID })
	found := []map[string]any{}
	for _, row := range rows {
		run, err := a.runs.brief(r.Context(), row)
		if err != nil {
			return err
		}
		found = append(found, c.Visible(run))
	}

	answer := map[string]any{"runs": found}
	if next != "" {
		answer["next"] = next
	}
	httpserver.WriteJSON(w, http.StatusOK, answer)
	return nil
}

func limitOf(given string) (int, error) {
	if given == "" {
		return defaultRuns, nil
	}
	size, err := strconv.Atoi(given)
	if err != nil || size < 1 || size > maxRuns-1 {
		return 0, fault.InField("limit", "must be a number from 1 to 499")
	}
	return size, nil
}

// patience reads how long a request wants to wait: "20s", 20, or true for the longest.
func (a *Adapter) patience(r *http.Request) (time.Duration, error) {
	text := strings.TrimSpace(r.URL.Query().Get("wait"))
	switch text {
	case "", "0", "false":
		return 0, nil
	case "true":
		return a.options.WaitLimit, nil
	}

	if strings.Trim(text, "0123456789") == "" {
		text += "s"
	}
	length, err := time.ParseDuration(text)
	if err != nil || length < 0 {
		return 0, fault.InField("wait", "must be a time such as 30s")
	}
	return min(length, a.options.WaitLimit), nil
}

// readObject reads a body that is a JSON object; none at all is an empty one.
func readObject(r *http.Request, limit int64) (object map[string]any, body []byte, err error) {
	httpserver.Proven(r)
	if body, err = httpserver.ReadBody(r, limit); err != nil {
		return nil, nil, err
	}
	if strings.TrimSpace(string(body)) == "" {
		return map[string]any{}, body, nil
	}
	if err := httpserver.RefuseDuplicates(body); err != nil {
		return nil, nil, err
	}

	given, err := value.Decode(body, value.Limits{Bytes: int(limit), Depth: maxDepth})
	if err != nil {
		return nil, nil, fault.Wrap(fault.Malformed, "the body is not JSON", err)
	}
	object, is := value.Object(given)
	if !is {
		return nil, nil, fault.New(fault.Malformed, "the body must be a JSON object")
	}
	return object, body, nil
}
