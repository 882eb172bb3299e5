package bridge

import (
	"context"
	"net/http"
	"strings"
	"time"

	"inbox/adapters/bridge/contract"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// maxSessionID bounds the id that a caller chooses for a session, in bytes.
const maxSessionID = 255

func sessionValue(session exchange.Session) map[string]any {
	value := map[string]any{
		"session_id": session.ID, "agent": session.Agent, "title": session.Title,
		"created_at": stamp(session.CreatedAt), "updated_at": stamp(session.UpdatedAt),
	}
	if session.Connector != "" {
		value["connector_id"] = session.Connector
	}
	if session.Conversation != "" {
		value["external_conversation_id"] = session.Conversation
	}
	if session.Imported > 0 {
		value["imported_messages"] = session.Imported
	}
	return value
}

// ownerFor returns whose sessions are asked for: the caller's, or with owner those that an operator names.
func ownerFor(r *http.Request, c caller) string {
	if asked := r.URL.Query().Get("owner"); c.manager && asked != "" {
		return asked
	}
	return c.owner
}

// listSessions returns the sessions of the caller, newest update first. An operator sees those of everybody.
func (a *Adapter) listSessions(w http.ResponseWriter, r *http.Request, c caller) error {
	query := r.URL.Query()
	limit, err := limitOf(query.Get("limit"), maxEvents)
	if err != nil {
		return err
	}
	if limit == 0 {
		limit = defaultEvents
	}
	limit = min(limit, maxEvents-1) // one more is read, to know whether there are more
	filter := exchange.SessionFilter{Owner: ownerFor(r, c), Agent: query.Get("agent"), Before: query.Get("cursor"), Limit: limit + 1}
	if c.manager && query.Get("owner") == "" {
		filter.Owner = exchange.AnyOwner
	}
	if c.agent != "" {
		filter.Agent = c.agent
	}
	found, err := a.options.Sessions.Sessions(r.Context(), filter)
	if err != nil {
		return err
	}
	more := len(found) > limit
	found = found[:min(len(found), limit)]
	list, cursor := []any{}, ""
	for _, session := range found {
		value := sessionValue(session)
		if c.manager {
			value["owner"] = session.Owner
		}
		list = append(list, value)
	}
	if more {
		cursor = found[len(found)-1].Cursor()
	}
	httpserver.WriteJSON(w, http.StatusOK, map[string]any{"sessions": list, "cursor": cursor, "has_more": more})
	return nil
}

// createSession begins a session with an agent, under an id of the caller's or a new one. The same id again gives the
// session that is there.
func (a *Adapter) createSession(w http.ResponseWriter, r *http.Request, c caller) error {
	body, _, err := readObject(r)
	if err != nil {
		return err
	}
	agent, err := a.opens(c, text(body, "agent"))
	if err != nil {
		return err
	}
	id := text(body, "session_id")
	switch {
	case len(id) > maxSessionID || strings.ContainsFunc(id, func(char rune) bool { return char < ' ' || char == 0x7f }):
		return fault.InField("session_id", "must have 1 to 255 bytes that print")
	case id == "":
		id = newID()
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	session, created, err := a.options.Sessions.CreateSession(r.Context(), exchange.Session{
		ID: id, Owner: c.owner, Agent: agent.Name, ThreadID: "session:" + newID(), Title: title(text(body, "title"), ""),
		CreatedAt: now, UpdatedAt: now,
	})
	if err != nil {
		return err
	}
	if session.Agent != agent.Name {
		return fault.New(fault.Conflict, "the session is one with another agent")
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	httpserver.WriteJSON(w, status, sessionValue(session))
	return nil
}

// asked finds the session of a request. That of somebody else, or with an agent that the token does not open, is not found.
func (a *Adapter) asked(r *http.Request, c caller) (exchange.Session, error) {
	session, err := a.sessionOf(r.Context(), ownerFor(r, c), httpserver.Param(r, "session"))
	if err == nil && c.agent != "" && !strings.EqualFold(c.agent, session.Agent) {
		err = sessionNotFound()
	}
	return session, err
}

func (a *Adapter) getSession(w http.ResponseWriter, r *http.Request, c caller) error {
	session, err := a.asked(r, c)
	if err != nil {
		return err
	}
	value := sessionValue(session)
	turns, err := a.options.Turns.Turns(r.Context(), exchange.TurnFilter{Agent: session.Agent, ThreadID: session.ThreadID, ByArrival: true, Limit: 1})
	if err != nil {
		return err
	}
	if len(turns) > 0 {
		value["last_run_id"], value["status"] = turns[0].ID, statusOf(turns[0])
	}
	httpserver.WriteJSON(w, http.StatusOK, value)
	return nil
}

func (a *Adapter) renameSession(w http.ResponseWriter, r *http.Request, c caller) error {
	body, _, err := readObject(r)
	if err != nil {
		return err
	}
	session, err := a.asked(r, c)
	if err != nil {
		return err
	}
	session.Title = title(text(body, "title"), "")
	if session.Title == "" {
		return fault.InField("title", "is needed")
	}
	if err := a.options.Sessions.RenameSession(r.Context(), session.Owner, session.ID, session.Title); err != nil {
		return err
	}
	httpserver.WriteJSON(w, http.StatusOK, sessionValue(session))
	return nil
}

// deleteSession ends a conversation: what runs in it is stopped, what was said is removed, and nothing leads to it any more.
func (a *Adapter) deleteSession(w http.ResponseWriter, r *http.Request, c caller) error {
	session, err := a.asked(r, c)
	if err != nil {
		return err
	}
	running, err := a.options.Turns.Turns(r.Context(), exchange.TurnFilter{
		Agent: session.Agent, ThreadID: session.ThreadID, ByArrival: true, Limit: maxEvents,
		States: []string{exchange.StateAccepted, exchange.StateRunning, exchange.StateWaiting, exchange.StateHeld},
	})
	if err != nil {
		return err
	}
	for _, turn := range running {
		if _, err := a.options.Runs.Cancel(r.Context(), turn.ID, "its session was deleted"); err != nil && !fault.Is(err, fault.Conflict) {
			return err
		}
	}
	if err := a.dropItems(r.Context(), c, session); err != nil {
		return err
	}
	if err := a.options.Sessions.DeleteSession(r.Context(), session.Owner, session.ID); err != nil {
		return err
	}
	httpserver.WriteJSON(w, http.StatusOK, map[string]any{"session_id": session.ID, "deleted": true})
	return nil
}

// dropItems removes what a client has not fetched of its session.
func (a *Adapter) dropItems(ctx context.Context, c caller, session exchange.Session) error {
	for c.client != "" && session.Owner == c.owner {
		items, err := a.options.Queue.Pending(ctx, c.client, contract.Query{Limit: maxEvents, Sessions: []string{session.ID}})
		if err != nil || len(items) == 0 {
			return err
		}
		ids := make([]string, len(items))
		for i, item := range items {
			ids[i] = item.ID
		}
		if _, err := a.options.Queue.Ack(ctx, c.client, ids); err != nil {
			return err
		}
	}
	return nil
}

// queueMessage adds a message to a session: it runs at once, or waits for the runs before it. It is the same as sending it
// (agent runtime contract, section 6.6).
func (a *Adapter) queueMessage(w http.ResponseWriter, r *http.Request, c caller) error {
	session, err := a.asked(r, c)
	if err != nil {
		return err
	}
	if session.Owner != c.owner {
		return fault.New(fault.Forbidden, "an operator reads sessions and writes in none of others")
	}
	body, original, err := readObject(r)
	if err != nil {
		return err
	}
	if named := text(body, "agent"); named != "" && !strings.EqualFold(named, session.Agent) {
		return sessionNotFound()
	}
	body["agent"] = session.Agent
	return a.queued(w, r, c, body, original, session)
}
