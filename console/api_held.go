package console

import (
	"net/http"
	"unicode/utf8"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

type heldList struct {
	Held []exchange.TurnRecord `json:"held"`
	Next string                `json:"next,omitempty"` // value of "before" for the following page
}

func (a *API) listHeld(_ http.ResponseWriter, r *http.Request) (any, error) {
	size, err := limit(r)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	turns, err := a.Turns.Turns(r.Context(), exchange.TurnFilter{
		Agent: query.Get("agent"), States: []string{exchange.StateHeld}, Before: query.Get("before"), Limit: size + 1,
	})
	turns, next := exchange.NextPage(turns, size, exchange.TurnCursor)
	return heldList{Held: listed(turns), Next: next}, err
}

func (a *API) release(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.Held.Release(r.Context(), httpserver.Param(r, "turn"))
}

const (
	maxReasonBytes = 500
	maxDropBytes   = 4 << 10
	defaultReason  = "dropped by the operator"
)

// drop takes an optional {"reason": "…"}.
func (a *API) drop(w http.ResponseWriter, r *http.Request) (any, error) {
	var wanted reasonBody
	if err := readOptional(w, r, maxDropBytes, &wanted, `send nothing, or {"reason":"…"}`); err != nil {
		return nil, err
	}
	if len(wanted.Reason) > maxReasonBytes || !utf8.ValidString(wanted.Reason) {
		return nil, fault.InField("reason", "must be at most 500 bytes of text")
	}
	return nil, a.Held.Drop(r.Context(), httpserver.Param(r, "turn"), orElse(wanted.Reason, defaultReason))
}
