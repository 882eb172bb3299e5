package bridge

import (
	"context"
	"net/http"
	"slices"
	"time"

	"inbox/adapters/bridge/contract"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// send takes a message of a bridge for an agent. The answer waits in the client's queue, whatever becomes of this request;
// who asks for it (Accept: text/event-stream, or wait) gets it here as well.
func (a *Adapter) send(w http.ResponseWriter, r *http.Request, c caller) error {
	if c.client == "" {
		return fault.New(fault.Forbidden, "only the token of a bridge sends messages here; see: inbox tokens create --bridge")
	}
	body, original, err := readObject(r)
	if err != nil {
		return err
	}
	return a.take(w, r, c, body, original, text(body, "session_id"))
}

// take accepts the message of a body in a session, named or not, and answers.
func (a *Adapter) take(w http.ResponseWriter, r *http.Request, c caller, body map[string]any, original []byte, named string) error {
	patience, err := a.wait(r, body)
	if err != nil {
		return err
	}
	q, fresh, err := a.question(r, c, body, named)
	if err != nil {
		return err
	}
	q.original = original
	taken, err := a.accept(r.Context(), q, fresh)
	if err != nil {
		return err
	}
	if wantsStream(r) {
		return a.stream(w, r, taken.turn, 0)
	}
	turn, err := a.settled(r.Context(), taken.turn, patience)
	if err != nil {
		return err
	}
	answer := runOf(turn, a.options.Present)
	if taken.repeat {
		answer["duplicate"] = true
	}
	writeTaken(w, turn, answer)
	return nil
}

// statusFor is 200 where the answer is there, else 202.
func statusFor(turn exchange.TurnRecord) int {
	if turn.Response != nil || exchange.Terminal(turn.State) {
		return http.StatusOK
	}
	return http.StatusAccepted
}

func (a *Adapter) question(r *http.Request, c caller, body map[string]any, named string) (q question, fresh bool, err error) {
	about := value.Assoc(body["client_context"])
	message, err := a.external(c, body, about)
	if err != nil {
		return q, false, err
	}
	name := text(body, "agent")
	if name == "" && named != "" {
		session, err := a.sessionOf(r.Context(), c.owner, named)
		if err != nil {
			return q, false, err
		}
		name = session.Agent
	}
	agent, err := a.opens(c, name)
	if err != nil {
		return q, false, err
	}
	q = question{
		agent: agent, sender: a.sender(c, agent, message.SenderID, text(body, "sender_name", "display_name")), message: message, context: about,
		way: wayQueue, client: c.client, surface: surfaceBridge, relay: normalized.MentionRelay{Kind: normalized.RelayNone},
	}
	if c.client == "" { // a peer that continues one of its sessions: it asks for the answer
		q.way = wayResponse
	}
	q.session, fresh, err = a.place(r.Context(), c.owner, named, agent, message, title(text(body, "title"), message.Text))
	return q, fresh, err
}

// external reads the message in the form of seed 001; members that stand in client_context need not stand beside it.
func (a *Adapter) external(c caller, body, about map[string]any) (contract.Message, error) {
	either := func(names ...string) any {
		for _, name := range names {
			if found := text(body, name); found != "" {
				return found
			}
		}
		for _, name := range names {
			if found := text(about, name); found != "" {
				return found
			}
		}
		return nil
	}
	connector := either("connector_id", "client_name")
	if connector == nil {
		connector = c.connectorName()
	}
	provider := either("external_provider")
	if provider == nil {
		provider = connector
	}
	message, err := contract.NormalizeMessage(map[string]any{
		"text": text(body, "message", "text"), "connector_id": connector, "external_provider": provider,
		"external_conversation_id": either("external_conversation_id"), "external_message_id": either("external_message_id", "message_id"),
		"sender_id": either("sender_id"), "room_kind": either("room_kind"), "attachments": body["attachments"],
	})
	if err == nil && message.Text == "" && len(message.Attachments) == 0 {
		err = fault.InField("message", "is needed")
	}
	return message, err
}

func (c caller) connectorName() string {
	if c.client != "" {
		return c.client
	}
	return "peer"
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

// queued accepts a message in a session and tells its place: 1 = it is the next to run or runs already.
func (a *Adapter) queued(w http.ResponseWriter, r *http.Request, c caller, body map[string]any, original []byte, session exchange.Session) error {
	if wantsStream(r) || body["wait"] != nil || r.URL.Query().Get("wait") != "" {
		return a.take(w, r, c, body, original, session.ID)
	}
	q, _, err := a.question(r, c, body, session.ID)
	if err != nil {
		return err
	}
	q.original = original
	taken, err := a.accept(r.Context(), q, false)
	if err != nil {
		return err
	}
	waiting, err := a.options.Turns.Turns(r.Context(), exchange.TurnFilter{
		Agent: session.Agent, ThreadID: session.ThreadID, ByArrival: true, Limit: maxEvents,
		States: []string{exchange.StateAccepted, exchange.StateRunning, exchange.StateWaiting},
	})
	if err != nil {
		return err
	}
	position := 1
	for _, other := range waiting {
		if other.ID < taken.turn.ID {
			position++
		}
	}
	answer := runOf(taken.turn, a.options.Present)
	answer["queued_message_id"], answer["position"] = taken.turn.ID, position
	if taken.repeat {
		answer["duplicate"] = true
	}
	w.Header().Set("Location", locationOf(taken.turn))
	httpserver.WriteJSON(w, http.StatusAccepted, answer)
	return nil
}

// place is where a message goes: the session that the caller named, the one of the outside conversation, or a new one.
// fresh says that the session was made for this message.
func (a *Adapter) place(ctx context.Context, owner, named string, agent exchange.AgentProfile, message contract.Message, title string) (session exchange.Session, fresh bool, err error) {
	if named != "" {
		session, err = a.sessionOf(ctx, owner, named)
		if err == nil && session.Agent != agent.Name {
			err = sessionNotFound()
		}
		return session, false, err
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	session = exchange.Session{
		ID: newID(), Owner: owner, Agent: agent.Name, ThreadID: "session:" + newID(), Title: title,
		Connector: message.ConnectorID, Conversation: message.ConversationID, CreatedAt: now, UpdatedAt: now,
	}
	if message.ConversationID == "" {
		session, _, err = a.options.Sessions.CreateSession(ctx, session)
		return session, true, err
	}
	key := contract.NewSessionKey(message.ConnectorID, message.ConversationID, agent.Name)
	session, err = a.options.Sessions.ChannelSession(ctx, key, session)
	return session, false, err
}

func sessionNotFound() error { return fault.New(fault.NotFound, "the session was not found") }

func (a *Adapter) sessionOf(ctx context.Context, owner, id string) (exchange.Session, error) {
	session, found, err := a.options.Sessions.Session(ctx, owner, id)
	if err == nil && !found {
		err = sessionNotFound()
	}
	return session, err
}

// accepted is one question that is stored: new, or the first copy of a repeat.
type accepted struct {
	turn    exchange.TurnRecord
	session string
	repeat  bool
}

// accept brings a question into the engine. It returns only when message and job are committed. Where the answer would have
// no room the question is refused: what is taken is answered.
func (a *Adapter) accept(ctx context.Context, q question, fresh bool) (accepted, error) {
	if q.way == wayQueue {
		if err := a.options.Queue.Room(ctx, q.client); err != nil {
			return accepted{}, a.abandon(ctx, q.session, fresh, err)
		}
	}
	imported, err := a.begins(ctx, q.session)
	if err != nil {
		return accepted{}, err
	}
	in, err := a.inbound(ctx, q, imported)
	if err != nil {
		return accepted{}, a.abandon(ctx, q.session, fresh, err)
	}
	receipt, err := a.options.Receiver.Receive(ctx, in)
	if err != nil {
		return accepted{}, a.abandon(ctx, q.session, fresh, err)
	}
	turn, err := a.options.Turns.Turn(ctx, receipt.TurnID)
	if err != nil {
		return accepted{}, err
	}
	kept := readRoute(turn.Route)
	if !receipt.New && kept.Session != q.session.ID {
		_ = a.abandon(ctx, q.session, fresh, nil)
	}
	if receipt.New {
		if err := a.options.Sessions.TouchSession(ctx, q.session.Owner, q.session.ID, turn.AcceptedAt); err != nil {
			a.log.WarnContext(ctx, "a session keeps its old date", "session", q.session.ID, "error", err)
		}
	}
	return accepted{turn, kept.Session, !receipt.New}, nil
}

// begins reports whether the next message of a session is the first after an import: its history is what was imported.
func (a *Adapter) begins(ctx context.Context, session exchange.Session) (bool, error) {
	if session.Imported == 0 {
		return false, nil
	}
	turns, err := a.options.Turns.Turns(ctx, exchange.TurnFilter{Agent: session.Agent, ThreadID: session.ThreadID, ByArrival: true, Limit: 1})
	return len(turns) == 0, err
}

// abandon takes back a session that was made for a message which did not need it.
func (a *Adapter) abandon(ctx context.Context, session exchange.Session, fresh bool, cause error) error {
	if !fresh {
		return cause
	}
	if err := a.options.Sessions.DeleteSession(context.WithoutCancel(ctx), session.Owner, session.ID); err != nil {
		a.log.WarnContext(ctx, "an empty session stays", "session", session.ID, "error", err)
	}
	return cause
}

// settled waits for the end of a turn, at most the given time; then it returns the turn as it is: the run goes on.
func (a *Adapter) settled(ctx context.Context, turn exchange.TurnRecord, patience time.Duration) (exchange.TurnRecord, error) {
	if patience <= 0 || ended(turn) {
		return turn, nil
	}
	serving, stop := whileServing(ctx)
	defer stop()
	waiting, cancel := context.WithTimeout(serving, patience)
	defer cancel()
	found, err := a.options.Runs.Wait(waiting, turn.ID)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return a.options.Turns.Turn(ctx, turn.ID)
	}
	return found, err
}

func ended(turn exchange.TurnRecord) bool {
	return exchange.Settled(turn.State) && !exchange.GoesOnByItself(turn)
}
