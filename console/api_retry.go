package console

import (
	"context"
	"net/http"
	"time"
	"unicode/utf8"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// Retries runs failed turns again.
type Retries interface {
	// Retry runs one again; by names who wants it. fault.NotFound without such a turn, fault.Conflict when it has not failed
	// or its sender cannot be answered any more.
	Retry(ctx context.Context, turnID, by string) error
	// RetryFailed runs all again that the filter selects; with dryRun it changes nothing.
	RetryFailed(ctx context.Context, filter exchange.RetryFilter, by string, dryRun bool) (exchange.RetryResult, error)
}

// RetryBody selects failed messages.
type RetryBody struct {
	Agent  string `json:"agent,omitempty"`   // empty = of all agents
	Since  string `json:"since"`             // "2h", or a time (RFC 3339): those that failed later
	DryRun bool   `json:"dry_run,omitempty"` // says what would run, and changes nothing
}

const (
	maxRetryBytes = 4 << 10
	maxAgentName  = 64
)

func (a *API) retry(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.Retries.Retry(r.Context(), httpserver.Param(r, "turn"), caller(r))
}

func (a *API) retryFailed(w http.ResponseWriter, r *http.Request) (any, error) {
	var wanted RetryBody
	if err := readOptional(w, r, maxRetryBytes, &wanted, `send {"since":"2h"} and perhaps "agent" and "dry_run"`); err != nil {
		return nil, err
	}
	since, err := SinceTime(wanted.Since, time.Now())
	if err != nil {
		return nil, err
	}
	if len(wanted.Agent) > maxAgentName || !utf8.ValidString(wanted.Agent) {
		return nil, fault.InField("agent", "must be the name of an agent")
	}
	return a.Retries.RetryFailed(r.Context(), exchange.RetryFilter{Agent: wanted.Agent, Since: since}, caller(r), wanted.DryRun)
}

// SinceTime reads an age such as 2h, or a time (RFC 3339). Malformed when it is neither.
func SinceTime(text string, now time.Time) (time.Time, error) {
	if age, err := time.ParseDuration(text); err == nil && age > 0 {
		return now.Add(-age), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fault.InField("since", `must be an age such as "2h" or a time such as "2026-05-01T12:00:00Z"`)
	}
	return at, nil
}
