package bridge

import (
	"net/http"
	"slices"

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
