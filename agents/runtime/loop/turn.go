package loop

import (
	"context"
	"maps"
	"slices"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
)

// append adds messages to the transcript.
func (r *run) append(messages ...envelope.Envelope) { r.messages = append(r.messages, messages...) }

// emit tells the observer, record writes into the result's events: the two surfaces of section 3.4.
func (r *run) emit(name string, payload map[string]any) {
	if r.options.Observer != nil {
		quietly(func() { r.options.Observer.Observe(name, payload) })
	}
}

func (r *run) record(name string, metadata map[string]any) {
	r.events = append(r.events, event(name, metadata))
}

func (r *run) exceed(budget *Budget) {
	r.exceeded = budget.name
	r.emit("budget_exceeded", budget.payload())
}

// compact shortens the transcript. Its events go into the result alone.
func (r *run) compact(ctx context.Context) {
	if r.options.CompactionPolicy == nil || r.options.Summarizer == nil {
		return
	}

	compaction := Compact(ctx, r.messages, r.options.CompactionPolicy, r.options.Summarizer)
	r.messages = compaction.Messages
	r.events = append(r.events, compaction.Events...)
}

func (r *run) callRunner(ctx context.Context) (given any, err error) {
	err = guard("turn runner", func() (err error) {
		given, err = r.runner.Turn(ctx, slices.Clip(r.messages), r.turnContext)
		return err
	})
	return given, err
}

func (r *run) runnerFailed(problem error) {
	message := publicText(problem)
	if message == "" {
		message = "Provider turn failed."
	}
	r.emit("failed", map[string]any{"turn": r.turn, "error": message})
	r.failed = r.snapshot(map[string]any{"failure": map[string]any{
		"type": errorType(problem), "message": message, "code": errorCode(problem), "turn_count": r.turn,
	}})
}

// runnerGaveNonsense persists what there is and returns the error for a result that is not an object.
func (r *run) runnerGaveNonsense(ctx context.Context) error {
	problem := invalid(codeLoop, "", "turn runner must return an array")
	r.emit("failed", map[string]any{"turn": r.turn, "error": problem.Error()})
	r.persist(ctx, map[string]any{
		"messages": envelope.Values(r.messages), "tool_execution_results": filled(r.toolResults),
		"tool_events": filled(r.toolEvents), "tool_audit_events": filled(r.auditEvents), "events": filled(r.events),
	})
	return problem
}

func (r *run) providerFailed(raw map[string]any) {
	failure := maps.Clone(raw)
	if value.Text(failure["type"]) == "" {
		failure["type"] = "provider_turn_failure"
	}
	if value.Text(failure["message"]) == "" {
		failure["message"] = "Provider turn failed."
	}
	if _, is := value.Integer(failure["turn_count"]); !is {
		failure["turn_count"] = r.turn
	}

	r.emit("failed", map[string]any{"turn": r.turn, "error": failure["message"]})
	r.failed = r.snapshot(map[string]any{"failure": failure, "provider_diagnostics": filled(r.diagnostics)})
}

// account adds what a turn says about itself: usage is summed, the last request_metadata wins, metadata is merged.
func (r *run) account(result map[string]any) {
	if usage, is := value.Object(result["usage"]); is {
		addUsage(r.usage, usage)
	}
	if request, is := value.Object(result["request_metadata"]); is {
		r.requestMeta = request
	}
	if metadata, is := value.Object(result["metadata"]); is {
		maps.Copy(r.metadata, metadata)
	}

	output := value.Assoc(result["structured_output"])
	if parsed, has := output["parsed"]; has {
		r.output, r.outputStatus = &parsed, publicDiagnostics(value.Assoc(output["diagnostics"]))
	}
}

// publicDiagnostics keeps the four plain members that say how an output was read.
func publicDiagnostics(diagnostics map[string]any) map[string]any {
	public := map[string]any{}
	for _, name := range []string{"status", "code", "parser", "valid"} {
		_, whole := value.Integer(diagnostics[name])
		_, isText := diagnostics[name].(string)
		_, isBool := diagnostics[name].(bool)
		if whole || isText || isBool {
			public[name] = diagnostics[name]
		}
	}
	return public
}

// adopt takes over a turn whose runner executed its tools by itself: its result must be a whole conversation result.
func (r *run) adopt(ctx context.Context, raw map[string]any) (map[string]any, error) {
	if messages, is := raw["messages"].([]envelope.Envelope); is {
		raw = maps.Clone(raw)
		raw["messages"] = envelope.Values(messages)
	}

	result, err := envelope.NormalizeResult(raw)
	if err != nil {
		return nil, err //nolint:wrapcheck // its errors are the contract's
	}

	events, err := normalizeEvents(result["events"])
	if err != nil {
		return nil, err
	}
	if r.messages, err = envelopes(result["messages"]); err != nil {
		return nil, err
	}

	results, _ := value.List(result["tool_execution_results"])
	toolEvents, _ := value.List(result["tool_events"])
	auditEvents, _ := value.List(result["tool_audit_events"])
	r.toolResults = append(r.toolResults, results...)
	r.toolEvents = append(r.toolEvents, toolEvents...)
	r.auditEvents = append(r.auditEvents, auditEvents...)
	r.events = append(r.events, events...)
	return result, r.judgeAdopted(ctx, results)
}

func normalizeEvents(given any) ([]any, error) {
	if given == nil {
		return nil, nil
	}

	events, is := value.List(given)
	if !is {
		return nil, invalid(codeLoop, "", "events must be an array")
	}

	for _, one := range events {
		if _, is := value.Object(one); !is {
			return nil, invalid(codeLoop, "", "event must be an array")
		}
	}
	return events, nil
}

// judgeAdopted shows the policy each result; the first complete one stops.
func (r *run) judgeAdopted(ctx context.Context, results []any) error {
	for _, one := range results {
		result := value.Assoc(one)
		name := value.Text(result["tool_name"])
		declaration, _ := r.tools.Get(name)
		decision, err := r.judge(ctx, ToolResult{
			ToolName: name, Declaration: declaration, Result: result, Context: r.turnContext, Turn: r.turn,
		})
		if err != nil {
			return err
		}
		if decision.Complete {
			r.complete = true
			return nil
		}
	}
	return nil
}

// judge asks the completion policy, if there is one.
func (r *run) judge(ctx context.Context, result ToolResult) (decision Decision, err error) {
	if r.options.CompletionPolicy == nil {
		return decision, nil
	}
	err = guard("completion policy", func() (err error) {
		decision, err = r.options.CompletionPolicy.RecordToolResult(ctx, result)
		return err
	})
	return decision, err
}

func (r *run) shouldContinue(ctx context.Context, result map[string]any) (goOn bool, err error) {
	switch {
	case r.options.ShouldContinue != nil:
		err = guard("should_continue", func() (err error) {
			goOn, err = r.options.ShouldContinue(ctx, result, r.turnContext)
			return err
		})
		return goOn, err
	case r.options.SingleTurn, !r.mediating:
		return false, nil
	}
	return len(entries(result["tool_calls"])) > 0, nil
}
