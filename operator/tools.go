package operator

import (
	"context"

	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/operator/lookup"
)

// Tools are calls of tools that programs outside execute. What ends a call lets its message go on by itself; by is who does
// it, for the timeline.
type Tools struct {
	store *store.Store
	turns *pipeline.Service

	index *lookup.Index
}

// Requests lists calls, oldest first; those that wait unless filter.All.
func (t Tools) Requests(ctx context.Context, filter exchange.ToolRequestFilter) ([]exchange.ToolRequest, error) {
	found, err := t.store.ToolRequests(ctx, filter)
	return listed(found), err
}

// Request returns one call; fault.NotFound when there is none.
func (t Tools) Request(ctx context.Context, id string) (exchange.ToolRequest, error) {
	id, err := t.index.ToolRequest(ctx, id)
	if err != nil {
		return exchange.ToolRequest{}, err
	}
	return t.store.ToolRequest(ctx, id)
}

// MaxToolResult bounds what an operator hands in, in bytes.
const MaxToolResult = 1 << 20

const maxToolResultDepth = 32

// Submit hands in a result in the place of the program: {"success", "result" or "error", "metadata"}. A call that has a
// result already returns that one, with Duplicate. fault.NotFound, fault.Malformed, or fault.Conflict when the call ended
// without a result.
func (t Tools) Submit(ctx context.Context, id, by string, result []byte) (*request.Envelope, error) {
	decoded, err := value.Decode(result, value.Limits{Bytes: MaxToolResult, Depth: maxToolResultDepth})
	raw, is := decoded.(map[string]any)
	if err != nil || !is {
		return nil, fault.Wrap(fault.Malformed, `send {"success":true,"result":…} or {"success":false,"error":"…"}, JSON of at most 1 MiB and 32 levels`, err)
	}
	if id, err = t.index.ToolRequest(ctx, id); err != nil {
		return nil, err
	}
	raw["request_id"] = id
	request.FromOutside(raw)
	return ended(t.turns.ToolRequests("", by).Submit(ctx, raw, nil, nil))
}

// Cancel takes a call back: its message goes on with a failed result. Errors are those of Submit.
func (t Tools) Cancel(ctx context.Context, id, by string) (*request.Envelope, error) {
	id, err := t.index.ToolRequest(ctx, id)
	if err != nil {
		return nil, err
	}
	return ended(t.turns.ToolCancels("", by).Cancel(ctx, id, nil, nil))
}

func ended(answer *request.Envelope, err error) (*request.Envelope, error) {
	if err != nil {
		return nil, request.AsFault(err)
	}
	return answer, nil
}
