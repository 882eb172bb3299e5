package tool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"

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

// Executors says who runs a tool: the one that runtime.executor_target names, else Default (agent runtime contract,
// section 4.5).
type Executors struct {
	Default Executor
	Named   map[string]Executor
	Repeats Repeats // nil: every call runs, whatever its duplicate_policy
}

func (e Executors) of(declaration *Declaration) Executor {
	if target, named := value.NonBlank(declaration.Runtime()["executor_target"]); named {
		return e.Named[target]
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
