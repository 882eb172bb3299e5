package bridge

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"inbox/adapters/bridge/contract"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// sessions are the conversations of an owner, and where a message goes among them.
type sessions struct {
	*site
}

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

// newThread returns the id of the conversation of a new session. The row of the session holds it and its name is drawn, so that a caller
// who deletes a session and creates one with the same id begins a new conversation.
func newThread(agent, owner string) string {
	return exchange.ConversationID(ChannelName, agent, owner, newID())
}

// listSessions returns the sessions of the caller, newest update first. An operator sees those of all owners.
func (s *sessions) listSessions(w http.ResponseWriter, r *http.Request, c caller) error {
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

	found, err := s.options.Sessions.Sessions(r.Context(), filter)
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

// createSession begins a session with an agent, under an id of the caller's or a new one. The same id again returns the
// session that is there.
func (s *sessions) createSession(w http.ResponseWriter, r *http.Request, c caller) error {
	body, _, err := readObject(r)
	if err != nil {
		return err
	}

	agent, err := s.opens(c, text(body, "agent"))
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
	session, created, err := s.options.Sessions.CreateSession(r.Context(), exchange.Session{
		ID: id, Owner: c.owner, Agent: agent.Name, ThreadID: newThread(agent.Name, c.owner), Title: title(text(body, "title"), ""),
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

// place is where a message goes: the session that the caller named, the one of the outside conversation, or a new one.
// fresh reports whether the session was made for this message.
func (s *sessions) place(ctx context.Context, owner, named string, agent exchange.AgentProfile, message contract.Message, title string) (session exchange.Session, fresh bool, err error) {
	if named != "" {
		session, err = s.sessionOf(ctx, owner, named)
		if err == nil && session.Agent != agent.Name {
			err = sessionNotFound()
		}
		return session, false, err
	}

	now := time.Now().UTC().Truncate(time.Microsecond)
	session = exchange.Session{
		ID: newID(), Owner: owner, Agent: agent.Name, ThreadID: newThread(agent.Name, owner), Title: title,
		Connector: message.ConnectorID, Conversation: message.ConversationID, CreatedAt: now, UpdatedAt: now,
	}

	if message.ConversationID == "" {
		session, _, err = s.options.Sessions.CreateSession(ctx, session)
		return session, true, err
	}

	key := contract.NewSessionKey(message.ConnectorID, message.ConversationID, agent.Name)
	session, err = s.options.Sessions.ChannelSession(ctx, key, session)
	return session, false, err
}

func (s *site) sessionOf(ctx context.Context, owner, id string) (exchange.Session, error) {
	session, found, err := s.options.Sessions.Session(ctx, owner, id)
	if err == nil && !found {
		err = sessionNotFound()
	}
	return session, err
}

// asked finds the session of a request. That of another owner, or with an agent that the token does not open, is not found.
func (s *sessions) asked(r *http.Request, c caller) (exchange.Session, error) {
	session, err := s.sessionOf(r.Context(), ownerFor(r, c), httpserver.Param(r, "session"))
	if err == nil && c.agent != "" && !strings.EqualFold(c.agent, session.Agent) {
		err = sessionNotFound()
	}
	return session, err
}

func sessionNotFound() error { return fault.New(fault.NotFound, "the session was not found") }

func (s *sessions) getSession(w http.ResponseWriter, r *http.Request, c caller) error {
	session, err := s.asked(r, c)
	if err != nil {
		return err
	}

	value := sessionValue(session)
	turns, err := s.options.Turns.Turns(r.Context(), exchange.TurnFilter{Agent: session.Agent, ThreadID: session.ThreadID, ByArrival: true, Limit: 1})
	if err != nil {
		return err
	}

	if len(turns) > 0 {
		value["last_run_id"], value["status"] = turns[0].ID, statusOf(turns[0])
	}

	httpserver.WriteJSON(w, http.StatusOK, value)
	return nil
}

func (s *sessions) renameSession(w http.ResponseWriter, r *http.Request, c caller) error {
	body, _, err := readObject(r)
	if err != nil {
		return err
	}

	session, err := s.asked(r, c)
	if err != nil {
		return err
	}

	session.Title = title(text(body, "title"), "")
	if session.Title == "" {
		return fault.InField("title", "is needed")
	}
	if err := s.options.Sessions.RenameSession(r.Context(), session.Owner, session.ID, session.Title); err != nil {
		return err
	}

	httpserver.WriteJSON(w, http.StatusOK, sessionValue(session))
	return nil
}

// deleteSession ends a conversation: what runs in it is stopped, what was said is removed, and nothing leads to it any more.
func (s *sessions) deleteSession(w http.ResponseWriter, r *http.Request, c caller) error {
	session, err := s.asked(r, c)
	if err != nil {
		return err
	}

	running, err := s.options.Turns.Turns(r.Context(), exchange.TurnFilter{
		Agent: session.Agent, ThreadID: session.ThreadID, ByArrival: true, Limit: maxEvents,
		States: []string{exchange.StateAccepted, exchange.StateRunning, exchange.StateWaiting, exchange.StateHeld},
	})
	if err != nil {
		return err
	}

	for _, turn := range running {
		if _, err := s.options.Runs.Cancel(r.Context(), turn.ID, "its session was deleted"); err != nil && !fault.Is(err, fault.Conflict) {
			return err
		}
	}

	if err := s.dropItems(r.Context(), c, session); err != nil {
		return err
	}
	if err := s.options.Sessions.DeleteSession(r.Context(), session.Owner, session.ID); err != nil {
		return err
	}

	httpserver.WriteJSON(w, http.StatusOK, map[string]any{"session_id": session.ID, "deleted": true})
	return nil
}

// dropItems removes what a client has not fetched of its session.
func (s *sessions) dropItems(ctx context.Context, c caller, session exchange.Session) error {
	for c.client != "" && session.Owner == c.owner {
		items, err := s.options.Queue.Pending(ctx, c.client, contract.Query{Limit: maxEvents, Sessions: []string{session.ID}})
		if err != nil || len(items) == 0 {
			return err
		}

		ids := make([]string, len(items))
		for i, item := range items {
			ids[i] = item.ID
		}

		if _, err := s.options.Queue.Ack(ctx, c.client, ids); err != nil {
			return err
		}
	}
	return nil
}

// maxTitle bounds the title of a session in characters.
const maxTitle = 120

// title is the one that was given, or the beginning of the first message.
func title(given, message string) string {
	if given == "" {
		given = message
	}

	characters := []rune(given)
	if end := slices.Index(characters, '\n'); end >= 0 {
		characters = characters[:end]
	}
	if len(characters) > maxTitle {
		return string(characters[:maxTitle-1]) + "…"
	}
	return string(characters)
}
