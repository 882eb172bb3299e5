package bridge

import (
	"net/http"

	"inbox/internal/openapi"
)

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
		said     = []map[string]any{{"type": "Agent::UserMessage", "content": "Hello"}}
		growing  = []openapi.Event{
			{Name: "accepted", Summary: "the message is kept", Data: RunAnswer{}}, {Name: "status", Summary: "the run begins", Data: StreamText{}},
			{Name: "delta", Summary: "more of the answer", Data: StreamText{}}, {Name: "restarted", Summary: "what was sent is void", Data: StreamText{}},
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
			Query: []string{"limit:integer", "owner"}, Response: SessionLines{},
		},
		{
			Method: "POST", Path: "/v1/sessions/{session}/messages", Tag: "sessions", Summary: "Queue a message", Security: callers,
			Query: []string{"wait"}, Request: MessageBody{Message: "Hello"}, Response: RunAnswer{}, Status: http.StatusAccepted, Also: forBoth, Stream: true, Errors: taken, Events: growing,
		},
		{Method: "GET", Path: "/v1/sessions/{session}/export", Tag: "sessions", Summary: "Export a session", Security: callers, Query: owned, Response: ExportView{}},
		{
			Method: "POST", Path: "/v1/import", Tag: "import", Summary: "Import sessions", Security: callers,
			Query: []string{"client", "connector"}, Request: ImportBody{Agent: "echo", SessionID: "old-1", Messages: said}, Response: ImportAnswer{},
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
			Method: "GET", Path: "/v1/connectors/{connector}/runs/{run}", Tag: "connectors", Summary: "What became of a message", Security: "signature",
			Query: []string{"wait"}, Response: ConnectorAnswer{}, Also: forBoth,
		},
		{
			Method: "POST", Path: "/v1/connectors/{connector}/runs/{run}", Tag: "connectors", Summary: "What became of a message, proved by signed evidence", Security: "signature",
			Query: []string{"wait"}, Request: EvidenceBody{}, Response: ConnectorAnswer{}, Also: forBoth, Partial: true,
		},
	}
}
