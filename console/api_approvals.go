package console

import (
	"net/http"
	"net/url"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
)

type approvalList struct {
	Approvals []exchange.Approval `json:"approvals"`
	Next      string              `json:"next,omitempty"` // value of "before" for the following page
}

// listApprovals takes status=open (the default) or status=all.
func (a *API) listApprovals(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	all, err := withClosed(query)
	if err != nil {
		return nil, err
	}
	cursor := func(a exchange.Approval) string { return a.ID }
	found, next, err := page(r, cursor, func(limit int) ([]exchange.Approval, error) {
		return a.operator.Approvals.Approvals(r.Context(), exchange.ApprovalFilter{
			Agent: query.Get("agent"), All: all, Before: query.Get("before"), Limit: limit,
		})
	})
	return approvalList{Approvals: found, Next: next}, err
}

func (a *API) approval(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Approvals.Approval(r.Context(), httpserver.Param(r, "approval"))
}

func (a *API) approve(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Approvals.Approve(r.Context(), httpserver.Param(r, "approval"), caller(r))
}

// deny takes an optional {"reason": "…"}, which the asker is told.
func (a *API) deny(w http.ResponseWriter, r *http.Request) (any, error) {
	why, err := reason(w, r)
	if err != nil {
		return nil, err
	}
	return a.operator.Approvals.Deny(r.Context(), httpserver.Param(r, "approval"), caller(r), why)
}

// withClosed reports whether status=all is asked for; status=open is the default.
func withClosed(query url.Values) (bool, error) {
	status := orElse(query.Get("status"), "open")
	if status != "open" && status != "all" {
		return false, fault.InField("status", `must be "open" or "all"`)
	}
	return status == "all", nil
}

// maxEditBytes bounds the body of an edit: the text of an answer, with the escapes of JSON.
const maxEditBytes = 4 << 20

// editReply takes {"text": "…"}.
func (a *API) editReply(w http.ResponseWriter, r *http.Request) (any, error) {
	var wanted textBody
	if err := readOptional(w, r, maxEditBytes, &wanted, `send {"text":"…"}`); err != nil {
		return nil, err
	}
	return a.operator.Approvals.EditReply(r.Context(), httpserver.Param(r, "approval"), caller(r), wanted.Text)
}

type toolRequestList struct {
	ToolRequests []exchange.ToolRequest `json:"tool_requests"`
	Next         string                 `json:"next,omitempty"` // value of "after" for the following page
}

// listToolRequests takes status=open (the default) or status=all, agent, turn, tool, after (a time) and limit.
func (a *API) listToolRequests(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	all, err := withClosed(query)
	if err != nil {
		return nil, err
	}
	filter := exchange.ToolRequestFilter{Agent: query.Get("agent"), TurnID: query.Get("turn"), ToolName: query.Get("tool"), All: all}
	if text := query.Get("after"); text != "" {
		if filter.CreatedAfter, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return nil, fault.InField("after", "must be a time such as 2026-01-02T15:04:05Z")
		}
	}

	cursor := func(t exchange.ToolRequest) string { return t.CreatedAt.Format(time.RFC3339Nano) }
	found, next, err := page(r, cursor, func(limit int) ([]exchange.ToolRequest, error) {
		filter.Limit = limit
		return a.operator.Tools.Requests(r.Context(), filter)
	})
	return toolRequestList{ToolRequests: found, Next: next}, err
}

func (a *API) toolRequest(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Tools.Request(r.Context(), httpserver.Param(r, "request"))
}

// submitToolResult takes {"success", "result" or "error", "metadata"}.
func (a *API) submitToolResult(_ http.ResponseWriter, r *http.Request) (any, error) {
	body, err := httpserver.ReadBody(r, operator.MaxToolResult)
	if err != nil {
		return nil, err
	}
	return a.operator.Tools.Submit(r.Context(), httpserver.Param(r, "request"), caller(r), body)
}

func (a *API) cancelToolRequest(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Tools.Cancel(r.Context(), httpserver.Param(r, "request"), caller(r))
}
