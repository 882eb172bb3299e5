package request

import (
	"context"
	"errors"
	"fmt"
	"time"

	"inbox/agents/runtime/value"
)

// EventName says what happened to a request.
type EventName string

// Events of the lifecycle. Each happens at most once in the life of a request (agent runtime contract, section 5). The store of a server
// tells them, in the transaction that changes the request.
const (
	EventCreated   EventName = "request_created"
	EventSubmitted EventName = "result_submitted"
	EventTimedOut  EventName = "request_timed_out"
	EventResumed   EventName = "request_resumed"
)

// Full returns the name under which hosts know the event, such as agents_api_runtime_tool_request_created.
func (n EventName) Full() string { return "agents_api_runtime_tool_" + string(n) }

// Continuation resumes the paused run with the result. It is called once per request, after the change is stored.
type Continuation func(ctx context.Context, request, result, callerContext map[string]any) (map[string]any, error)

// Envelope is the answer to submit, timeout and cancel (agent runtime contract, section 5).
type Envelope struct {
	Status    string         `json:"status"`
	Request   map[string]any `json:"request"`
	Result    map[string]any `json:"result"`
	Duplicate bool           `json:"duplicate"` // the request was terminal before; nothing happened now

	ToolResultMessage   map[string]any `json:"tool_result_message"`   // data of the tool_result message
	ToolExecutionResult map[string]any `json:"tool_execution_result"` // entry of tool_execution_results
	ContinuationResult  map[string]any `json:"continuation_result"`   // nil without continuation and on duplicates

	Cancelled bool `json:"cancelled,omitempty"` // asked for by Cancel
}

// Lifecycle leads requests from pending to terminal. Store is required. It is safe for concurrent use.
type Lifecycle struct{ Store Store }

// Create stores the pending request that raw describes and returns its normalized form. It fails with CodeRequest, or
// with the store's error.
func (l Lifecycle) Create(ctx context.Context, raw, callerContext map[string]any) (map[string]any, error) {
	normalized, err := Normalize(raw)
	if err != nil {
		return nil, err
	}
	if err := l.Store.Create(ctx, normalized); err != nil {
		return nil, fmt.Errorf("create runtime tool request: %w", err)
	}
	return normalized, nil
}

// Submit completes a pending request with the result and calls the continuation, which may be nil. A request that is
// terminal already returns its stored result with Duplicate, and nothing else happens. It fails with CodeResult for an
// unknown request and for a terminal one without result. When only the continuation fails, the envelope is given
// together with its error: the result is kept and the caller resumes the run by itself.
func (l Lifecycle) Submit(ctx context.Context, raw map[string]any, resume Continuation, callerContext map[string]any) (*Envelope, error) {
	requestID := value.Trim(value.Text(raw["request_id"]))
	if requestID == "" {
		return nil, invalid(CodeResult, "request_id must be a non-empty string")
	}

	stored, err := l.get(ctx, requestID, CodeResult)
	if err != nil {
		return nil, err
	}
	if !Pending(stored) {
		return replaySubmit(stored)
	}

	request, err := Normalize(stored)
	if err != nil {
		return nil, err
	}

	result, err := ResultFor(request, raw)
	if err != nil {
		return nil, err
	}

	won, err := l.Store.TransitionPending(ctx, requestID, StatusCompleted, result)
	if err != nil {
		return nil, fmt.Errorf("complete runtime tool request: %w", err)
	}
	if !won {
		if stored, err = l.get(ctx, requestID, CodeResult); err != nil {
			return nil, err
		}
		return replaySubmit(stored)
	}

	answer := newEnvelope(StatusSubmitted, request, request, result)
	return answer, l.resume(ctx, answer, request, resume, callerContext)
}

// Timeout ends a pending request as timed out and calls the continuation, which may be nil, with the failed result. A
// request that is terminal already returns what is known of its end with Duplicate. It fails with CodeTimeout for an
// unknown request; an error of the continuation comes together with the envelope, as in Submit.
func (l Lifecycle) Timeout(ctx context.Context, requestID string, resume Continuation, callerContext map[string]any) (*Envelope, error) {
	requestID = value.Trim(requestID)
	if requestID == "" {
		return nil, invalid(CodeTimeout, "request_id must be a non-empty string")
	}

	stored, err := l.get(ctx, requestID, CodeTimeout)
	if err != nil {
		return nil, err
	}
	if !Pending(stored) {
		return replayTimeout(stored)
	}

	request, err := Normalize(stored)
	if err != nil {
		return nil, err
	}

	result, err := terminalResult(request, textTimedOut, StatusTimeout)
	if err != nil {
		return nil, err
	}

	won, err := l.Store.TransitionPending(ctx, requestID, StatusTimeout, nil)
	if err != nil {
		return nil, fmt.Errorf("time out runtime tool request: %w", err)
	}
	if !won {
		if stored, err = l.get(ctx, requestID, CodeTimeout); err != nil {
			return nil, err
		}
		return replayTimeout(stored)
	}

	answer := newEnvelope(StatusTimeout, withStatus(request, StatusTimeout), request, result)
	return answer, l.resume(ctx, answer, request, resume, callerContext)
}

// Cancel is Timeout, asked for by someone: the envelope says so.
func (l Lifecycle) Cancel(ctx context.Context, requestID string, resume Continuation, callerContext map[string]any) (*Envelope, error) {
	answer, err := l.Timeout(ctx, requestID, resume, callerContext)
	if answer != nil {
		answer.Cancelled = true
	}
	return answer, err
}

// Pending lists pending requests in normalized form.
func (l Lifecycle) Pending(ctx context.Context, query Query) ([]map[string]any, error) {
	stored, err := l.Store.RecentPending(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("list runtime tool requests: %w", err)
	}

	requests := make([]map[string]any, len(stored))
	for index, one := range stored {
		if requests[index], err = Normalize(one); err != nil {
			return nil, err
		}
	}
	return requests, nil
}

func (l Lifecycle) get(ctx context.Context, requestID, code string) (map[string]any, error) {
	stored, err := l.Store.Get(ctx, requestID)
	if err != nil {
		return nil, fmt.Errorf("read runtime tool request: %w", err)
	}
	if stored == nil {
		return nil, invalid(code, ReasonNotFound)
	}
	return stored, nil
}

func (l Lifecycle) resume(ctx context.Context, answer *Envelope, request map[string]any, resume Continuation, callerContext map[string]any) error {
	if resume == nil {
		return nil
	}

	resumed, err := resume(ctx, request, answer.Result, callerContext)
	if err != nil {
		return fmt.Errorf("resume after runtime tool: %w", err)
	}

	answer.ContinuationResult = object(resumed)
	return nil
}

// timeForms are the forms in which timeout_at and the bounds of a list may be written; without zone they are UTC.
var timeForms = []string{time.RFC3339Nano, "2006-01-02T15:04:05", time.DateTime, time.DateOnly}

func parseTime(given string) (time.Time, bool) {
	for _, form := range timeForms {
		if at, err := time.Parse(form, value.Trim(given)); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// TimeoutAt returns the time at which the request ends by itself; false when it names none that can be read, so that it
// waits for as long as the store keeps it.
func TimeoutAt(request map[string]any) (time.Time, bool) {
	return parseTime(value.Text(request["timeout_at"]))
}

// Expire times out every request that is due at now, each with the continuation, which may be nil. It returns the number
// of those that it ended itself. The errors are joined; one failure does not keep the others waiting.
func (l Lifecycle) Expire(ctx context.Context, now time.Time, resume Continuation, callerContext map[string]any) (int, error) {
	due, err := l.Pending(ctx, Query{DueBy: now})
	if err != nil {
		return 0, err
	}

	ended := 0
	var failures []error
	for _, one := range due {
		answer, err := l.Timeout(ctx, value.Text(one["request_id"]), resume, callerContext)
		if err != nil {
			failures = append(failures, err)
		}
		if answer != nil && !answer.Duplicate {
			ended++
		}
	}

	return ended, errors.Join(failures...)
}
