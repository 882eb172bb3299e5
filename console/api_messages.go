package console

import (
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
)

type heldList struct {
	Held []exchange.TurnRecord `json:"held"`
	Next string                `json:"next,omitempty"` // value of "before" for the following page
}

func (a *API) listHeld(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	turns, next, err := page(r, exchange.TurnCursor, func(limit int) ([]exchange.TurnRecord, error) {
		return a.operator.Held.List(r.Context(), query.Get("agent"), query.Get("before"), limit)
	})
	return heldList{Held: turns, Next: next}, err
}

func (a *API) release(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Held.Release(r.Context(), httpserver.Param(r, "turn"))
}

// drop takes an optional {"reason": "…"}.
func (a *API) drop(w http.ResponseWriter, r *http.Request) (any, error) {
	why, err := reason(w, r)
	if err != nil {
		return nil, err
	}
	return nil, a.operator.Held.Drop(r.Context(), httpserver.Param(r, "turn"), orElse(why, "dropped by the operator"))
}

// timelineRows bounds a timeline in one answer.
const timelineRows = 5000

// turnView is a turn with what its agent did: the rows of its timeline without the pieces of the growing answer.
type turnView struct {
	exchange.TurnRecord

	Spent  *exchange.Spent  `json:"spent,omitempty"` // nil when the agent wrote no steps
	Events []exchange.Event `json:"events"`
}

func (a *API) turn(_ http.ResponseWriter, r *http.Request) (any, error) {
	turn, err := a.operator.Messages.Turn(r.Context(), httpserver.Param(r, "turn"))
	if err != nil {
		return nil, err
	}
	rows, err := a.operator.Messages.Timeline(r.Context(), turn.ID, timelineRows)
	if err != nil {
		return nil, err
	}
	events := slices.DeleteFunc(rows, func(event exchange.Event) bool { return event.Kind == exchange.EventDelta })
	return turnView{TurnRecord: turn, Spent: exchange.SpentBy(events), Events: listed(events)}, nil
}

// RetryBody selects failed messages.
type RetryBody struct {
	Agent  string `json:"agent,omitempty"`   // empty = of all agents
	Since  string `json:"since"`             // "2h", or a time (RFC 3339): those that failed later
	DryRun bool   `json:"dry_run,omitempty"` // returns what would run, and changes nothing
}

const (
	maxRetryBytes = 4 << 10
	maxAgentName  = 64
)

func (a *API) retry(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Messages.Retry(r.Context(), httpserver.Param(r, "turn"), caller(r))
}

func (a *API) retryFailed(w http.ResponseWriter, r *http.Request) (any, error) {
	var wanted RetryBody
	if err := readOptional(w, r, maxRetryBytes, &wanted, `send {"since":"2h"} and perhaps "agent" and "dry_run"`); err != nil {
		return nil, err
	}
	since, err := operator.SinceTime(wanted.Since, time.Now())
	if err != nil {
		return nil, err
	}
	if len(wanted.Agent) > maxAgentName || !utf8.ValidString(wanted.Agent) {
		return nil, fault.InField("agent", "must be the name of an agent")
	}
	return a.operator.Messages.RetryFailed(r.Context(), exchange.RetryFilter{Agent: wanted.Agent, Since: since}, caller(r), wanted.DryRun)
}

func (a *API) deleteAnswer(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Answers.Delete(r.Context(), httpserver.Param(r, "reply"), caller(r))
}

// editAnswer takes {"text": "…", "mime": "text/markdown"}; mime may be left out.
func (a *API) editAnswer(w http.ResponseWriter, r *http.Request) (any, error) {
	var wanted answerBody
	if err := readOptional(w, r, maxEditBytes, &wanted, `send {"text":"…"}`); err != nil {
		return nil, err
	}
	return nil, a.operator.Answers.Edit(r.Context(), httpserver.Param(r, "reply"), caller(r), wanted.Text, wanted.MIME)
}

func (a *API) pinAnswer(pinned bool) call {
	return func(_ http.ResponseWriter, r *http.Request) (any, error) {
		return nil, a.operator.Answers.Pin(r.Context(), httpserver.Param(r, "reply"), pinned)
	}
}
