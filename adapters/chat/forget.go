package chat

import (
	"context"
	"net/http"

	"inbox/adapters/chat/contract"
	"inbox/internal/fault"
)

// serveForget is DELETE /v1/chat?agent=…: it ends what runs in the session of the header Chat-Session and removes what was
// said in it. 204 means that it is gone.
func (a *Adapter) serveForget(w http.ResponseWriter, r *http.Request) error {
	who, err := a.identify(r)
	if err != nil {
		return err
	}
	agent, known := a.agent(r.URL.Query().Get("agent"))
	if !known {
		return noAgent()
	}
	if err := a.admitTo(scopeCancel, who, agent); err != nil {
		return err
	}
	q := question{agent: agent, who: who, input: contract.Input{SessionID: sessionOf(r)}}
	if err := a.forget(r.Context(), q); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// forget leaves the session's own row to the end, and is done again by the same request when it was cut off.
func (a *Adapter) forget(ctx context.Context, q question) error {
	if q.input.SessionID == "" {
		return sessionNotFound()
	}
	session, owned, err := a.place(q)
	if err != nil {
		return err
	}
	_, unknown := a.stop(ctx, q, "")
	if unknown != nil && !fault.Is(unknown, fault.NotFound) {
		return unknown
	}
	if _, err := a.options.Memory.ForgetThread(ctx, owned.agent, owned.thread(session)); err != nil {
		return err
	}
	err = a.options.Memory.DeleteSession(ctx, owned.principal, session)
	if fault.Is(err, fault.NotFound) { // guests have no row
		return unknown
	}
	return err
}
