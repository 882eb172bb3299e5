package chat

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"inbox/adapters/chat/contract"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/markup"
	"inbox/normalized"
)

// restAPI is the plain REST chat, which the pages use as well.
type restAPI struct {
	*site
	access   *access
	sessions *sessions
	messages *messages
	runs     *runs
	tools    *clientTools
	renderer *renderer
}

// sessionHeader names the session of a request that has no body: an address would stand in logs, and the session of a
// guest is a secret.
const sessionHeader = "Chat-Session"

// ChatRequest is the body of POST /v1/chat.
type ChatRequest struct {
	Agent         string         `json:"agent"`
	Message       string         `json:"message,omitempty"`    // or the newest of the user in messages, or input_messages
	Session       string         `json:"session,omitempty"`    // as an earlier answer named it; empty begins one
	SessionID     string         `json:"session_id,omitempty"` // another name of session
	RunID         string         `json:"run_id,omitempty"`     // chosen by the client: the same again is the same message
	Attachments   []any          `json:"attachments,omitempty"`
	ClientContext map[string]any `json:"client_context,omitempty"`

	Messages      []any      `json:"messages,omitempty"`       // the conversation as the client keeps it: rows of role and content, or envelopes
	InputMessages []any      `json:"input_messages,omitempty"` // envelopes: calls of tools that the client executed, each with its result
	History       []ChatLine `json:"history,omitempty"`        // earlier lines alone
}

// ChatLine is what someone said.
type ChatLine struct {
	Role    string `json:"role"` // user or assistant
	Content string `json:"content"`
}

// ChatAnswer is what POST /v1/chat answers, and the last event of its stream.
type ChatAnswer struct {
	Session   string `json:"session"`
	SessionID string `json:"session_id"` // the same
	RunID     string `json:"run_id"`
	Reply     string `json:"reply"`          // Markdown
	HTML      string `json:"html,omitempty"` // the same, cleaned for pages; empty over 256 KiB
	Completed bool   `json:"completed"`
	Status    string `json:"status"`             // of run control
	EventID   string `json:"event_id,omitempty"` // of a run that waits for a decision or a tool: where its answer is waited for

	Error *ChatFailure `json:"error,omitempty"` // why there is no answer
	Stop  string       `json:"stop,omitempty"`  // length: the answer is cut, because the agent's model reached its limit

	Files []ChatFile `json:"files,omitempty"`

	Tools     []ChatTool            `json:"tools,omitempty"`     // that the agent called, where its operator shows them
	Citations []normalized.Citation `json:"citations,omitempty"` // where the answer comes from; the reply ends with them, too

	ToolCalls []ToolCall `json:"tool_calls,omitempty"` // that the client has to execute

	Messages []ChatLine   `json:"messages"` // of the agent: the reply, where there is one
	Metadata ChatMetadata `json:"metadata"`
}

// ChatStart is the first event of a stream: the message is kept, and this is how to come back to it.
type ChatStart struct {
	Session string `json:"session"`
	RunID   string `json:"run_id"`
	EventID string `json:"event_id"` // for Last-Event-ID: everything after the start
}

// ChatResume is the last event of a stream that the server ended before its run, because it stops or cannot read on. The run
// goes on.
type ChatResume struct {
	Session string `json:"session"`
	RunID   string `json:"run_id"`
	EventID string `json:"event_id"` // for Last-Event-ID, here or at another node
	Reason  string `json:"reason"`   // stream_cut
}

const streamCut = "stream_cut"

// ChatReset is an event that makes the text of all delta events before it void: the agent's run is repeated, and says other words.
type ChatReset struct {
	Reason string `json:"reason"` // answer_restarted
}

// ChatText is an event with more of the answer's text.
type ChatText struct {
	Text string `json:"text"`
}

// serveChat is POST /v1/chat.
func (a *restAPI) serveChat(w http.ResponseWriter, r *http.Request) error {
	who, err := a.access.identify(r)
	if err != nil {
		return err
	}

	found, err := a.acceptChat(r, who)
	if err != nil {
		return err
	}

	return a.answerChat(w, r, found)
}

func (a *restAPI) acceptChat(r *http.Request, who caller) (run, error) {
	body, done, err := a.access.readFiles(r, who)
	if err != nil {
		return run{}, err
	}
	defer done()

	q, err := a.readChat(body)
	if err != nil {
		return run{}, err
	}

	q.who = who
	if err := a.access.admit(who, q.agent); err != nil {
		return run{}, err
	}

	return a.messages.accept(r.Context(), q, "")
}

func (a *restAPI) readChat(body []byte) (question, error) {
	given, err := value.Decode(body, value.Limits{Bytes: len(body), Depth: maxDepth})
	object, is := value.Object(given)
	if err != nil || !is {
		return question{}, fault.New(fault.Malformed, "the body must be a JSON object")
	}

	return a.questionOf(object, body)
}

// questionOf reads a question out of the members of a ChatRequest.
func (a *restAPI) questionOf(object map[string]any, original []byte) (question, error) {
	if object["session_id"] == nil {
		object["session_id"] = object["session"]
	}

	input, err := contract.RESTInput(object)
	if refused, is := errors.AsType[*contract.Error](err); is {
		return question{}, fault.Wrap(fault.Malformed, refused.Text, refused)
	}

	input.RunID = value.Scalar(object["run_id"])
	agent, known := a.agent(value.Scalar(object["agent"]))
	if !known {
		return question{}, noAgent()
	}

	return question{agent: agent, input: input, original: original}, nil
}

const maxDepth = 64

func noAgent() error { return fault.New(fault.NotFound, "no such agent here") }

func (a *restAPI) answerChat(w http.ResponseWriter, r *http.Request, found run) error {
	if wantsStream(r) {
		return a.runs.stream(w, r, found, restFrames{a.renderer})
	}

	allowWait(w, a.options.WaitLimit)
	found, err := a.runs.awaitRun(r.Context(), found)
	if err != nil {
		return err
	}

	status := http.StatusOK
	if !a.tools.settled(found.turn) {
		status = http.StatusAccepted
	}

	httpserver.WriteJSON(w, status, a.renderer.shown(found))
	return nil
}

func wantsStream(r *http.Request) bool {
	return r.Method != http.MethodHead && strings.Contains(strings.ToLower(r.Header.Get("Accept")), "text/event-stream")
}

// restFrames are the events of plain REST chat: start, delta and tool while the answer grows, reset where its text begins again, then
// reply.
type restFrames struct{ renderer *renderer }

func (restFrames) begin(found run) []event {
	return []event{{"start", ChatStart{found.route.Session, found.route.Run, eventID(found.turn.ID, 0)}}}
}

func (restFrames) delta(_ run, delta contract.Delta) []event {
	switch delta.Kind {
	case contract.DeltaContent:
		return []event{{"delta", ChatText{delta.Text}}}
	case contract.DeltaReset:
		return []event{{"reset", ChatReset{Reason: "answer_restarted"}}}
	case contract.DeltaCall, contract.DeltaResult:
		if shown, is := chatToolOfDelta(delta); is {
			return []event{{"tool", shown}}
		}
	case contract.DeltaArgument: // plain REST tells of a call, not of how it grows
	}
	return nil
}

func (f restFrames) end(found run, _ []exchange.Event) []event {
	return []event{{"reply", f.renderer.shown(found)}}
}

// broken tells where to go on.
func (restFrames) broken(found run, last string) []event {
	return []event{{"resume", ChatResume{found.route.Session, found.route.Run, last, streamCut}}}
}

// ChatMessage is one message of a session.
type ChatMessage struct {
	Role    string    `json:"role"`           // user or assistant
	Content string    `json:"content"`        // Markdown of an answer
	HTML    string    `json:"html,omitempty"` // the same, cleaned for pages
	RunID   string    `json:"run_id"`
	Status  string    `json:"status,omitempty"` // of an answer
	At      time.Time `json:"at"`

	Files     []ChatFile            `json:"files,omitempty"`
	Tools     []ChatTool            `json:"tools,omitempty"`
	Citations []normalized.Citation `json:"citations,omitempty"`
}

// ChatSession is what GET /v1/chat answers.
type ChatSession struct {
	Session  string        `json:"session"`
	Messages []ChatMessage `json:"messages"`          // oldest first, the newest 100 runs
	Running  *ChatStart    `json:"running,omitempty"` // the run that is not answered yet
	Waiting  *ChatStart    `json:"waiting,omitempty"` // the newest run, where it waits for a decision or a tool
}

const maxSessionTurns = 100

// serveSession is GET /v1/chat?agent=…: what was said in the session of the header Chat-Session, or, where an event
// stream is wanted, the rest of the answer that Last-Event-ID names. With wait=1 the stream stays open, for
// Options.WaitLimit, where the run waits for a decision or a tool that is not the client's.
func (a *restAPI) serveSession(w http.ResponseWriter, r *http.Request) error {
	who, err := a.access.identify(r)
	if err != nil {
		return err
	}

	name := r.URL.Query().Get("agent")
	if name == "" {
		return fault.InField("agent", "is needed: ?agent= and the name of an agent")
	}

	agent, known := a.agent(name)
	if !known {
		return noAgent()
	}
	if err := a.access.admitTo(scopeRead, who, agent); err != nil {
		return err
	}

	q := question{agent: agent, who: who, input: contract.Input{SessionID: sessionOf(r)}}
	if wantsStream(r) {
		return a.follow(w, r, q)
	}

	session, err := a.session(r, q)
	if err != nil {
		return err
	}

	httpserver.WriteJSON(w, http.StatusOK, session)
	return nil
}

func sessionOf(r *http.Request) string {
	if session := r.Header.Get(sessionHeader); session != "" {
		return session
	}
	return r.URL.Query().Get("session")
}

func (a *restAPI) session(r *http.Request, q question) (ChatSession, error) {
	turns, err := a.sessions.turnsOf(r.Context(), q, maxSessionTurns)
	if err != nil {
		return ChatSession{}, err
	}

	slices.SortFunc(turns, func(x, y exchange.TurnRecord) int { return strings.Compare(x.ID, y.ID) })
	found := ChatSession{Session: q.input.SessionID, Messages: make([]ChatMessage, 0, 2*len(turns))}
	for _, turn := range turns {
		a.tell(&found, turn)
	}
	return found, nil
}

// tell adds a turn to a session: the message, and what was answered.
func (a *restAPI) tell(s *ChatSession, turn exchange.TurnRecord) {
	kept := routeOf(turn)
	s.Messages = append(s.Messages, ChatMessage{
		Role: normalized.RoleUser, Content: markup.PlainText(turn.Message.Parts), RunID: kept.Run, At: turn.AcceptedAt.UTC(), Files: sentFiles(turn),
	})

	s.Waiting = nil
	if !a.tools.settled(turn) {
		s.Running = &ChatStart{kept.Session, kept.Run, eventID(turn.ID, 0)}
		return
	}

	if !exchange.Terminal(turn.State) {
		s.Waiting = &ChatStart{kept.Session, kept.Run, eventID(turn.ID, 0)}
	}

	reply, files := a.renderer.reply(turn), a.renderer.filesOf(turn)
	if reply != "" || len(files) > 0 {
		s.Messages = append(s.Messages, ChatMessage{
			Role: normalized.RoleAssistant, Content: reply, HTML: a.renderer.htmlOf(turn), RunID: kept.Run, Status: statusOf(turn), At: turn.UpdatedAt.UTC(), Files: files,
			Tools: toolsOf(turn), Citations: citationsOf(turn),
		})
	}
}

// follow streams the rest of an answer.
func (a *restAPI) follow(w http.ResponseWriter, r *http.Request, q question) error {
	found, err := a.runs.resume(r.Context(), q, r.Header.Get("Last-Event-ID"))
	if err != nil {
		return err
	}
	if r.URL.Query().Get("wait") == "" {
		return a.runs.stream(w, r, found, restFrames{a.renderer})
	}

	found.patient = true
	ctx, stop := context.WithTimeout(r.Context(), a.options.WaitLimit)
	defer stop()
	return a.runs.stream(w, r.WithContext(ctx), found, restFrames{a.renderer})
}

// StopRequest is the body of POST /v1/chat/stop.
type StopRequest struct {
	Agent   string `json:"agent"`
	Session string `json:"session"`
	RunID   string `json:"run_id,omitempty"` // empty = everything that is under way in the session
}

// serveStop is POST /v1/chat/stop: it ends runs of the caller's own session that are not answered yet (agent runtime
// contract, section 6.6). What ended before keeps its answer.
func (a *restAPI) serveStop(w http.ResponseWriter, r *http.Request) error {
	who, err := a.access.identify(r)
	if err != nil {
		return err
	}

	body, err := a.access.readBody(r, who)
	if err != nil {
		return err
	}

	given, err := value.Decode(body, value.Limits{Bytes: contract.MaxInputBytes, Depth: maxDepth})
	object, is := value.Object(given)
	if err != nil || !is {
		return fault.New(fault.Malformed, "the body must be a JSON object")
	}

	agent, known := a.agent(value.Scalar(object["agent"]))
	if !known {
		return noAgent()
	}
	if err := a.access.admitTo(scopeCancel, who, agent); err != nil {
		return err
	}

	q := question{agent: agent, who: who, input: contract.Input{SessionID: value.Scalar(object["session"])}}
	found, err := a.runs.stop(r.Context(), q, value.Scalar(object["run_id"]))
	if err != nil {
		return err
	}

	httpserver.WriteJSON(w, http.StatusOK, a.renderer.shown(found))
	return nil
}

// serveForget is DELETE /v1/chat?agent=…: it ends what runs in the session of the header Chat-Session and removes what was
// said in it. 204 means that it is gone.
func (a *restAPI) serveForget(w http.ResponseWriter, r *http.Request) error {
	who, err := a.access.identify(r)
	if err != nil {
		return err
	}

	agent, known := a.agent(r.URL.Query().Get("agent"))
	if !known {
		return noAgent()
	}
	if err := a.access.admitTo(scopeCancel, who, agent); err != nil {
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
func (a *restAPI) forget(ctx context.Context, q question) error {
	if q.input.SessionID == "" {
		return sessionNotFound()
	}

	session, owned, err := a.sessions.place(q)
	if err != nil {
		return err
	}

	_, unknown := a.runs.stop(ctx, q, "")
	if unknown != nil && !fault.Is(unknown, fault.NotFound) {
		return unknown
	}
	thread, err := a.options.Conversations.Conversation(ctx, owned.conversation(session))
	if err != nil {
		return err
	}
	if _, err := a.options.Memory.ForgetThread(ctx, owned.agent, thread); err != nil {
		return err
	}

	err = a.options.Memory.DeleteSession(ctx, owned.principal, session)
	if fault.Is(err, fault.NotFound) { // guests have no row
		return unknown
	}

	return err
}
