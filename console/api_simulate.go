package console

import (
	"context"
	"net/http"
	"time"

	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
)

// simulateRoutes send messages as someone would, and show messages as recordings. Each does what inbox simulate and inbox record do.
func (a *API) simulateRoutes() []httpserver.Route {
	return []httpserver.Route{
		a.route(http.MethodPost, "/api/v1/simulate", a.simulate),
		a.route(http.MethodGet, "/api/v1/turns/{turn}/recording", a.recording),
	}
}

const (
	maxSimulation  = 8 << 20 // bytes of a request, with its files
	simulationWait = 30 * time.Second
)

// simulate waits for what becomes of the message, by default half a minute; the request ends when the server stops.
func (a *API) simulate(w http.ResponseWriter, r *http.Request) (any, error) {
	var message operator.Simulation
	if err := readOptional(w, r, maxSimulation, &message, `send {"way":"mention","agent":"…","text":"…"}`); err != nil {
		return nil, err
	}
	if message.Agent == "" {
		return nil, fault.InField("agent", "is missing")
	}
	wait, err := waitOf(r.URL.Query())
	if err != nil {
		return nil, err
	}
	if wait == 0 {
		wait = simulationWait
	}

	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-httpserver.Stopping(r.Context()):
			cancel()
		case <-ctx.Done():
		}
	}()
	simulated, err := a.operator.Simulate(ctx, message, operator.PeerOptions{}, wait)
	if err != nil && ctx.Err() != nil && r.Context().Err() == nil {
		return nil, fault.Wrap(fault.Unavailable, "the server stops; look for the message when it runs again", err)
	}
	return simulated, err
}

// recording is a message without secrets; with names=true people keep theirs.
func (a *API) recording(_ http.ResponseWriter, r *http.Request) (any, error) {
	names := r.URL.Query().Get("names")
	if names != "" && names != "true" && names != "false" {
		return nil, fault.InField("names", "must be true or false")
	}
	recorder := a.operator.Recorder(operator.RecordOptions{Names: names == "true"})
	return recorder.Record(r.Context(), httpserver.Param(r, "turn"))
}
