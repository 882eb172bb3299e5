package console

import (
	"net/http"
	"time"

	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// keyBody names a key that signs from now on.
type keyBody struct {
	Key string `json:"key"`
}

// moveBody is where the account of an agent goes, or went: an address, or the address of an actor.
type moveBody struct {
	Target string `json:"target"`
}

func (a *API) reload(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Node.Reload(r.Context())
}

func (a *API) stop(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Node.Stop(r.Context())
}

func (a *API) rotateActorKey(_ http.ResponseWriter, r *http.Request) (any, error) {
	key, err := a.operator.Node.RotateActorKey(r.Context(), httpserver.Param(r, "actor"))
	return keyBody{key}, err
}

func (a *API) moveAgent(w http.ResponseWriter, r *http.Request) (any, error) {
	var body moveBody
	if err := readOptional(w, r, maxReasonBody, &body, `send {"target":"@name@server.example"}`); err != nil {
		return nil, err
	}
	if body.Target == "" {
		return nil, fault.InField("target", "is missing: write @name@server.example or the address of an actor")
	}
	target, err := a.operator.Node.MoveAgent(r.Context(), httpserver.Param(r, "agent"), body.Target)
	return moveBody{target}, err
}

func (a *API) unmoveAgent(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Node.UnmoveAgent(r.Context(), httpserver.Param(r, "agent"))
}

// pauseView says whether all agents wait with their work.
type pauseView struct {
	Paused bool       `json:"paused"`
	Since  *time.Time `json:"since,omitempty"`
	Reason string     `json:"reason,omitempty"`
}

func (a *API) pause(_ http.ResponseWriter, r *http.Request) (any, error) {
	entry, paused, err := a.operator.Pauses.All(r.Context())
	if err != nil || !paused {
		return pauseView{}, err
	}
	return pauseView{true, &entry.CreatedAt, entry.Reason}, nil
}

func (a *API) beginPause(w http.ResponseWriter, r *http.Request) (any, error) {
	why, err := reason(w, r)
	if err != nil {
		return nil, err
	}
	entry, err := a.operator.Pauses.BeginAll(r.Context(), why)
	return pauseView{true, &entry.CreatedAt, entry.Reason}, err
}

func (a *API) endPause(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Pauses.EndAll(r.Context())
}
