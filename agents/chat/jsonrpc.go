package chat

import (
	"context"
	"regexp"
	"strings"

	"inbox/agents/runtime/envelope"
)

// Methods of the JSON-RPC chat endpoint; the tasks methods are older names of the other two (agent runtime contract,
// section 6.5).
const (
	MethodSend           = "message/send"
	MethodStream         = "message/stream"
	MethodTasksSend      = "tasks/send"
	MethodTasksSubscribe = "tasks/sendSubscribe"
	methodDelta          = "message/delta"
	protocol             = "2.0"
)

// Codes of JSON-RPC 2.0, section 5.1.
const (
	ParseError     = -32700
	InvalidRequest = -32600
	MethodNotFound = -32601
	InvalidParams  = -32602
	InternalError  = -32603
)

// Request is a request that passed every check before the run.
type Request struct {
	ID     any // string or integer, nil for everything else
	Stream bool
	Input  Input
}

// RPCError refuses a request with one of the codes of JSON-RPC.
type RPCError struct {
	ID     any
	Number int
	Text   string
}

// Error gives the text.
func (e *RPCError) Error() string { return e.Text }

// Frame gives the error as a response.
func (e *RPCError) Frame() map[string]any { return ErrorFrame(e.ID, e.Number, e.Text) }

// ReadRequest reads the JSON text of a request of at most MaxInputBytes for the agent that the path names.
func ReadRequest(agent string, data []byte) (Request, *RPCError) {
	body, err := envelope.Decode(data, envelope.Limits{Bytes: MaxInputBytes, Depth: maxDepth})
	switch {
	case envelope.TooLarge(err):
		return Request{}, &RPCError{nil, InvalidRequest, "The request is too large or too deep."}
	case err != nil:
		return Request{}, &RPCError{nil, ParseError, "Request must be JSON."}
	}
	return CheckRequest(agent, envelope.Assoc(body))
}

// CheckRequest checks in the order of the contract: protocol, params, method. So an unknown method with bad params is
// refused for its params (agent runtime contract, section 6.5).
func CheckRequest(agent string, body map[string]any) (Request, *RPCError) {
	request := Request{ID: requestID(body["id"])}
	if body["jsonrpc"] != protocol {
		return Request{}, &RPCError{request.ID, InvalidRequest, "Request must be JSON-RPC 2.0."}
	}
	input, err := inputOf(Slug(agent), body)
	if err != nil {
		return Request{}, &RPCError{request.ID, InvalidParams, err.Error()}
	}
	request.Input = input
	switch method := envelope.Text(body["method"]); method {
	case MethodSend, MethodTasksSend:
	case MethodStream, MethodTasksSubscribe:
		request.Stream = true
	default:
		return Request{}, &RPCError{request.ID, MethodNotFound, `Unknown JSON-RPC method "` + method + `".`}
	}
	return request, nil
}

func requestID(id any) any {
	if _, is := id.(string); is {
		return id
	}
	if _, is := envelope.Integer(id); is {
		return id
	}
	return nil
}

var (
	unfit  = regexp.MustCompile(`[^a-z0-9_-]+`)
	dashes = regexp.MustCompile(`-{2,}`)
)

// Slug is the form of an agent's name in a path: small letters, digits, "_" and single "-", none at the ends.
func Slug(agent string) string {
	small := unfit.ReplaceAllString(envelope.Lower(envelope.Trim(agent)), "-")
	return strings.Trim(dashes.ReplaceAllString(small, "-"), "-")
}

// Answer runs a checked request and gives every frame to send, in order: deltas while the answer grows when the request
// streams, then exactly one with a result or an error. When send gives false nobody reads any more: the run goes on and
// no frame is sent (agent runtime contract, section 6.5).
func (d Dispatcher) Answer(ctx context.Context, request Request, send func(frame map[string]any) bool) {
	var emit Emit
	reading := true
	if request.Stream {
		if envelope.Trim(request.Input.RunID) == "" {
			request.Input.RunID = NewRunID()
		}
		task := request.Input.RunID
		emit = func(delta Delta) bool {
			reading = reading && send(DeltaFrame(task, delta))
			return reading
		}
	}
	output, err := d.Dispatch(ctx, request.Input, emit)
	switch {
	case !reading:
	case err != nil:
		send(ErrorFrame(request.ID, InternalError, public(err)))
	default:
		send(ResultFrame(request.ID, TaskOf(output)))
	}
}
