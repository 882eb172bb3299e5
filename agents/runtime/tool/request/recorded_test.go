package request_test

import (
	"context"
	"fmt"
	"testing"

	"inbox/agents/runtime/envelope/fixturetest"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/tool/request/requesttest"
	"inbox/agents/runtime/value"
)

func TestRecordedCases(t *testing.T) {
	fixturetest.Run(t, "runtime-tool-lifecycle", func(c fixturetest.Case) (any, error) {
		play := recording{lifecycle: request.Lifecycle{Store: new(requesttest.Memory)}}
		if c.Op != "sequence" {
			return play.value(context.Background(), c.Op, c.Object())
		}
		steps, _ := value.List(c.Object()["ops"])
		outcomes := []any{}
		for _, step := range steps {
			outcomes = append(outcomes, play.step(value.Assoc(step)))
		}
		return outcomes, nil
	})
}

// recording plays the operations of one case.
type recording struct {
	lifecycle request.Lifecycle
	calls     []any // of the continuation, in the current step
}

func (r *recording) step(step map[string]any) map[string]any {
	r.calls = nil
	outcome := fixturetest.Outcome(r.value(context.Background(), value.Text(step["op"]), step))
	if resumes(step) {
		if r.calls == nil {
			r.calls = []any{}
		}
		outcome["continuation_calls"] = r.calls
	}
	return outcome
}

func (r *recording) value(ctx context.Context, operation string, step map[string]any) (any, error) {
	requestID := value.Text(step["request_id"])
	switch operation {
	case "create":
		return r.lifecycle.Create(ctx, value.Assoc(step["request"]), nil)
	case "submit":
		return r.lifecycle.Submit(ctx, value.Assoc(step["result"]), r.continuation(step), nil)
	case "timeout":
		return r.lifecycle.Timeout(ctx, requestID, r.continuation(step), nil)
	case "cancel":
		return r.lifecycle.Cancel(ctx, requestID, r.continuation(step), nil)
	case "pending":
		query, err := request.ReadQuery(value.Assoc(step["query"]))
		if err != nil {
			return nil, err
		}
		return r.lifecycle.Pending(ctx, query)
	case "get":
		stored, err := r.lifecycle.Store.Get(ctx, requestID)
		if stored == nil {
			return nil, err
		}
		return stored, err
	case "normalize_result":
		return request.NormalizeResult(value.Assoc(step["result"]))
	}
	return nil, fmt.Errorf("unknown operation %q", operation)
}

func (r *recording) continuation(step map[string]any) request.Continuation {
	if !resumes(step) {
		return nil
	}
	return func(_ context.Context, request, result, _ map[string]any) (map[string]any, error) {
		r.calls = append(r.calls, map[string]any{"request_id": request["request_id"], "success": result["success"]})
		return map[string]any{"resumed": true}, nil
	}
}

func resumes(step map[string]any) bool { return value.Equal(step["resume"], true) }
