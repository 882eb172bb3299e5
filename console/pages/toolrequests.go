package pages

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"inbox/agents/runtime/tool/request"
	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/design"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
)

func (p *Pages) toolRequestRoutes() []httpserver.Route {
	list := at("work", "tools")
	return []httpserver.Route{
		p.page(exchange.RoleRead, list+"/{request}", p.toolRequest),
		p.act(exchange.RoleWork, list+"/cancel", false, p.cancelToolRequests),
		p.act(exchange.RoleWork, list+"/{request}/submit", false, p.submitToolResult),
	}
}

// toolRequestsView is a page of calls of tools that programs outside execute.
type toolRequestsView struct {
	workView

	All  bool // also those that ended
	Rows []exchange.ToolRequest
}

func (p *Pages) toolRequests(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v := toolRequestsView{workView: p.workView(r, s, "tools"), All: r.URL.Query().Get("status") == "all"}
	filter := exchange.ToolRequestFilter{Agent: r.URL.Query().Get("agent"), All: v.All, Before: r.URL.Query().Get("before"), Limit: pageSize + 1}
	found, err := p.Operator.Tools.Requests(r.Context(), filter)
	if err != nil {
		return err
	}
	var next string
	if v.Rows, next = exchange.NextPage(found, pageSize, exchange.ToolRequest.Cursor); next != "" {
		v.Next = query(r, "before", next, "select", "")
	}
	return p.showWork(w, r, s, text(r.Context(), "Tool requests"), toolRequestsPage(v))
}

// toolRequestView is one of them.
type toolRequestView struct {
	workView
	exchange.ToolRequest
}

func (v toolRequestView) open() bool { return v.Status == request.StatusPending }

func (p *Pages) toolRequest(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v := toolRequestView{workView: p.workView(r, s, "tools")}
	var err error
	if v.ToolRequest, err = p.Operator.Tools.Request(r.Context(), httpserver.Param(r, "request")); err != nil {
		return err
	}
	return p.showWork(w, r, s, text(r.Context(), "Call of {tool}", "tool", design.VisibleLine(v.ToolName)), toolRequestPage(v))
}

func (p *Pages) cancelToolRequests(w http.ResponseWriter, r *http.Request, s account.Session) error {
	all, err := p.each(r, s, "tools", "cancel", func(ctx context.Context, id string) error {
		_, err := p.Operator.Tools.Cancel(ctx, id, s.By())
		return err
	})
	if err != nil {
		return err
	}
	words := count(r.Context(), all.done, "{n} call was cancelled; its agent goes on without a result.", "{n} calls were cancelled; their agents go on without a result.")
	return p.done(w, r, back(r, workPath("tools")), all.and(r.Context(), words))
}

// toolResult makes the document that a program would have handed in.
func toolResult(r *http.Request) ([]byte, error) {
	words := strings.TrimSpace(plainText(r.PostFormValue("result")))
	if len(words) > operator.MaxToolResult {
		return nil, fault.InField("result", "is longer than 1 MiB")
	}
	if r.PostFormValue("outcome") == "failed" {
		return json.Marshal(map[string]any{"success": false, "error": words})
	}
	if !json.Valid([]byte(words)) {
		return nil, fault.InField("result", text(r.Context(), "is not JSON; write a text in quotes, such as \"done\""))
	}
	return json.Marshal(map[string]any{"success": true, "result": json.RawMessage(words)})
}

func (p *Pages) submitToolResult(w http.ResponseWriter, r *http.Request, s account.Session) error {
	result, err := toolResult(r)
	if err != nil {
		return err
	}
	id := httpserver.Param(r, "request")
	answer, err := p.Operator.Tools.Submit(r.Context(), id, s.By(), result)
	if err != nil {
		return err
	}
	words := text(r.Context(), "The result was handed in; the agent goes on.")
	if answer.Duplicate {
		words = text(r.Context(), "The call had a result already; that one counts.")
	}
	return p.done(w, r, back(r, workPath("tools")), words)
}

func toolStatusName(ctx context.Context, status string) string {
	switch status {
	case request.StatusPending:
		return text(ctx, "Waiting")
	case request.StatusCompleted:
		return text(ctx, "Has a result")
	case request.StatusTimeout:
		return text(ctx, "Ended without a result")
	}
	return status
}

func toolColour(status string) string {
	switch status {
	case request.StatusPending:
		return design.Warn
	case request.StatusCompleted:
		return design.OK
	}
	return design.Plain
}
