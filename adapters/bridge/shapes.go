package bridge

import (
	"encoding/json"
	"net/http"

	"inbox/identity"
	"inbox/internal/openapi"
	"inbox/normalized"
)

// The documents of the routes, for the description of the API. Handlers read and write them member by member, because the
// runtime contract forgives more than a type does; the tests hold both to each other.

// RunMessage is one line of an answer.
type RunMessage struct {
	Role    string `json:"role"` // assistant
	Content string `json:"content"`
}

// RunAnswer is a run, with its answer as soon as there is one.
type RunAnswer struct {
	RunID          string            `json:"run_id"`
	SessionID      string            `json:"session_id"`
	Agent          string            `json:"agent"`
	Status         string            `json:"status"`
	Completed      bool              `json:"completed"` // the agent has nothing more to ask
	StartedAt      string            `json:"started_at"`
	UpdatedAt      string            `json:"updated_at"`
	Metadata       map[string]any    `json:"metadata"`
	ConnectorID    string            `json:"connector_id,omitempty"`
	ConversationID string            `json:"external_conversation_id,omitempty"`
	MessageID      string            `json:"external_message_id,omitempty"`
	Reply          *string           `json:"reply,omitempty"`
	Messages       []RunMessage      `json:"messages,omitempty"`
	Parts          []normalized.Part `json:"parts,omitempty"`    // where the text cannot carry the answer whole
	QueueID        string            `json:"queue_id,omitempty"` // of the item that holds the answer

	Citations []normalized.Citation `json:"citations,omitempty"` // where the answer comes from; the reply ends with them, too

	Duplicate bool   `json:"duplicate,omitempty"`
	Cancelled *bool  `json:"cancelled,omitempty"`
	QueuedID  string `json:"queued_message_id,omitempty"` // of a message that was queued in a session
	Position  int    `json:"position,omitempty"`          // of that message; 1 = the next
}

// ConnectorAnswer is the run of a message of a connector, or why there is none.
type ConnectorAnswer struct {
	Status         string            `json:"status"`         // of the run, or skipped
	Code           string            `json:"code,omitempty"` // why it is skipped
	RunID          string            `json:"run_id,omitempty"`
	SessionID      string            `json:"session_id,omitempty"`
	Agent          string            `json:"agent,omitempty"`
	Completed      *bool             `json:"completed,omitempty"`
	StartedAt      string            `json:"started_at,omitempty"`
	UpdatedAt      string            `json:"updated_at,omitempty"`
	Metadata       map[string]any    `json:"metadata,omitempty"`
	ConnectorID    string            `json:"connector_id,omitempty"`
	ConversationID string            `json:"external_conversation_id,omitempty"`
	MessageID      string            `json:"external_message_id,omitempty"`
	Reply          *string           `json:"reply,omitempty"` // for who waits; otherwise it goes its own way
	Messages       []RunMessage      `json:"messages,omitempty"`
	Parts          []normalized.Part `json:"parts,omitempty"`
	QueueID        string            `json:"queue_id,omitempty"`

	Citations []normalized.Citation `json:"citations,omitempty"`

	Duplicate bool `json:"duplicate,omitempty"`
}

// RunEventView is a row of a run's timeline.
type RunEventView struct {
	ID        string         `json:"id"`
	Type      string         `json:"type"` // run_started, run_updated, cancel_requested or run_finished
	CreatedAt string         `json:"created_at"`
	Message   string         `json:"message,omitempty"`
	Metadata  map[string]any `json:"metadata"`
}

// RunEventPage is a run with a page of its events.
type RunEventPage struct {
	RunAnswer

	Events  []RunEventView `json:"events"`
	Cursor  string         `json:"cursor"`
	HasMore bool           `json:"has_more"`
}

// StreamText is the data of the events delta and status, and of restarted, which has none.
type StreamText struct {
	Text   string `json:"text,omitempty"`
	Status string `json:"status,omitempty"`
}

// RunTool is the data of the event tool: a call of a tool that the agent made, when it begins and again with its outcome.
type RunTool struct {
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Status string          `json:"status"`           // running, succeeded or failed
	Args   json.RawMessage `json:"args,omitempty"`   // any JSON
	Result json.RawMessage `json:"result,omitempty"` // any JSON
	Error  string          `json:"error,omitempty"`
}

// SessionView is a session.
type SessionView struct {
	SessionID      string `json:"session_id"`
	Agent          string `json:"agent"`
	Title          string `json:"title"`
	CreatedAt      string `json:"created_at"`
	UpdatedAt      string `json:"updated_at"`
	ConnectorID    string `json:"connector_id,omitempty"`
	ConversationID string `json:"external_conversation_id,omitempty"`
	Imported       int    `json:"imported_messages,omitempty"`
	Owner          string `json:"owner,omitempty"` // for operators
	LastRunID      string `json:"last_run_id,omitempty"`
	Status         string `json:"status,omitempty"` // of the last run
}

// SessionPage is a page of sessions, newest update first.
type SessionPage struct {
	Sessions []SessionView `json:"sessions"`
	Cursor   string        `json:"cursor"`
	HasMore  bool          `json:"has_more"`
}

// SessionLine is a message as clients show it; with format=envelope it is a canonical envelope, which has more members, and with
// format=provider it has role, content and metadata.
type SessionLine struct {
	Role      string         `json:"role"`
	Content   any            `json:"content"` // text; of an envelope blocks as well
	Type      string         `json:"type,omitempty"`
	CreatedAt string         `json:"created_at,omitempty"`
	UpdatedAt string         `json:"updated_at,omitempty"`
	ID        string         `json:"id,omitempty"`
	Schema    string         `json:"schema,omitempty"` // agents-api.message
	Version   int            `json:"version,omitempty"`
	Payload   map[string]any `json:"payload,omitempty"`
	Metadata  map[string]any `json:"metadata,omitempty"`
}

// SessionLines are the newest messages of a session, oldest of them first.
type SessionLines struct {
	SessionID string        `json:"session_id"`
	Agent     string        `json:"agent"`
	Messages  []SessionLine `json:"messages"`
	Total     int           `json:"total"`
}

// SessionBody begins a session.
type SessionBody struct {
	Agent     string `json:"agent"`
	SessionID string `json:"session_id,omitempty"`
	Title     string `json:"title,omitempty"`
}

// TitleBody renames a session.
type TitleBody struct {
	Title string `json:"title"`
}

// SessionDeleted confirms that a session is gone.
type SessionDeleted struct {
	SessionID string `json:"session_id"`
	Deleted   bool   `json:"deleted"`
}

// CancelBody may name the session of a run that is to end.
type CancelBody struct {
	SessionID string `json:"session_id,omitempty"`
}

// MessageBody is a message of a program: what it says, where it comes from, and whether the answer is waited for.
type MessageBody struct {
	Message        string         `json:"message"`
	Agent          string         `json:"agent,omitempty"`      // needed without session
	SessionID      string         `json:"session_id,omitempty"` // or the outside conversation
	Title          string         `json:"title,omitempty"`      // of a session that it begins
	ConnectorID    string         `json:"connector_id,omitempty"`
	Provider       string         `json:"external_provider,omitempty"`
	ConversationID string         `json:"external_conversation_id,omitempty"`
	MessageID      string         `json:"external_message_id,omitempty"` // tells a repeat
	SenderID       string         `json:"sender_id,omitempty"`
	SenderName     string         `json:"sender_name,omitempty"`
	RoomKind       string         `json:"room_kind,omitempty"`
	Attachments    []any          `json:"attachments,omitempty"`
	Context        map[string]any `json:"client_context,omitempty"`
	Wait           any            `json:"wait,omitempty"` // true, seconds, or a time such as 20s
}

// ConnectorBody is a message of another messenger.
type ConnectorBody struct {
	Text           string              `json:"text"`
	Agent          string              `json:"agent,omitempty"` // empty = the connector's first
	ConnectorID    string              `json:"connector_id,omitempty"`
	Provider       string              `json:"external_provider,omitempty"`
	ConversationID string              `json:"external_conversation_id"`
	MessageID      string              `json:"external_message_id"`
	SenderID       string              `json:"sender_id"`
	SenderName     string              `json:"sender_name,omitempty"`
	RoomKind       string              `json:"room_kind,omitempty"`
	FromSelf       bool                `json:"from_self,omitempty"`
	Title          string              `json:"title,omitempty"`
	Attachments    []any               `json:"attachments,omitempty"`
	Context        map[string]any      `json:"client_context,omitempty"`
	Profile        *ProfileBody        `json:"profile,omitempty"`  // of the sender: context, never authorization
	Raw            map[string]any      `json:"raw,omitempty"`      // the message in the product's own form, kept as the original
	Evidence       []identity.Evidence `json:"evidence,omitempty"` // signed by others
	Capabilities   map[string]any      `json:"recipient_capabilities,omitempty"`
	Metadata       map[string]any      `json:"metadata,omitempty"`
	Wait           any                 `json:"wait,omitempty"`
}

// ProfileBody is what a product says about a sender beside the name.
type ProfileBody struct {
	Locale   string            `json:"locale,omitempty"`   // BCP 47
	Timezone string            `json:"timezone,omitempty"` // IANA
	Avatar   *normalized.Image `json:"avatar,omitempty"`   // http or https; it is not fetched
}

// ClientBody registers the client of a token.
type ClientBody struct {
	ClientID    string         `json:"client_id,omitempty"` // that of the token; operators name one
	ConnectorID string         `json:"connector_id,omitempty"`
	CallbackURL string         `json:"callback_url,omitempty"`
	Secret      string         `json:"callback_secret,omitempty"` // 16 to 512 bytes; one is made where there is none
	Context     map[string]any `json:"context,omitempty"`
}

// ClientView is a registered client.
type ClientView struct {
	ClientID     string         `json:"client_id"`
	ConnectorID  *string        `json:"connector_id"`
	CallbackURL  *string        `json:"callback_url"`
	Context      map[string]any `json:"context"`
	RegisteredAt string         `json:"registered_at"`
	Secret       string         `json:"callback_secret,omitempty"` // told once, when it was made here
}

// ItemBody is an item that a program puts into a queue.
type ItemBody struct {
	QueueID     string         `json:"queue_id,omitempty"` // an item of this id is queued once
	ClientID    string         `json:"client_id,omitempty"`
	ConnectorID string         `json:"connector_id,omitempty"`
	Agent       string         `json:"agent"`
	SessionID   string         `json:"session_id,omitempty"`
	Role        string         `json:"role,omitempty"` // assistant, system or tool
	Content     string         `json:"content"`
	Completed   *bool          `json:"completed,omitempty"`
	CreatedAt   string         `json:"created_at,omitempty"`
	Metadata    map[string]any `json:"metadata,omitempty"`
}

// ItemView is an item of a queue.
type ItemView struct {
	QueueID     string         `json:"queue_id"`
	ClientID    string         `json:"client_id"`
	ConnectorID *string        `json:"connector_id"`
	Agent       string         `json:"agent"`
	SessionID   *string        `json:"session_id"`
	Role        string         `json:"role"`
	Content     string         `json:"content"`
	Completed   bool           `json:"completed"`
	CreatedAt   string         `json:"created_at"`
	Delivery    string         `json:"delivery_status"` // pending, delivered or failed, by callback
	Metadata    map[string]any `json:"metadata"`
}

// ItemList is what waits for a client.
type ItemList struct {
	ClientID string     `json:"client_id"`
	Items    []ItemView `json:"items"`
}

// AckBody names the items that a client has.
type AckBody struct {
	ClientID string   `json:"client_id,omitempty"`
	QueueIDs []string `json:"queue_ids"`
}

// Acked is how many items were acknowledged.
type Acked struct {
	ClientID string `json:"client_id"`
	Acked    int    `json:"acked"`
}

// ImportBody is what an import brings: one conversation, or several.
type ImportBody struct {
	Format         string            `json:"format,omitempty"` // agent-framework or envelope; empty = each message is what it looks like
	SessionID      string            `json:"session_id,omitempty"`
	Agent          string            `json:"agent,omitempty"`
	Title          string            `json:"title,omitempty"`
	ConnectorID    string            `json:"connector_id,omitempty"`
	ConversationID string            `json:"external_conversation_id,omitempty"`
	Messages       []map[string]any  `json:"messages,omitempty"` // of the agent framework, canonical envelopes, or rows of role and content
	Conversations  []ExportView      `json:"conversations,omitempty"`
	Strict         bool              `json:"strict,omitempty"` // messages of the agent framework that break its rules refuse the import
	SessionMap     map[string]string `json:"session_map,omitempty"`
}

// ExportView is an exported conversation, as import takes it.
type ExportView struct {
	Format         string           `json:"format"`
	SessionID      string           `json:"session_id"`
	Agent          string           `json:"agent"`
	Title          string           `json:"title,omitempty"`
	ConnectorID    string           `json:"connector_id,omitempty"`
	ConversationID string           `json:"external_conversation_id,omitempty"`
	Messages       []map[string]any `json:"messages"`
	Runs           []RunAudit       `json:"runs,omitempty"` // of agents that give conversation results
}

// ImportedSession is a session of an import.
type ImportedSession struct {
	SessionView

	Created bool `json:"created"` // false = it was there
}

// ImportAnswer is what an import did.
type ImportAnswer struct {
	Sessions   []ImportedSession `json:"sessions"`
	SessionMap int               `json:"session_map"` // rows
}

// EvidenceBody proves who asks, where no secret does.
type EvidenceBody struct {
	Evidence []identity.Evidence `json:"evidence,omitempty"` // about the path
}

// Operations describe the routes.
func Operations() []openapi.Operation {
	const callers = "bridge:send|" + openapi.Bearer + "|operator" // sessions are open to bridges, peers and operators
	var (
		chosen = []string{"limit:integer", "session_id", "session_ids", "lease", "client_id"}
		owned  = []string{"owner"}

		forBoth = []int{http.StatusOK, http.StatusAccepted}
		taken   = []int{http.StatusConflict}
		absent  = []int{http.StatusNotFound}

		hello    = MessageBody{Message: "Hello", Agent: "echo", ConversationID: "room-1", MessageID: "m-1", SenderID: "ann", Wait: "20s"}
		greeting = ConnectorBody{Text: "Hello", ConversationID: "C123", MessageID: "m-1", SenderID: "U456", Wait: "20s"}
		said     = []map[string]any{{"type": "user_message", "content": "Hello", "timestamp": "2024-01-15T10:30:00Z"}}
		typed    = []map[string]any{{
			"schema": "agents-api.message", "version": 1, "type": "text", "role": "user", "content": "Hello",
			"payload": map[string]any{}, "metadata": map[string]any{},
		}}
		imports = map[string]any{
			"messages of the agent framework": ImportBody{Agent: "echo", SessionID: "old-1", Messages: said},
			"canonical envelopes":             ImportBody{Format: FormatEnvelope, Agent: "echo", SessionID: "old-2", Messages: typed},
			"rows of role and content":        ImportBody{Agent: "echo", SessionID: "old-3", Messages: []map[string]any{{"role": "user", "content": "Hello"}}},
		}
		growing = []openapi.Event{
			{Name: "accepted", Summary: "the message is kept", Data: RunAnswer{}}, {Name: "status", Summary: "the run begins", Data: StreamText{}},
			{Name: "delta", Summary: "more of the answer", Data: StreamText{}}, {Name: "tool", Summary: "the agent calls a tool, and then how that ended", Data: RunTool{}},
			{Name: "restarted", Summary: "what was sent is void", Data: StreamText{}},
			{Name: "done", Summary: "the run as it is in the end", Data: RunAnswer{}},
		}
	)

	return []openapi.Operation{
		{
			Method: "POST", Path: "/v1/bridge/register", Tag: "bridge", Summary: "Register a bridge", Security: "bridge:pending|operator",
			Request: ClientBody{CallbackURL: "https://bridge.example/inbox"}, Response: ClientView{}, Partial: true,
		},
		{
			Method: "GET", Path: "/v1/bridge/client", Tag: "bridge", Summary: "The registration of a bridge", Security: "bridge:|operator",
			Query: []string{"client_id"}, Response: ClientView{}, Errors: absent,
		},
		{
			Method: "POST", Path: "/v1/bridge/send", Tag: "bridge", Summary: "Say something to an agent", Security: "bridge:send|operator",
			Query: []string{"wait"}, Request: hello, Response: RunAnswer{}, Also: forBoth, Stream: true, Errors: taken, Events: growing,
		},
		{
			Method: "POST", Path: "/v1/bridge/queue", Tag: "bridge", Summary: "Put an item into the queue", Security: "bridge:send|operator",
			Request: ItemBody{Agent: "echo", Content: "Hello"}, Response: ItemView{}, Status: http.StatusCreated,
		},
		{
			Method: "GET", Path: "/v1/bridge/pending", Tag: "bridge", Summary: "Items that are not acknowledged", Security: "bridge:pending|operator",
			Query: append([]string{"wait"}, chosen...), Response: ItemList{},
		},
		{
			Method: "GET", Path: "/v1/bridge/events", Tag: "bridge", Summary: "Hear of items", Security: "bridge:pending|operator",
			Query: chosen, Response: ItemView{}, Stream: true, Events: []openapi.Event{{Name: "item", Summary: "an item that is not acknowledged", Data: ItemView{}}},
		},
		{
			Method: "GET", Path: "/v1/bridge/items/{item}", Tag: "bridge", Summary: "One item", Security: "bridge:pending|operator",
			Query: []string{"client_id"}, Response: ItemView{},
		},
		{
			Method: "POST", Path: "/v1/bridge/items/{item}/ack", Tag: "bridge", Summary: "Acknowledge an item", Security: "bridge:ack|operator",
			Query: []string{"client_id"}, Response: Acked{},
		},
		{
			Method: "POST", Path: "/v1/bridge/ack", Tag: "bridge", Summary: "Acknowledge items", Security: "bridge:ack|operator",
			Request: AckBody{QueueIDs: []string{"bridge_0123456789abcdef0123456789abcdef"}}, Response: Acked{},
		},
		{
			Method: "GET", Path: "/v1/sessions", Tag: "sessions", Summary: "Sessions of the caller", Security: callers,
			Query: []string{"limit:integer", "cursor", "agent", "owner"}, Response: SessionPage{},
		},
		{
			Method: "POST", Path: "/v1/sessions", Tag: "sessions", Summary: "Begin a session", Security: callers,
			Request: SessionBody{Agent: "echo", Title: "Groceries"}, Response: SessionView{}, Status: http.StatusCreated, Also: []int{http.StatusOK}, Errors: taken,
		},
		{Method: "GET", Path: "/v1/sessions/{session}", Tag: "sessions", Summary: "One session", Security: callers, Query: owned, Response: SessionView{}},
		{
			Method: "PATCH", Path: "/v1/sessions/{session}", Tag: "sessions", Summary: "Rename a session", Security: callers,
			Query: owned, Request: TitleBody{Title: "Groceries"}, Response: SessionView{},
		},
		{Method: "DELETE", Path: "/v1/sessions/{session}", Tag: "sessions", Summary: "Delete a session", Security: callers, Query: owned, Response: SessionDeleted{}},
		{
			Method: "GET", Path: "/v1/sessions/{session}/messages", Tag: "sessions", Summary: "Messages of a session", Security: callers,
			Query: []string{"limit:integer", "owner", "format", "coalesce"}, Response: SessionLines{},
		},
		{
			Method: "POST", Path: "/v1/sessions/{session}/messages", Tag: "sessions", Summary: "Queue a message", Security: callers,
			Query: []string{"wait"}, Request: MessageBody{Message: "Hello"}, Response: RunAnswer{}, Status: http.StatusAccepted, Also: forBoth, Stream: true, Errors: taken, Events: growing,
		},
		{Method: "GET", Path: "/v1/sessions/{session}/export", Tag: "sessions", Summary: "Export a session", Security: callers, Query: []string{"owner", "collection", "format"}, Response: ExportView{}},
		{
			Method: "POST", Path: "/v1/import", Tag: "import", Summary: "Import sessions", Security: callers,
			Query: []string{"client", "connector", "agent", "format", "session_id", "title", "strict:boolean"}, Request: ImportBody{}, Examples: imports, Response: ImportAnswer{},
			Errors: []int{http.StatusUnprocessableEntity},
		},
		{Method: "GET", Path: "/v1/runs/{run}", Tag: "runs", Summary: "The status of a run", Security: callers, Query: []string{"wait"}, Response: RunAnswer{}},
		{
			Method: "GET", Path: "/v1/runs/{run}/events", Tag: "runs", Summary: "Events of a run", Security: callers,
			Query: []string{"cursor", "limit:integer"}, Response: RunEventPage{}, Stream: true, Events: growing,
		},
		{Method: "POST", Path: "/v1/runs/{run}/cancel", Tag: "runs", Summary: "Cancel a run", Security: callers, Request: CancelBody{}, Response: RunAnswer{}, Partial: true},
		{Method: "POST", Path: "/v1/runs/{run}/stop", Tag: "runs", Summary: "Cancel a run", Security: callers, Request: CancelBody{}, Response: RunAnswer{}, Partial: true},
		{
			Method: "POST", Path: "/v1/connectors/{connector}/messages", Tag: "connectors", Summary: "A message of another product", Security: "signature",
			Query: []string{"wait"}, Request: greeting, Response: ConnectorAnswer{}, Also: forBoth, Errors: taken,
		},
		{
			Method: "GET", Path: "/v1/connectors/{connector}/runs/{run}", Tag: "connectors", Summary: "The result of a message", Security: "signature",
			Query: []string{"wait"}, Response: ConnectorAnswer{}, Also: forBoth,
		},
		{
			Method: "POST", Path: "/v1/connectors/{connector}/runs/{run}", Tag: "connectors", Summary: "The result of a message, proved by signed evidence", Security: "signature",
			Query: []string{"wait"}, Request: EvidenceBody{}, Response: ConnectorAnswer{}, Also: forBoth, Partial: true,
		},
	}
}
