package contract

import (
	"context"
	"errors"
	"math"

	"inbox/agents/runtime/value"
	"inbox/internal/fault"
)

// Handler answers one turn of a program that serves this contract with Go code of its own, without the engine. Its output is an object with
// reply and, as far as the handler knows them, session_id and completed. A handler of a streamed request calls emit while its answer grows;
// a delta is {type: content, text}, {type: tool_call, tool_call_id, tool_name, index} or {type: tool_argument, tool_call_id, text, index}.
// emit is nil when the answer is sent whole. It returns false once no one reads any more; the handler may go on without.
type Handler func(ctx context.Context, input Input, emit func(delta map[string]any) bool) (output any, err error)

// Answer calls the handler of a checked request and passes every frame to send, in order: a Notification for each delta of a streamed request,
// then one Frame with a result or an error. A run without an id gets one, and the output has that of the run, whatever the handler says.
// When send returns false, no more frames are sent (agent runtime contract, sections 6.1 and 6.5).
func Answer(ctx context.Context, request Request, handler Handler, send func(frame any) bool) {
	request.Input = request.Input.Named()
	reading := true
	var emit func(map[string]any) bool
	if request.Stream {
		emit = func(delta map[string]any) bool {
			reading = reading && send(DeltaFrame(request.Input.RunID, ReadDelta(delta)))
			return reading
		}
	}

	output, err := handler(ctx, request.Input, emit)
	var task Task
	if err == nil {
		var read Output
		read, err = ReadOutput(output)
		read.RunID = request.Input.RunID
		task = TaskOf(read)
	}

	switch {
	case !reading:
	case err != nil:
		send(ErrorFrame(request.ID, InternalError, publicText(err)))
	default:
		send(ResultFrame(request.ID, task))
	}
}

// Named returns the input with a run id: the one that it has, or a new one.
func (i Input) Named() Input {
	if i.RunID = value.Trim(i.RunID); i.RunID == "" {
		i.RunID = NewRunID()
	}
	return i
}

// ReadDelta reads a delta in every form that a handler may emit: members may be missing or of any scalar type, content is the text of a delta
// that has no text, and a delta of an unknown type is content.
func ReadDelta(given map[string]any) Delta {
	delta := Delta{Kind: DeltaKind(value.Scalar(given["type"])), Text: value.Scalar(given["text"])}
	switch delta.Kind {
	case DeltaCall, DeltaArgument:
		delta.ToolCallID, delta.Index = value.Scalar(given["tool_call_id"]), int(min(value.LeadingInteger(given["index"]), math.MaxInt32))
		if delta.Kind == DeltaCall {
			delta.ToolName = value.Scalar(given["tool_name"])
		}
	default:
		delta.Kind = DeltaContent
		if given["text"] == nil {
			delta.Text = value.Scalar(given["content"])
		}
	}
	return delta
}

// ReadOutput reads the output of a handler, whose members may be missing or of any scalar type. It is completed unless it says otherwise. It
// fails with CodeInvalidResult for an output that is not an object.
func ReadOutput(given any) (Output, error) {
	output, is := value.Object(given)
	if !is {
		return Output{}, refuse(CodeInvalidResult, "agents/chat handler returned an unexpected result type. "+
			"Handlers must return an array matching the canonical output shape or a WP_Error.") // the words of the reference runtime, which clients read
	}

	completed, said := output["completed"]
	return Output{
		RunID: value.Scalar(output["run_id"]), SessionID: value.Scalar(output["session_id"]), Reply: value.Scalar(output["reply"]),
		Completed: !said || value.Truthy(completed),
	}, nil
}

// publicText is what a client may read of a handler's error: the text of one with a code, the public text of a fault, or a plain sentence.
func publicText(err error) string {
	if coded, is := errors.AsType[interface {
		error
		ErrorCode() string
	}](err); is {
		return coded.Error()
	}
	if carried, is := errors.AsType[*fault.Fault](err); is && carried.Public != "" {
		return carried.Public
	}
	return "The agent could not answer."
}
