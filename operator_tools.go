package inbox

import (
	"context"

	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
)

// ToolRequests lists calls of tools that programs outside execute, oldest first; those that wait unless filter.All.
func (o *Operator) ToolRequests(ctx context.Context, filter exchange.ToolRequestFilter) ([]exchange.ToolRequest, error) {
	found, err := o.store.ToolRequests(ctx, filter)
	return listed(found), err
}

// ToolRequest gives one of them; fault.NotFound when there is none.
func (o *Operator) ToolRequest(ctx context.Context, id string) (exchange.ToolRequest, error) {
	return o.store.ToolRequest(ctx, id)
}

// maxToolResult bounds what an operator hands in, in bytes.
const maxToolResult = 1 << 20

// SubmitToolResult hands in a result in the place of the program: {"success", "result" or "error", "metadata"}. The
// message goes on by itself. A request that has a result already gives that one, with Duplicate. fault.NotFound,
// fault.Malformed, or fault.Conflict when the request ended without a result.
func (o *Operator) SubmitToolResult(ctx context.Context, id string, result []byte) (*request.Envelope, error) {
	given, err := value.Decode(result, value.Limits{Bytes: maxToolResult, Depth: 32})
	if err != nil {
		return nil, fault.Wrap(fault.Malformed, "the result is no JSON of at most 1 MiB and 32 levels", err)
	}
	raw, is := value.Object(given)
	if !is {
		return nil, fault.New(fault.Malformed, `the result must be an object: {"success":true,"result":…} or {"success":false,"error":"…"}`)
	}
	raw["request_id"] = id
	delete(raw, "tool_name")
	answer, err := o.turns().ToolRequests("", byCommand).Submit(ctx, raw, nil, nil)
	return answer, request.AsFault(err)
}

// CancelToolRequest takes a call back: the message goes on with a failed result. Errors are those of SubmitToolResult.
func (o *Operator) CancelToolRequest(ctx context.Context, id string) (*request.Envelope, error) {
	answer, err := o.turns().ToolCancels("", byCommand).Cancel(ctx, id, nil, nil)
	return answer, request.AsFault(err)
}
