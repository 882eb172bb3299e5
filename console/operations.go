package console

import (
	"net/http"

	"inbox/agents/clienttool"
	"inbox/exchange"
	"inbox/internal/openapi"
)

// reasonBody says why.
type reasonBody struct {
	Reason string `json:"reason,omitempty"`
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

// Operations describe the calls of the operator API.
func Operations() []openapi.Operation {
	var (
		page     = []string{"limit:integer", "before"}
		ofAgent  = []string{"limit:integer", "before", "agent"}
		withOpen = []string{"limit:integer", "before", "agent", "status"}

		taken    = []int{http.StatusConflict}
		ended    = []int{http.StatusConflict, http.StatusGone}
		absent   = []int{http.StatusNotFound}
		revising = []int{http.StatusConflict, http.StatusUnsupportedMediaType}

		reason = reasonBody{"not our subject"}
		entry  = entryBody{Target: "spam.example", Effect: "refuse", Reason: "spam"}
	)
	list := []openapi.Operation{
		{Method: "GET", Path: "/api/v1/held", Summary: "Messages that wait for the operator", Query: ofAgent, Response: heldList{}},
		{Method: "POST", Path: "/api/v1/held/{turn}/release", Summary: "Let the agent answer a held message", Errors: taken},
		{Method: "POST", Path: "/api/v1/held/{turn}/drop", Summary: "Refuse a held message", Partial: true, Errors: taken, Request: reason},
		{Method: "GET", Path: "/api/v1/approvals", Summary: "What agents may do or send only once somebody agreed", Query: withOpen, Response: approvalList{}},
		{Method: "GET", Path: "/api/v1/approvals/{approval}", Summary: "One approval", Response: exchange.Approval{}},
		{Method: "POST", Path: "/api/v1/approvals/{approval}/approve", Summary: "Agree", Errors: ended, Response: exchange.Approval{}},
		{Method: "POST", Path: "/api/v1/approvals/{approval}/deny", Summary: "Deny", Partial: true, Errors: ended, Request: reason, Response: exchange.Approval{}},
		{Method: "POST", Path: "/api/v1/approvals/{approval}/edit", Summary: "Change a held answer", Errors: ended, Request: textBody{"Hello"}, Response: exchange.Approval{}},
		{
			Method: "GET", Path: "/api/v1/tool-requests", Summary: "Calls of tools that programs outside execute",
			Query: append([]string{"after"}, withOpen...), Response: toolRequestList{},
		},
		{Method: "GET", Path: "/api/v1/tool-requests/{request}", Summary: "One call of a tool", Response: exchange.ToolRequest{}},
		{
			Method: "POST", Path: "/api/v1/tool-requests/{request}/submit", Summary: "Give the result of a call",
			Request: clienttool.ResultBody{Success: new(true), Result: map[string]any{"in_stock": 3}}, Response: clienttool.Ended{}, Errors: taken,
		},
		{Method: "POST", Path: "/api/v1/tool-requests/{request}/cancel", Summary: "End a call without result", Response: clienttool.Ended{}, Errors: taken},
		{Method: "GET", Path: "/api/v1/turns/{turn}", Summary: "A message with its answer and timeline", Response: turnView{}},
		{Method: "POST", Path: "/api/v1/turns/{turn}/retry", Summary: "Run a failed message again", Errors: taken},
		{Method: "POST", Path: "/api/v1/turns/retry", Summary: "Run failed messages again", Request: RetryBody{Agent: "echo", Since: "2h"}, Response: exchange.RetryResult{}},
		{Method: "DELETE", Path: "/api/v1/replies/{reply}", Summary: "Take an answer back", Errors: revising},
		{Method: "PUT", Path: "/api/v1/replies/{reply}", Summary: "Edit an answer", Errors: revising, Request: answerBody{Text: "Hello", MIME: "text/markdown"}},
		{Method: "PUT", Path: "/api/v1/replies/{reply}/pin", Summary: "Show an answer on the profile of its agent", Errors: taken},
		{Method: "DELETE", Path: "/api/v1/replies/{reply}/pin", Summary: "Take an answer off the profile of its agent", Errors: taken},
		{Method: "GET", Path: "/api/v1/people", Summary: "Who is linked with whom", Query: page, Response: peopleList{}},
		{Method: "DELETE", Path: "/api/v1/people", Summary: "Take an identity out of its person", Query: []string{"principal!"}, Errors: absent},
		{Method: "GET", Path: "/api/v1/audit", Summary: "Decisions about trust", Query: []string{"limit:integer", "before", "code", "turn", "agent"}, Response: auditList{}},
		{
			Method: "GET", Path: "/api/v1/mail/suppressed", Summary: "Mail addresses to which nothing is sent",
			Query: []string{"limit:integer", "after", "kind"}, Response: suppressionList{},
		},
		{Method: "DELETE", Path: "/api/v1/mail/suppressed", Summary: "Send to an address again", Query: []string{"address!"}, Errors: absent},
		{Method: "GET", Path: "/api/v1/reports", Summary: "Reports of other servers", Query: page, Response: auditList{}},
		{Method: "GET", Path: "/api/v1/blocks", Summary: "Who is kept out", Query: []string{"limit:integer", "before", "kind", "target"}, Response: entryList{}},
		{Method: "POST", Path: "/api/v1/blocks", Summary: "Keep somebody out", Request: entry, Response: exchange.ListEntry{}},
		{Method: "DELETE", Path: "/api/v1/blocks", Summary: "Let somebody in again", Query: []string{"target!"}, Errors: absent},
		{
			Method: "POST", Path: "/api/v1/blocks/import", Summary: "Import a list",
			Query: []string{"silenced", "dry_run:boolean"}, Request: "", Media: "text/csv", Response: exchange.ImportResult{},
		},
		{Method: "GET", Path: "/api/v1/allows", Summary: "Who is let in", Query: []string{"limit:integer", "before", "kind", "target"}, Response: entryList{}},
		{Method: "POST", Path: "/api/v1/allows", Summary: "Let somebody in", Request: entryBody{Target: "friends.example"}, Response: exchange.ListEntry{}},
		{Method: "DELETE", Path: "/api/v1/allows", Summary: "Let somebody in no longer", Query: []string{"target!"}, Errors: absent},
		{
			Method: "POST", Path: "/api/v1/allows/import", Summary: "Import a list",
			Query: []string{"silenced", "dry_run:boolean"}, Request: "", Media: "text/csv", Response: exchange.ImportResult{},
		},
		{
			Method: "GET", Path: "/api/v1/stops", Summary: "Who told an agent to stop",
			Query: []string{"limit:integer", "before", "kind", "target", "agent"}, Response: entryList{},
		},
		{Method: "DELETE", Path: "/api/v1/stops", Summary: "Write to somebody again", Query: []string{"target!", "agent"}, Errors: absent},
	}
	for i := range list {
		list[i].Tag, list[i].Security = "operator", "operator"
	}
	return list
}
