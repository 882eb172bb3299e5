package console

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"inbox/agents/clienttool"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/httpserver"
	"inbox/internal/openapi"
	"inbox/normalized"
	"inbox/operator"
	"inbox/operator/doctor"
	"inbox/operator/held"
	"inbox/operator/operation"
	"inbox/operator/setup"
	"inbox/operator/takeover"
	"inbox/policypart"
)

// digestBody names what was read of an approval.
type digestBody struct {
	Digest string `json:"digest,omitempty"`
}

// textBody is the new text of an answer that is held back.
type textBody struct {
	Text string `json:"text"`
}

// answerBody is the new text of an answer that left.
type answerBody struct {
	Text string `json:"text"`
	MIME string `json:"mime,omitempty"`
}

// entryBody is an entry for a list; effect is for blocks.
type entryBody struct {
	Target string `json:"target"`
	Effect string `json:"effect,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// roles are what the calls of the operator API need, where it is not the usual: RoleRead to look, RoleAdmin to change. A call that only
// looks is a GET.
var roles = map[string]exchange.Role{
	// What one person's data are is for who may also remove them.
	"GET /api/v1/people/export":  exchange.RoleAdmin,
	"GET /api/v1/people/preview": exchange.RoleAdmin,

	// Names of services and addresses of webhooks are for who keeps the server.
	"GET /api/v1/settings": exchange.RoleAdmin,

	"POST /api/v1/doctor":                         exchange.RoleWork,
	"POST /api/v1/dns":                            exchange.RoleWork,
	"POST /api/v1/approvals/{approval}/approve":   exchange.RoleWork,
	"POST /api/v1/approvals/{approval}/deny":      exchange.RoleWork,
	"POST /api/v1/approvals/{approval}/edit":      exchange.RoleWork,
	"POST /api/v1/tool-requests/{request}/submit": exchange.RoleWork,
	"POST /api/v1/tool-requests/{request}/cancel": exchange.RoleWork,
	"POST /api/v1/turns/{turn}/retry":             exchange.RoleWork,
	"POST /api/v1/turns/retry":                    exchange.RoleWork,
	"POST /api/v1/simulate":                       exchange.RoleWork,
	"POST /api/v1/deliveries/retry":               exchange.RoleWork,
	"POST /api/v1/deliveries/{delivery}/retry":    exchange.RoleWork,
	"POST /api/v1/deliveries/{delivery}/cancel":   exchange.RoleWork,
	"POST /api/v1/demands/{demand}/withdraw":      exchange.RoleWork,
	"POST /api/v1/jobs/retry":                     exchange.RoleWork,
	"POST /api/v1/jobs/{job}/retry":               exchange.RoleWork,
	"DELETE /api/v1/jobs/{job}":                   exchange.RoleWork,
	"DELETE /api/v1/breakers":                     exchange.RoleWork,
	"DELETE /api/v1/replies/{reply}":              exchange.RoleWork,
	"PUT /api/v1/replies/{reply}":                 exchange.RoleWork,
	"PUT /api/v1/replies/{reply}/pin":             exchange.RoleWork,
	"DELETE /api/v1/replies/{reply}/pin":          exchange.RoleWork,
	"POST /api/v1/mail/{mail}/forward":            exchange.RoleWork,
	"POST " + chatPattern:                         exchange.RoleWork,
	"POST /api/v1/follows/decide":                 exchange.RoleWork,

	// What an operator has read is theirs alone.
	"PUT /api/v1/threads/{thread}/read": exchange.RoleRead,
	"DELETE /api/v1/unread":             exchange.RoleRead,

	// It looks, by a question that is too long for an address.
	"POST /api/v1/agents/{agent}/access-check": exchange.RoleRead,
}

// RoleOf returns the role that a call of the operator API needs.
func RoleOf(method, pattern string) exchange.Role {
	if role, is := declaredRole(takeover.Operations(), method, pattern); is {
		return role
	}
	if role, is := declaredRole(held.Operations(), method, pattern); is {
		return role
	}
	if role, is := roles[method+" "+pattern]; is {
		return role
	}
	if method == http.MethodGet {
		return exchange.RoleRead
	}
	return exchange.RoleAdmin
}

func declaredRole[S any](operations []operation.Operation[S], method, pattern string) (exchange.Role, bool) {
	for _, one := range operations {
		if one.Method == method && one.Path == pattern {
			return one.NeededRole(), true
		}
	}
	return exchange.RoleNone, false
}

// Operations describe the calls of the operator API.
func Operations() []openapi.Operation {
	var (
		page     = []string{"limit:integer", "before"}
		ofAgent  = []string{"limit:integer", "before", "agent"}
		ofWork   = []string{"limit:integer", "before", "agent", "channel", "since"}
		withOpen = []string{"limit:integer", "before", "agent", "status"}

		taken    = []int{http.StatusConflict}
		ended    = []int{http.StatusConflict, http.StatusGone}
		absent   = []int{http.StatusNotFound}
		refused  = []int{http.StatusNotFound, http.StatusConflict}
		revising = []int{http.StatusConflict, http.StatusUnsupportedMediaType}

		reason = operation.Reason{Reason: "not our subject"}
		entry  = entryBody{Target: "spam.example", Effect: "refuse", Reason: "spam"}
	)

	arrivals := []string{"limit:integer", "before", "agent", "sender", "channel", "state", "since", "until"}
	list := []openapi.Operation{
		{
			Method: "GET", Path: "/api/v1/turns", Summary: "What came in, newest first; with after, what came later",
			Query: append([]string{"text", "after", "wait"}, arrivals...), Response: turnList{},
		},
		{Method: "GET", Path: "/api/v1/threads", Summary: "Conversations, the one with the newest message first", Query: append([]string{"unread:boolean"}, arrivals...), Response: exchange.List[operator.Conversation]{}},
		{Method: "GET", Path: "/api/v1/threads/{thread}/readers", Summary: "Who can read a conversation, and why", Query: []string{"agent"}, Response: operator.Readers{}, Errors: taken},
		{Method: "PUT", Path: "/api/v1/threads/{thread}/read", Summary: "Mark a conversation as read by the caller", Query: []string{"agent"}, Errors: taken},
		{Method: "GET", Path: "/api/v1/unread", Summary: "How many conversations the caller has not read", Response: unreadAnswer{}},
		{Method: "DELETE", Path: "/api/v1/unread", Summary: "Mark all conversations as read by the caller", Query: []string{"until"}},
		{
			Method: "GET", Path: "/api/v1/deliveries", Summary: "Ways of answers to their receivers, newest first",
			Query: []string{"limit:integer", "before", "agent", "turn", "to", "channel", "state", "since", "until"}, Response: exchange.List[operator.Delivery]{},
		},
		{Method: "GET", Path: "/api/v1/agents", Summary: "Agents with their settings and pauses", Query: []string{"agent", "kind", "state"}, Response: exchange.List[operator.AgentSummary]{}},
		{
			Method: "POST", Path: "/api/v1/agents", Summary: "Write a new agent into the file of the settings, and read it",
			Request: operator.NewAgent{Name: "helper", Kind: "remote", Backend: "https://service.example/card.json", Access: "verified"}, Response: setup.Added{}, Errors: refused,
		},
		{Method: "GET", Path: "/api/v1/agents/{agent}", Summary: "One agent with the ways to it and its settings", Response: operator.AgentDetails{}},
		{Method: "DELETE", Path: "/api/v1/agents/{agent}", Summary: "Take an agent out of the file of the settings", Response: setup.Removed{}, Errors: refused},
		{Method: "GET", Path: "/api/v1/agents/{agent}/examination", Summary: "Whether what answers for an agent is there", Response: exchange.List[doctor.Finding]{}},
		{Method: "PUT", Path: "/api/v1/agents/{agent}/pause", Summary: "Let an agent rest", Partial: true, Request: reason},
		{Method: "DELETE", Path: "/api/v1/agents/{agent}/pause", Summary: "Let an agent work again"},
		{
			Method: "POST", Path: "/api/v1/agents/{agent}/access-check", Summary: "Whether a sender would be let in, and why",
			Request: accessBody{Address: "@alice@example.org", Method: "email-dmarc"}, Response: operator.AccessAnswer{},
		},
		{
			Method: "POST", Path: "/api/v1/tokens", Summary: "Make a token of a peer or of an operator; its secret is in the answer alone",
			Request: operator.NewToken{Name: "partner", Scope: "peer", Agent: "helper", Expires: "90d"}, Response: createdToken{}, Errors: refused,
		},
		{Method: "DELETE", Path: "/api/v1/tokens/{token}", Summary: "Make a token useless"},
		{
			Method: "POST", Path: "/api/v1/follows/decide", Summary: "Accept or refuse a follow request",
			Request: followBody{Agent: "helper", Actor: "https://social.example/users/ann", Accept: true}, Errors: absent,
		},
		{
			Method: "GET", Path: "/api/v1/tokens", Summary: "Tokens, never the secrets",
			Query: append([]string{"name", "scope", "status"}, ofAgent...), Response: exchange.List[exchange.Token]{},
		},
		{
			Method: "GET", Path: "/api/v1/follows", Summary: "Who follows an agent, and who waits to",
			Query: []string{"limit:integer", "before", "agent", "state", "actor"}, Response: exchange.List[operator.Follow]{}, Errors: absent,
		},
		{Method: "GET", Path: "/api/v1/approvals", Summary: "Actions and answers of agents that need an approval", Query: withOpen, Response: exchange.List[exchange.Approval]{}},
		{Method: "GET", Path: "/api/v1/approvals/{approval}", Summary: "One approval", Response: exchange.Approval{}},
		{Method: "POST", Path: "/api/v1/approvals/{approval}/approve", Summary: "Agree; with the digest of what was read", Partial: true, Errors: ended, Request: digestBody{"6f3c…"}, Response: exchange.Approval{}},
		{Method: "POST", Path: "/api/v1/approvals/{approval}/deny", Summary: "Deny", Partial: true, Errors: ended, Request: reason, Response: exchange.Approval{}},
		{Method: "POST", Path: "/api/v1/approvals/{approval}/edit", Summary: "Change a held answer", Errors: ended, Request: textBody{"Hello"}, Response: exchange.Approval{}},
		{
			Method: "GET", Path: "/api/v1/tool-requests", Summary: "Calls of tools that programs outside execute",
			Query: append([]string{"after", "turn", "tool"}, withOpen...), Response: exchange.List[exchange.ToolRequest]{},
		},
		{Method: "GET", Path: "/api/v1/tool-requests/{request}", Summary: "One call of a tool", Response: exchange.ToolRequest{}},
		{
			Method: "POST", Path: "/api/v1/tool-requests/{request}/submit", Summary: "Give the result of a call",
			Request: clienttool.ResultBody{Success: new(true), Result: map[string]any{"in_stock": 3}}, Response: clienttool.Ended{}, Errors: taken,
		},
		{Method: "POST", Path: "/api/v1/tool-requests/{request}/cancel", Summary: "End a call without result", Response: clienttool.Ended{}, Errors: taken},
		{Method: "GET", Path: "/api/v1/turns/{turn}", Summary: "A message with its answer and timeline, by any of its ids", Response: turnView{}, Errors: taken},
		{
			Method: "GET", Path: "/api/v1/turns/{turn}/result", Summary: "The conversation result of a run of a message",
			Query: []string{"run:integer"}, Response: operator.ShownResult{},
		},
		{
			Method: "GET", Path: "/api/v1/turns/{turn}/original", Summary: "A message as it came: activity JSON, the request of A2A, RFC 5322 bytes",
			Bytes: true, Errors: absent,
		},
		{
			Method: "GET", Path: "/api/v1/turns/{turn}/recording", Summary: "A message with its result, without secrets, as inbox record writes it",
			Query: []string{"names:boolean"}, Response: operator.Recording{}, Errors: taken,
		},
		{
			Method: "POST", Path: "/api/v1/simulate", Summary: "Send an agent a message as a simulated sender on a network, and wait for the result",
			Query: []string{"wait"}, Request: operator.Simulation{Way: "mention", Agent: "echo", From: "alice", Text: "What can you do?"}, Response: operator.Simulated{}, Errors: refused,
		},
		{Method: "POST", Path: "/api/v1/turns/{turn}/retry", Summary: "Run a failed message again", Errors: taken},
		{Method: "POST", Path: "/api/v1/turns/retry", Summary: "Run failed messages again", Request: RetryBody{Agent: "echo", Since: "2h"}, Response: exchange.RetryResult{}},
		{Method: "GET", Path: "/api/v1/waiting", Summary: "How much work waits for the operator", Response: operator.Overview{}},
		{Method: "GET", Path: "/api/v1/failed", Summary: "Messages on which an agent failed", Query: ofWork, Response: exchange.List[exchange.TurnRecord]{}},
		{
			Method: "POST", Path: "/api/v1/deliveries/retry", Summary: "Send dead deliveries again",
			Request: RetryBody{Channel: "email", Since: "2h"}, Response: exchange.RetriedWork{},
		},
		{Method: "POST", Path: "/api/v1/deliveries/{delivery}/retry", Summary: "Send a dead or cancelled delivery again", Errors: taken},
		{Method: "GET", Path: "/api/v1/deliveries/{delivery}", Summary: "One delivery with the answer that it brings", Response: operator.ShownDelivery{}, Errors: absent},
		{Method: "POST", Path: "/api/v1/deliveries/{delivery}/cancel", Summary: "Give a delivery up that has not been made", Errors: taken},
		{
			Method: "GET", Path: "/api/v1/demands", Summary: "What agents asked back: consent, logins and payments that wait for who wrote to them",
			Query: []string{"limit:integer", "before", "agent"}, Response: exchange.List[operator.Demand]{},
		},
		{Method: "POST", Path: "/api/v1/demands/{demand}/withdraw", Summary: "End an unanswered demand, and its message", Errors: ended},
		{Method: "GET", Path: "/api/v1/jobs", Summary: "Work of the server that was given up", Query: ofWork, Response: exchange.List[operator.DeadJob]{}},
		{Method: "POST", Path: "/api/v1/jobs/retry", Summary: "Do work again that was given up", Request: RetryBody{Since: "2h"}, Response: exchange.RetriedWork{}},
		{Method: "POST", Path: "/api/v1/jobs/{job}/retry", Summary: "Do one piece of work again", Errors: taken},
		{Method: "DELETE", Path: "/api/v1/jobs/{job}", Summary: "Forget a piece of work", Errors: taken},
		{Method: "GET", Path: "/api/v1/breakers", Summary: "Agents and destinations that rest because they fail", Response: exchange.List[operator.Breaker]{}},
		{Method: "DELETE", Path: "/api/v1/breakers", Summary: "Let an agent or a destination be tried at once", Query: []string{"target!"}, Response: exchange.List[operator.Breaker]{}, Errors: absent},
		{Method: "DELETE", Path: "/api/v1/replies/{reply}", Summary: "Withdraw an answer", Errors: revising},
		{Method: "PUT", Path: "/api/v1/replies/{reply}", Summary: "Edit an answer", Errors: revising, Request: answerBody{Text: "Hello", MIME: "text/markdown"}},
		{Method: "PUT", Path: "/api/v1/replies/{reply}/pin", Summary: "Show an answer on the profile of its agent", Errors: taken},
		{Method: "DELETE", Path: "/api/v1/replies/{reply}/pin", Summary: "Take an answer off the profile of its agent", Errors: taken},
		{Method: "GET", Path: "/api/v1/people", Summary: "Who is linked with whom, for which agent", Query: append([]string{"sender"}, page...), Response: exchange.List[exchange.PersonIdentity]{}},
		{Method: "DELETE", Path: "/api/v1/people", Summary: "End the links of a principal, for all agents or for one", Query: []string{"principal!", "agent"}, Errors: absent},
		{
			Method: "GET", Path: "/api/v1/people/export", Summary: "Everything that all domains of the server store of one person, as a ZIP archive",
			Query: []string{"person!", "linked:boolean", "unproven:boolean"}, Bytes: true, Errors: absent,
		},
		{
			Method: "GET", Path: "/api/v1/people/preview", Summary: "Who a name means at each domain for an export or an erasure, and why",
			Query: []string{"person!", "linked:boolean", "unproven:boolean"}, Response: operator.OfPerson{},
		},
		{
			Method: "POST", Path: "/api/v1/people/erase", Summary: "Erase a person at all domains of the server",
			Request: eraseBody{Person: "alice@example.org"}, Response: operator.OfPerson{},
		},
		{Method: "GET", Path: "/api/v1/erasures", Summary: "Receipts of erasures", Query: page, Response: exchange.List[operator.DomainReceipt]{}},
		{Method: "GET", Path: "/api/v1/erasures/{erasure}", Summary: "The receipt of one erasure", Response: operator.DomainReceipt{}},
		{Method: "GET", Path: "/api/v1/usage", Summary: "What is kept: rows and bytes of each agent", Response: operator.Kept{}},
		{
			Method: "GET", Path: "/api/v1/statistics", Summary: "Received messages by hour or day and channel, and how they ended",
			Query: []string{"since", "step", "agent"}, Response: operator.Traffic{},
		},
		{Method: "POST", Path: "/api/v1/doctor", Summary: "Look at what this node needs of the world", Response: doctor.Examination{}, Errors: taken},
		{Method: "GET", Path: "/api/v1/dns", Summary: "Records to publish for mail", Response: exchange.List[doctor.DNSRecord]{}},
		{Method: "POST", Path: "/api/v1/dns", Summary: "Look the records for mail up, and say what is in their place", Response: doctor.RecordLook{}, Errors: taken},
		{Method: "GET", Path: "/api/v1/certificates", Summary: "Certificates that this node shows, and what failed when they were renewed", Response: exchange.List[operator.Certificate]{}},
		{Method: "GET", Path: "/api/v1/limits", Summary: "Limits of what senders may cause, who is counted, and what is used of them", Response: exchange.List[operator.Limit]{}},
		{Method: "GET", Path: "/api/v1/nodes", Summary: "Processes that serve this database", Response: exchange.List[operator.RunningNode]{}},
		{Method: "GET", Path: "/api/v1/backlog", Summary: "Work that waits, by kind, and the destinations that wait longest", Response: operator.Backlog{}},
		{Method: "GET", Path: "/api/v1/settings", Summary: "The settings in force with all defaults, without secrets", Response: settingsBody{}},
		{Method: "GET", Path: "/api/v1/audit", Summary: "Decisions about trust", Query: []string{"limit:integer", "before", "code", "turn", "agent"}, Response: exchange.List[exchange.AuditRecord]{}},
		{
			Method: "GET", Path: "/api/v1/mail", Summary: "Mail for the operator, and answers that were captured",
			Query: []string{"limit:integer", "before", "kind", "mailbox", "sender", "text", "since", "until"}, Response: exchange.List[exchange.Mail]{},
		},
		{Method: "GET", Path: "/api/v1/mail/{mail}", Summary: "One mail with its header and text", Response: exchange.Mail{}},
		{Method: "GET", Path: "/api/v1/mail/{mail}/raw", Summary: "The whole mail as it was received", Bytes: true},
		{
			Method: "POST", Path: "/api/v1/mail/{mail}/forward", Summary: "Send a mail on", Errors: taken,
			Request: forwardBody{"me@example.org"}, Response: exchange.MailForward{},
		},
		{
			Method: "GET", Path: "/api/v1/mail/reports", Summary: "What other servers report about DMARC and TLS",
			Query: []string{"limit:integer", "before", "kind", "result", "source", "since", "unproven:boolean"}, Response: exchange.List[exchange.StoredReportRow]{},
		},
		{
			Method: "GET", Path: "/api/v1/mail/reports/summary", Summary: "The same added up by source and result",
			Query: []string{"limit:integer", "kind", "result", "source", "since", "unproven:boolean"}, Response: exchange.List[exchange.ReportSum]{},
		},
		{
			Method: "GET", Path: "/api/v1/mail/suppressed", Summary: "Mail addresses to which nothing is sent",
			Query: []string{"limit:integer", "before", "kind"}, Response: exchange.List[exchange.Suppression]{},
		},
		{Method: "GET", Path: "/api/v1/notices", Summary: "What the operator was told, and what waits for the next digest", Query: page, Response: noticeList{}},
		{Method: "POST", Path: "/api/v1/notices/test", Summary: "Send a test to every address of operator.notify", Response: exchange.Notice{}, Errors: taken},
		{Method: "DELETE", Path: "/api/v1/mail/suppressed", Summary: "Send to an address again", Query: []string{"address!"}, Errors: absent},
		{
			Method: "GET", Path: "/api/v1/sessions", Summary: "Browsers that are signed in at the console: those of the caller's token, for admins all",
			Query: page, Response: exchange.List[operator.SignedIn]{},
		},
		{Method: "DELETE", Path: "/api/v1/sessions/{session}", Summary: "Sign a browser out"},
		{Method: "GET", Path: "/api/v1/connectors", Summary: "What the settings say about the connectors", Response: exchange.List[operator.Connector]{}},
		{
			Method: "POST", Path: "/api/v1/reload", Summary: "Read the configuration of this node again",
			Response: operator.Reloaded{File: "/etc/inbox/inbox.toml", Changed: []string{"agents[helper].rules"}, UnchangedUntilRestart: []string{"http.listen"}},
		},
		{Method: "POST", Path: "/api/v1/stop", Summary: "Let this node end, as for SIGTERM"},
		{Method: "GET", Path: "/api/v1/pause", Summary: "Whether all agents wait with their work", Response: pauseView{}},
		{Method: "PUT", Path: "/api/v1/pause", Summary: "Let all agents wait with their work", Partial: true, Request: reason, Response: pauseView{}},
		{Method: "DELETE", Path: "/api/v1/pause", Summary: "Let all agents work again", Errors: absent},
		{Method: "POST", Path: "/api/v1/actors/{actor}/key", Summary: "Make a new key for an account in the fediverse", Response: keyBody{}, Errors: absent},
		{
			Method: "PUT", Path: "/api/v1/agents/{agent}/move", Summary: "Move an account in the fediverse to another server",
			Request: moveBody{"@helper@new.example"}, Response: moveBody{}, Errors: append([]int{http.StatusForbidden, http.StatusServiceUnavailable}, revising...),
		},
		{Method: "DELETE", Path: "/api/v1/agents/{agent}/move", Summary: "Let an account that moved be here again", Errors: taken},
		{Method: "GET", Path: "/api/v1/reports", Summary: "Reports of other servers", Query: page, Response: exchange.List[exchange.AuditRecord]{}},
		{Method: "GET", Path: "/api/v1/blocks", Summary: "Who is kept out", Query: []string{"limit:integer", "before", "kind", "target"}, Response: exchange.List[exchange.ListEntry]{}},
		{Method: "POST", Path: "/api/v1/blocks", Summary: "Add an entry to the block list", Request: entry, Response: exchange.ListEntry{}},
		{Method: "DELETE", Path: "/api/v1/blocks", Summary: "Remove an entry from the block list", Query: []string{"target!"}, Errors: absent},
		{
			Method: "POST", Path: "/api/v1/blocks/import", Summary: "Import a list",
			Query: []string{"silenced", "dry_run:boolean"}, Request: "", Media: "text/csv", Response: exchange.ImportResult{},
		},
		{Method: "GET", Path: "/api/v1/allows", Summary: "Who is let in", Query: []string{"limit:integer", "before", "kind", "target"}, Response: exchange.List[exchange.ListEntry]{}},
		{Method: "POST", Path: "/api/v1/allows", Summary: "Add an entry to the allow list", Request: entryBody{Target: "friends.example"}, Response: exchange.ListEntry{}},
		{Method: "DELETE", Path: "/api/v1/allows", Summary: "Remove an entry from the allow list", Query: []string{"target!"}, Errors: absent},
		{
			Method: "POST", Path: "/api/v1/allows/import", Summary: "Import a list",
			Query: []string{"silenced", "dry_run:boolean"}, Request: "", Media: "text/csv", Response: exchange.ImportResult{},
		},
		{
			Method: "GET", Path: "/api/v1/stops", Summary: "Who told an agent to stop",
			Query: []string{"limit:integer", "before", "kind", "target", "agent"}, Response: exchange.List[exchange.ListEntry]{},
		},
		{Method: "DELETE", Path: "/api/v1/stops", Summary: "Remove a sender's stop, and write to them again", Query: []string{"target!", "agent"}, Errors: absent},
	}

	for i := range list {
		list[i].Tag, list[i].Security = "operator", "operator"
	}
	return slices.Concat(list, described(takeover.Operations()), described(held.Operations()))
}

func described[S any](operations []operation.Operation[S]) (list []openapi.Operation) {
	for _, one := range operations {
		list = append(list, one.Describe())
	}
	return list
}

// Description makes the OpenAPI document of all routes below /v1 and /api. It is the same on every server but for its
// address.
type Description struct {
	Version    string
	Server     string              // its address
	Operations []openapi.Operation // what the rooms say about their routes
}

// Routes are the addresses of the document about the routes. It is made at the first request for it: to make it would be most of
// the processor time of a start, and few servers are asked.
func (d Description) Routes(about []httpserver.Route) []httpserver.Route {
	written := sync.OnceValues(func() (document []byte, err error) { return d.Document(about) })
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		document, err := written()
		if err != nil {
			httpserver.WriteFault(w, fmt.Errorf("write the description of the API: %w", err))
			return
		}

		sum := sha256.Sum256(document)
		header := w.Header()
		header.Set("ETag", `"`+hex.EncodeToString(sum[:16])+`"`)
		header.Set("Content-Type", "application/json")
		header.Set("Cache-Control", "public, max-age=300")
		header.Set("Access-Control-Allow-Origin", "*") // tools in browsers read it; it holds nothing about a person
		header.Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(document)) // answers If-None-Match and ranges
	})

	return []httpserver.Route{
		{Method: http.MethodGet, Pattern: "/openapi.json", Handler: serve}, {Method: http.MethodGet, Pattern: "/api/openapi.json", Handler: serve},
	}
}

// Document is the document about the routes.
func (d Description) Document(about []httpserver.Route) ([]byte, error) {
	known := map[string]openapi.Operation{}
	for _, operation := range d.Operations {
		known[operation.Method+" "+operation.Path] = operation
	}

	var list []openapi.Operation
	for _, route := range about {
		if !Described(route) {
			continue
		}
		operation, is := known[route.Method+" "+route.Pattern]
		if !is { // a test finds it first
			operation = openapi.Operation{Tag: "other", Summary: "Not described", Security: openapi.Bearer, Response: map[string]any{}}
		}
		operation.Method, operation.Path = route.Method, route.Pattern
		if operation.Security == "operator" {
			operation.Security += ":" + RoleOf(route.Method, route.Pattern).String()
		}
		list = append(list, operation)
	}

	return openapi.Document(openapi.Info{
		Title: "inbox", Version: d.Version, Server: d.Server, Error: httpserver.ErrorBody{}, Schemes: schemes, Parameters: parameters, Foreign: contractTypes(),
		Description: "What programs call below /v1 and the operator's own below /api. A2A, ActivityPub and mail are described by their specifications.",
	}, list)
}

// schemes are the kinds of credentials beside the token of a peer.
var schemes = map[string]openapi.Scheme{
	"tasks":     {Description: "Token for tasks: inbox tokens create --tasks."},
	"bridge":    {Description: "Token of a bridge, with the scopes send, pending and ack: inbox tokens create --bridge."},
	"tools":     {Description: "Token of a program that executes an agent's tools: inbox tokens create --tools."},
	"agent":     {Description: "Token of a program that is an agent: inbox tokens create --pull."},
	"operator":  {Description: "Token of an operator with the role that is named, or a larger one (read, work, admin): inbox tokens create --read, --work or --admin."},
	"signature": {Header: "X-Inbox-Signature", Description: "sha256= and the hexadecimal HMAC-SHA256 of the raw body by a secret of the connector; or signed evidence in the body."},
}

// parameters say what those mean whose names do not.
var parameters = map[string]string{
	"limit": "How many at most.", "before": "The next of the page before: the answer is the following page.", "after": "A time, or the after of an earlier answer: only what came later.",
	"cursor": "That of the page before.", "wait": "How long to wait for something to tell, such as 20s; the server has its own bound.",
	"lease":  "The id of the lease of a message; for items of a queue how long they are hidden from others, such as 30s.",
	"sender": "An address, all of a domain (@example.org), or a principal.", "text": `Words that all occur, "phrases", beginnings*.`,
	"since": "An age such as 24h, or a time (RFC 3339).", "until": "The same: before it.", "channel": "Such as email, activitypub, a2a or chat.",
	"state": "One, or for messages several with commas between.", "scope": "peer, read, work, admin, pull, tools, tasks, tasks:results or bridge.",
	"names": "true: people keep their names and addresses.", "target": "What the list has as target.", "turn": "Any id of a message. In an address / is written as %2F.",
	"thread": "Of a conversation: its id, or any id of one of its messages. In an address / is written as %2F.",
	"force":  "Also when another operator has the conversation.", "drop": "Close what waits without an answer; otherwise the agent answers it.",
	"note": "For the agent in its next turn.", "holder": "The operator, as lists name them.",
	"agent": "Name of an agent.", "client_id": "Of a bridge; that of the token where it is left out.", "owner": "For operators: whose sessions.",
	"labels":     "What the program is good for, as words with commas between: it gets only messages that require nothing else.",
	"session_id": "The session of the run.", "resource_class": "Class of resources that is needed.", "allowed_targets": "Ids of targets, with commas between.",
	"required_capabilities": "What the target must be able to do, as words with commas between.",
	"status":                "open or all.", "first": "Number of the first delta in the body, so that the request can be repeated.", "max": "How many messages may be open at once, 1 to 16.",
	"Idempotency-Key": "The same key with the same request is the same answer.", "Last-Event-ID": "Id of the last event that was read: the stream goes on behind it.",
	"Chat-Session": "Session that an earlier answer named.", "dry_run": "Only say what would be done.", "session_ids": "Several, with commas between.",
	"format":   "Form of the messages: envelope (agents-api.message) or agent-framework; those of a session also as provider, the rows for a model.",
	"coalesce": "true: neighbours of one role are one envelope or row (format=envelope, format=provider).",
}

// contractTypes have JSON Schemas of their own (docs/schema).
func contractTypes() map[reflect.Type]openapi.Foreign {
	files := normalized.Schemas()
	files["message.json"] = erasable(files["message.json"])
	list := map[reflect.Type]openapi.Foreign{}
	for file, kind := range map[string]reflect.Type{
		"message.json": reflect.TypeFor[normalized.Message](), "response.json": reflect.TypeFor[normalized.Response](), "delta.json": reflect.TypeFor[normalized.Delta](),
		"part.json": reflect.TypeFor[normalized.Part](), "evidence.json": reflect.TypeFor[identity.Evidence](), "policy-part.json": reflect.TypeFor[policypart.Part](),
	} {
		list[kind] = openapi.Foreign{File: file, Schema: files[file]}
	}
	return list
}

// erasable is the schema of a message as the API shows it: one that was deleted has no parts left.
func erasable(written []byte) []byte {
	var schema map[string]any
	if err := json.Unmarshal(written, &schema); err != nil {
		panic(err) // it was written a moment ago
	}

	properties, _ := schema["properties"].(map[string]any)
	parts, _ := properties["parts"].(map[string]any)
	delete(parts, "minItems")
	delete(parts, "contains")
	written, err := json.Marshal(schema)
	if err != nil {
		panic(err) // values out of JSON always encode
	}
	return written
}

// Described reports whether a route belongs in the document.
func Described(route httpserver.Route) bool {
	return route.Method != http.MethodOptions && slices.ContainsFunc([]string{"/v1/", "/api/", "/agents-api/"}, func(prefix string) bool {
		return strings.HasPrefix(route.Pattern, prefix)
	})
}
