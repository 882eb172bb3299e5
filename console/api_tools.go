package console

import (
	"context"
	"net/http"
	"time"

	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// ToolRecords finds calls of tools that programs outside execute.
type ToolRecords interface {
	// ToolRequest gives one; fault.NotFound when there is none.
	ToolRequest(ctx context.Context, id string) (exchange.ToolRequest, error)
	// ToolRequests lists them, oldest first.
	ToolRequests(ctx context.Context, filter exchange.ToolRequestFilter) ([]exchange.ToolRequest, error)
}

// ToolRequests ends them. What ends a request lets its message go on by itself. By is who does it, for the timeline.
type ToolRequests interface {
	ToolRequests(agent, by string) request.Lifecycle
	// ToolCancels is ToolRequests for who takes a request back.
	ToolCancels(agent, by string) request.Lifecycle
}

type toolRequestList struct {
	ToolRequests []exchange.ToolRequest `json:"tool_requests"`
	Next         string                 `json:"next,omitempty"` // value of "after" for the following page
}

// listToolRequests takes status=open (the default) or status=all, agent, turn, tool, after (a time) and limit.
func (a *API) listToolRequests(_ http.ResponseWriter, r *http.Request) (any, error) {
	size, err := limit(r)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	status := orElse(query.Get("status"), "open")
	if status != "open" && status != "all" {
		return nil, fault.InField("status", `must be "open" or "all"`)
	}
	filter := exchange.ToolRequestFilter{
		Agent: query.Get("agent"), TurnID: query.Get("turn"), ToolName: query.Get("tool"), All: status == "all", Limit: size + 1,
	}
	if text := query.Get("after"); text != "" {
		if filter.CreatedAfter, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return nil, fault.InField("after", "must be a time such as 2026-01-02T15:04:05Z")
		}
	}
	found, err := a.ToolRecords.ToolRequests(r.Context(), filter)
	found, next := exchange.NextPage(found, size, func(t exchange.ToolRequest) string {
		return t.CreatedAt.Format(time.RFC3339Nano)
	})
	return toolRequestList{ToolRequests: listed(found), Next: next}, err
}

func (a *API) toolRequest(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.ToolRecords.ToolRequest(r.Context(), httpserver.Param(r, "request"))
}

// Bounds of a result that an operator hands in.
const (
	maxResultBytes = 1 << 20
	maxResultDepth = 32
)

// submitToolResult takes {"success", "result" or "error", "metadata"}.
func (a *API) submitToolResult(w http.ResponseWriter, r *http.Request) (any, error) {
	body, err := httpserver.ReadBody(r, maxResultBytes)
	if err != nil {
		return nil, err
	}
	given, err := value.Decode(body, value.Limits{Bytes: maxResultBytes, Depth: maxResultDepth})
	raw, is := given.(map[string]any)
	if err != nil || !is {
		return nil, fault.Wrap(fault.Malformed, `send {"success":true,"result":…} or {"success":false,"error":"…"}`, err)
	}
	raw["request_id"] = httpserver.Param(r, "request")
	delete(raw, "tool_name")
	return shownEnvelope(a.ToolRequests.ToolRequests("", caller(r)).Submit(r.Context(), raw, nil, nil))
}

func (a *API) cancelToolRequest(_ http.ResponseWriter, r *http.Request) (any, error) {
	return shownEnvelope(a.ToolRequests.ToolCancels("", caller(r)).Cancel(r.Context(), httpserver.Param(r, "request"), nil, nil))
}

func shownEnvelope(answer *request.Envelope, err error) (any, error) {
	if err != nil {
		return nil, request.AsFault(err)
	}
	return answer, nil
}
