package inbox

import (
	"net/http"

	"inbox/adapters/bridge"
	"inbox/agents/clienttool"
	"inbox/agents/pull"
	"inbox/console"
	"inbox/exchange"
	"inbox/internal/openapi"
)

var (
	page     = []string{"limit:integer", "before"}
	ofAgent  = []string{"limit:integer", "before", "agent"}
	withOpen = []string{"limit:integer", "before", "agent", "status"}
	forBoth  = []int{http.StatusOK, http.StatusAccepted}

	hello    = bridge.MessageBody{Message: "Hello", Agent: "echo", ConversationID: "room-1", MessageID: "m-1", SenderID: "ann", Wait: "20s"}
	greeting = bridge.ConnectorBody{Text: "Hello", ConversationID: "C123", MessageID: "m-1", SenderID: "U456", Wait: "20s"}
	spoken   = []map[string]any{{"type": "Agent::UserMessage", "content": "Hello"}}
)

// describedRoutes are all routes below /v1 and /api but those that adapters/chat describes itself.
var describedRoutes = map[string]about{
	"GET /api/v1/held":                            {summary: "Messages that wait for the operator", query: ofAgent},
	"POST /api/v1/held/{turn}/release":            {summary: "Let the agent answer a held message", errors: taken},
	"POST /api/v1/held/{turn}/drop":               {summary: "Refuse a held message", partial: true, errors: taken},
	"GET /api/v1/approvals":                       {summary: "What agents may do or send only once somebody agreed", query: withOpen},
	"GET /api/v1/approvals/{approval}":            {summary: "One approval"},
	"POST /api/v1/approvals/{approval}/approve":   {summary: "Agree", errors: ended},
	"POST /api/v1/approvals/{approval}/deny":      {summary: "Deny", partial: true, errors: ended},
	"POST /api/v1/approvals/{approval}/edit":      {summary: "Change a held answer", errors: ended},
	"GET /api/v1/tool-requests":                   {summary: "Calls of tools that programs outside execute", query: append([]string{"after"}, withOpen...)},
	"GET /api/v1/tool-requests/{request}":         {summary: "One call of a tool"},
	"POST /api/v1/tool-requests/{request}/submit": {summary: "Give the result of a call", request: clienttool.ResultBody{Success: new(true), Result: map[string]any{"in_stock": 3}}, response: clienttool.Ended{}, errors: taken},
	"POST /api/v1/tool-requests/{request}/cancel": {summary: "End a call without result", response: clienttool.Ended{}, errors: taken},
	"GET /api/v1/turns/{turn}":                    {summary: "A message with its answer and timeline"},
	"POST /api/v1/turns/{turn}/retry":             {summary: "Run a failed message again", errors: taken},
	"POST /api/v1/turns/retry":                    {summary: "Run failed messages again", request: console.RetryBody{Agent: "echo", Since: "2h"}, response: exchange.RetryResult{}},
	"DELETE /api/v1/replies/{reply}":              {summary: "Take an answer back", errors: revising},
	"PUT /api/v1/replies/{reply}":                 {summary: "Edit an answer", errors: revising},
	"PUT /api/v1/replies/{reply}/pin":             {summary: "Show an answer on the profile of its agent", errors: taken},
	"DELETE /api/v1/replies/{reply}/pin":          {summary: "Take an answer off the profile of its agent", errors: taken},
	"GET /api/v1/people":                          {summary: "Who is linked with whom", query: page},
	"DELETE /api/v1/people":                       {summary: "Take an identity out of its person", query: []string{"principal!"}, errors: absent},
	"GET /api/v1/audit":                           {summary: "Decisions about trust", query: []string{"limit:integer", "before", "code", "turn", "agent"}},
	"GET /api/v1/mail/suppressed":                 {summary: "Mail addresses to which nothing is sent", query: []string{"limit:integer", "after", "kind"}},
	"DELETE /api/v1/mail/suppressed":              {summary: "Send to an address again", query: []string{"address!"}, errors: absent},
	"GET /api/v1/reports":                         {summary: "Reports of other servers", query: page},
	"GET /api/v1/blocks":                          {summary: "Who is kept out", query: []string{"limit:integer", "before", "kind", "target"}},
	"POST /api/v1/blocks":                         {summary: "Keep somebody out"},
	"DELETE /api/v1/blocks":                       {summary: "Let somebody in again", query: []string{"target!"}, errors: absent},
	"POST /api/v1/blocks/import":                  {summary: "Import a list", query: []string{"silenced", "dry_run:boolean"}, request: "", media: "text/csv"},
	"GET /api/v1/allows":                          {summary: "Who is let in", query: []string{"limit:integer", "before", "kind", "target"}},
	"POST /api/v1/allows":                         {summary: "Let somebody in"},
	"DELETE /api/v1/allows":                       {summary: "Let somebody in no longer", query: []string{"target!"}, errors: absent},
	"POST /api/v1/allows/import":                  {summary: "Import a list", query: []string{"silenced", "dry_run:boolean"}, request: "", media: "text/csv"},
	"GET /api/v1/stops":                           {summary: "Who told an agent to stop", query: []string{"limit:integer", "before", "kind", "target", "agent"}},
	"DELETE /api/v1/stops":                        {summary: "Write to somebody again", query: []string{"target!", "agent"}, errors: absent},

	"POST /v1/pull/{agent}/take":             {summary: "Take the next messages of an agent", query: []string{"wait"}, also: []int{http.StatusNoContent}},
	"GET /v1/pull/{agent}/events":            {summary: "Hear of messages of an agent", query: []string{"max:integer"}},
	"POST /v1/pull/{agent}/{turn}/heartbeat": {summary: "Keep the lease of a message", query: []string{"lease!"}, errors: ended},
	"POST /v1/pull/{agent}/{turn}/deltas":    {summary: "Send more of an answer: one delta, or one in each line (application/x-ndjson)", query: []string{"lease!", "first:integer"}, errors: ended},
	"POST /v1/pull/{agent}/{turn}/answer":    {summary: "Answer a message; without a body the deltas are the answer", query: []string{"lease!"}, errors: ended, partial: true},
	"POST /v1/pull/{agent}/{turn}/fail":      {summary: "Give a message back", query: []string{"lease!"}, errors: ended},

	"GET /v1/tools/{agent}/requests":                    {summary: "Calls of an agent's tools that wait", query: waiting, response: clienttool.RequestList{}},
	"GET /v1/tools/{agent}/requests/events":             {summary: "Hear of calls of an agent's tools", query: waiting, response: clienttool.RequestView{}},
	"GET /v1/tools/{agent}/requests/{request}":          {summary: "One call of a tool", response: clienttool.RequestAnswer{}},
	"POST /v1/tools/{agent}/requests/{request}/submit":  {summary: "Give the result of a call", request: clienttool.ResultBody{Success: new(true), Result: map[string]any{"in_stock": 3}}, response: clienttool.Ended{}, errors: taken},
	"POST /v1/tools/{agent}/requests/{request}/timeout": {summary: "Say that a call takes too long", response: clienttool.Ended{}, errors: taken},
	"POST /v1/tools/{agent}/requests/{request}/cancel":  {summary: "End a call without result", response: clienttool.Ended{}, errors: taken},

	"POST /v1/bridge/register":                   {summary: "Register a bridge", scope: "pending", request: bridge.ClientBody{CallbackURL: "https://bridge.example/inbox"}, response: bridge.ClientView{}, partial: true},
	"GET /v1/bridge/client":                      {summary: "The registration of a bridge", query: []string{"client_id"}, response: bridge.ClientView{}, errors: absent},
	"POST /v1/bridge/send":                       {summary: "Say something to an agent", scope: "send", query: []string{"wait"}, request: hello, response: bridge.RunAnswer{}, also: forBoth, stream: true, errors: taken},
	"POST /v1/bridge/queue":                      {summary: "Put an item into the queue", scope: "send", request: bridge.ItemBody{Agent: "echo", Content: "Hello"}, response: bridge.ItemView{}, status: 201},
	"GET /v1/bridge/pending":                     {summary: "Items that are not acknowledged", scope: "pending", query: append([]string{"wait"}, chosen...), response: bridge.ItemList{}},
	"GET /v1/bridge/events":                      {summary: "Hear of items", scope: "pending", query: chosen, response: bridge.ItemView{}},
	"GET /v1/bridge/items/{item}":                {summary: "One item", scope: "pending", query: []string{"client_id"}, response: bridge.ItemView{}},
	"POST /v1/bridge/items/{item}/ack":           {summary: "Acknowledge an item", scope: "ack", query: []string{"client_id"}, response: bridge.Acked{}},
	"POST /v1/bridge/ack":                        {summary: "Acknowledge items", scope: "ack", request: bridge.AckBody{QueueIDs: []string{"bridge_0123456789abcdef0123456789abcdef"}}, response: bridge.Acked{}},
	"GET /v1/sessions":                           {summary: "Sessions of the caller", scope: "send", query: []string{"limit:integer", "cursor", "agent", "owner"}, response: bridge.SessionPage{}},
	"POST /v1/sessions":                          {summary: "Begin a session", scope: "send", request: bridge.SessionBody{Agent: "echo", Title: "Groceries"}, response: bridge.SessionView{}, status: 201, also: []int{http.StatusOK}, errors: taken},
	"GET /v1/sessions/{session}":                 {summary: "One session", scope: "send", query: owned, response: bridge.SessionView{}},
	"PATCH /v1/sessions/{session}":               {summary: "Rename a session", scope: "send", query: owned, request: bridge.TitleBody{Title: "Groceries"}, response: bridge.SessionView{}},
	"DELETE /v1/sessions/{session}":              {summary: "Delete a session", scope: "send", query: owned, response: bridge.SessionDeleted{}},
	"GET /v1/sessions/{session}/messages":        {summary: "Messages of a session", scope: "send", query: []string{"limit:integer", "owner"}, response: bridge.SessionLines{}},
	"POST /v1/sessions/{session}/messages":       {summary: "Queue a message", scope: "send", query: []string{"wait"}, request: bridge.MessageBody{Message: "Hello"}, response: bridge.RunAnswer{}, status: 202, also: forBoth, stream: true, errors: taken},
	"GET /v1/sessions/{session}/export":          {summary: "Export a session", scope: "send", query: owned, response: bridge.ExportView{}},
	"POST /v1/import":                            {summary: "Import sessions", scope: "send", query: []string{"client", "connector"}, request: bridge.ImportBody{Agent: "echo", SessionID: "old-1", Messages: spoken}, response: bridge.ImportAnswer{}},
	"GET /v1/runs/{run}":                         {summary: "The status of a run", scope: "send", query: []string{"wait"}, response: bridge.RunAnswer{}},
	"GET /v1/runs/{run}/events":                  {summary: "Events of a run", scope: "send", query: []string{"cursor", "limit:integer"}, response: bridge.RunEventPage{}},
	"POST /v1/runs/{run}/cancel":                 {summary: "Cancel a run", scope: "send", request: bridge.CancelBody{}, response: bridge.RunAnswer{}, partial: true},
	"POST /v1/runs/{run}/stop":                   {summary: "Cancel a run", scope: "send", request: bridge.CancelBody{}, response: bridge.RunAnswer{}, partial: true},
	"POST /v1/connectors/{connector}/messages":   {summary: "A message of another product", query: []string{"wait"}, request: greeting, response: bridge.ConnectorAnswer{}, also: forBoth, errors: taken},
	"GET /v1/connectors/{connector}/runs/{run}":  {summary: "What became of a message", query: []string{"wait"}, response: bridge.ConnectorAnswer{}, also: forBoth},
	"POST /v1/connectors/{connector}/runs/{run}": {summary: "What became of a message, proved by signed evidence", query: []string{"wait"}, request: bridge.EvidenceBody{}, response: bridge.ConnectorAnswer{}, also: forBoth, partial: true},
}

var (
	waiting  = []string{"limit:integer", "after", "before", "tool_name", "run_id", "wait"}
	chosen   = []string{"limit:integer", "session_id", "session_ids", "lease", "client_id"}
	owned    = []string{"owner"}
	ended    = []int{http.StatusConflict, http.StatusGone}
	taken    = []int{http.StatusConflict}
	absent   = []int{http.StatusNotFound}
	revising = []int{http.StatusConflict, http.StatusUnsupportedMediaType}
)

// describedEvents are the kinds of events of the streams.
var describedEvents = map[string][]openapi.Event{
	"GET /v1/pull/{agent}/events": {{Name: "turn", Summary: "a message that is leased to the program", Data: pull.Request{}}},
	"GET /v1/tools/{agent}/requests/events": {
		{Name: "request", Summary: "a call that waits", Data: clienttool.RequestView{}}, {Name: "ended", Summary: "it waits no more", Data: clienttool.RequestEnded{}},
	},
	"GET /v1/bridge/events":                {{Name: "item", Summary: "an item that is not acknowledged", Data: bridge.ItemView{}}},
	"GET /v1/runs/{run}/events":            growing,
	"POST /v1/bridge/send":                 growing,
	"POST /v1/sessions/{session}/messages": growing,
}

var growing = []openapi.Event{
	{Name: "accepted", Summary: "the message is kept", Data: bridge.RunAnswer{}}, {Name: "status", Summary: "the run begins", Data: bridge.StreamText{}},
	{Name: "delta", Summary: "more of the answer", Data: bridge.StreamText{}}, {Name: "restarted", Summary: "what was sent is void", Data: bridge.StreamText{}},
	{Name: "done", Summary: "the run as it is in the end", Data: bridge.RunAnswer{}},
}
