package tool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
)

// Executor runs tools. The answer is {success, result | error, metadata?, runtime?, status?, error_type?}, or any other
// object, which is taken as the result of a success. The model reads the text of an error: of a fault the public one, of
// any other error all of it.
type Executor interface {
	Execute(ctx context.Context, call Call) (map[string]any, error)
}

// ExecutorFunc is a function as Executor.
type ExecutorFunc func(ctx context.Context, call Call) (map[string]any, error)

// Execute calls the function.
func (f ExecutorFunc) Execute(ctx context.Context, call Call) (map[string]any, error) {
	return f(ctx, call)
}

// Executors says who runs the tools. One whose declaration names an executor of its own, in runtime.executor_target, is run by none
// (agent runtime contract, section 4.5).
type Executors struct {
	Default Executor
	Repeats Repeats // nil: every call runs, whatever its duplicate_policy
}

func (e Executors) of(declaration *Declaration) Executor {
	if _, named := value.NonBlank(declaration.Runtime()["executor_target"]); named {
		return nil
	}
	return e.Default
}

// Execute runs a prepared call and normalizes what comes back; every failure is a result, too. A tool that may run only
// once with equal parameters is answered from Repeats the second time.
func Execute(ctx context.Context, prepared Prepared, executors Executors) map[string]any {
	call := prepared.Call
	executor := executors.of(call.Declaration)
	if executor == nil {
		return ErrorResult(call.Name, "Tool execution target is unavailable.",
			map[string]any{"error_type": "executor_target_unavailable"}, nil)
	}
	if executors.Repeats != nil && !Repeatable(call.Declaration) {
		return executeOnce(ctx, call, executor, executors.Repeats)
	}
	return execute(ctx, call, executor)
}

func execute(ctx context.Context, call Call, executor Executor) map[string]any {
	answer, err := guarded(ctx, call, executor)
	if err != nil {
		return ErrorResult(call.Name, publicText(err),
			map[string]any{"error_type": "executor_exception"}, call.Declaration.Runtime())
	}
	return normalizeAnswer(answer, call)
}

func normalizeAnswer(answer map[string]any, call Call) map[string]any {
	runtime := maps.Clone(call.Declaration.Runtime())
	maps.Copy(runtime, RuntimeMetadata(answer["runtime"]))
	if _, says := answer["success"]; !says {
		answer = map[string]any{"success": true, "result": answerBody(answer)}
	} else {
		answer = maps.Clone(answer)
	}
	answer["runtime"] = runtime
	return NormalizeResult(answer, call.Name)
}

func answerBody(answer map[string]any) any {
	if answer == nil {
		return []any{}
	}
	return answer
}

// guarded keeps the panic of one tool from ending the server. The stack goes to the log, not to the model.
func guarded(ctx context.Context, call Call, executor Executor) (answer map[string]any, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			slog.ErrorContext(ctx, "tool panicked", "tool", call.Name, "reason", fmt.Sprint(reason), "stack", string(debug.Stack()))
			answer, err = nil, errors.New(failedText)
		}
	}()
	return executor.Execute(ctx, call)
}

func publicText(err error) string {
	if known, ok := errors.AsType[*fault.Fault](err); ok {
		return known.Public
	}
	return err.Error()
}

// CitationsKey is the member of metadata that holds citations.
const CitationsKey = "citations"

const failedText = "Tool execution failed."

// ErrorResult is the normalized result of a failure.
func ErrorResult(name, text string, metadata, runtime map[string]any) map[string]any {
	return NormalizeResult(map[string]any{
		"success": false, "tool_name": name, "error": text, "metadata": metadata, "runtime": runtime,
	}, name)
}

// NormalizeResult brings what a tool or a mediator returned into its one form: {success, tool_name, metadata, runtime?,
// status?, runtime_tool_request?, result | error}. An object without tool_name gets the given one (agent runtime
// contract, section 4.5).
func NormalizeResult(result map[string]any, name string) map[string]any {
	if declared := value.Text(result["tool_name"]); declared != "" {
		name = declared
	}

	success := value.Truthy(result["success"])
	normalized := map[string]any{"success": success, "tool_name": name, "metadata": resultMetadata(result)}
	if runtime := RuntimeMetadata(result["runtime"]); len(runtime) > 0 {
		normalized["runtime"] = runtime
	}
	if status, ok := value.NonBlank(result["status"]); ok {
		normalized["status"] = status
	}
	if request := result["runtime_tool_request"]; value.PlainContainer(request) {
		normalized["runtime_tool_request"] = value.Clone(value.Plain(request))
	}

	if success {
		normalized["result"] = resultBody(result["result"])
		return normalized
	}

	normalized["error"] = failedText
	if text := value.Text(result["error"]); text != "" {
		normalized["error"] = text
	}

	return normalized
}

func resultBody(body any) any {
	if body == nil {
		return []any{}
	}
	return value.Clone(value.Plain(body))
}

// resultMetadata normalizes citations and takes in an error_type that stands beside the metadata.
func resultMetadata(result map[string]any) map[string]any {
	metadata := maps.Clone(value.Members(result["metadata"]))
	if citations, has := metadata[CitationsKey]; has {
		metadata[CitationsKey] = envelope.Citations(citations)
	}
	if kind, ok := value.NonBlank(result["error_type"]); ok && metadata["error_type"] == nil {
		metadata["error_type"] = kind
	}
	return metadata
}

// oncePolicies are the words of runtime.duplicate_policy after which a tool does not run twice with equal parameters in
// one run. Every other word, and none at all, lets it run again.
var oncePolicies = map[string]bool{"once": true, "non_repeatable": true, "at_most_once": true}

// Repeatable reports whether a tool may run again with equal parameters in one run. The reference leaves this to the
// caller; here runtime.duplicate_policy "once", "non_repeatable" or "at_most_once" is enforced.
func Repeatable(declaration *Declaration) bool {
	return !oncePolicies[value.Text(declaration.Runtime()["duplicate_policy"])]
}

// Repeats remembers the calls of one run. A store that survives the process makes at_most_once true over a crash.
type Repeats interface {
	// Claim takes a key for the caller. A key that was taken before returns claimed = false and its result, or nil if the
	// first call never ended. The call may run only if claimed is true and err is nil.
	Claim(ctx context.Context, key string) (earlier map[string]any, claimed bool, err error)
	// Keep stores the result for a claimed key.
	Keep(ctx context.Context, key string, result map[string]any) error
}

// RepeatKey is what equal calls have in common: the canonical name and the real parameters, which the hash hides.
func RepeatKey(call Call) string {
	return Hash(map[string]any{"tool_name": call.Name, "parameters": call.Parameters})
}

// IdempotencyKey is what a tool can use to recognise a call that it saw before: run (run_id of the context), name and
// real parameters.
func (c Call) IdempotencyKey() string {
	return Hash(map[string]any{
		"run_id": value.Text(c.Context["run_id"]), "tool_name": c.Name, "parameters": c.Parameters,
	})
}

func executeOnce(ctx context.Context, call Call, executor Executor, repeats Repeats) map[string]any {
	key := RepeatKey(call)
	earlier, claimed, err := repeats.Claim(ctx, key)
	switch {
	case err != nil:
		return notRun(call, publicText(err), "repeat_check_failed")
	case claimed:
		result := execute(ctx, call, executor)
		if err := repeats.Keep(context.WithoutCancel(ctx), key, result); err != nil {
			result["metadata"] = with(result["metadata"], "repeat_unrecorded", true)
		}
		return result
	case earlier == nil:
		return notRun(call, "The tool was already called with these parameters and its result is unknown.", "earlier_call_unfinished")
	default:
		answered := value.Clone(earlier)
		answered["metadata"] = with(answered["metadata"], "repeated", true)
		return answered
	}
}

func notRun(call Call, text, kind string) map[string]any {
	return ErrorResult(call.Name, text, map[string]any{"error_type": kind}, call.Declaration.Runtime())
}

func with(metadata any, name string, given any) map[string]any {
	copied := maps.Clone(value.Members(metadata))
	copied[name] = given
	return copied
}
