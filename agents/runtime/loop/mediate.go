package loop

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
)

// toolCall is one call of a batch on its way through section 3.3.
type toolCall struct {
	name        string // as the model wrote it
	id          string
	raw         map[string]any
	parameters  map[string]any
	prepared    tool.Prepared
	failure     *tool.Failure
	exposure    map[string]any
	toolContext map[string]any
	before      []envelope.Envelope // the transcript without the call
	decision    tool.Decision
}

// mediate executes the tool calls of a turn one by one (agent runtime contract, section 3.3).
func (r *run) mediate(ctx context.Context, result map[string]any) (err error) {
	if result["messages"] != nil && (isEnvelopes(result["messages"]) || value.Container(result["messages"])) {
		if r.messages, err = envelopes(result["messages"]); err != nil {
			return err
		}
	}

	if content := value.Text(result["content"]); content != "" {
		r.append(envelope.AssistantText(content, nil))
	}

	calls := entries(result["tool_calls"])
	batch := &batch{run: r, earlier: len(r.toolResults)}
	r.spins = r.spins[:0]

	for _, row := range calls {
		if stop, err := batch.mediate(ctx, row); err != nil {
			return err
		} else if stop {
			break
		}
	}

	added, err := r.addContinuation(result["continuation_messages"])
	if err != nil {
		return err
	}

	r.complete = batch.complete
	if len(calls) == 0 {
		r.complete = added == 0
	}

	return nil
}

func isEnvelopes(value any) bool {
	_, is := value.([]envelope.Envelope)
	return is
}

func (r *run) addContinuation(given any) (added int, err error) {
	if given == nil || (!isEnvelopes(given) && !value.Container(given)) {
		return 0, nil
	}

	messages, err := envelopes(given)
	if err != nil {
		return 0, err
	}

	for _, message := range messages {
		r.append(message)
		metadata := map[string]any{"turn": r.turn, "role": message.Role}
		r.record("continuation_message_added", metadata)
		r.emit("continuation_message_added", metadata)
	}

	return len(messages), nil
}

// batch is the tool calls of one turn.
type batch struct {
	*run
	earlier      int // execution results before this turn
	seen         int // calls of the batch so far
	complete     bool
	stopRecorded bool
}

// mediate takes one call through its steps. It reports whether the batch stops behind it.
func (b *batch) mediate(ctx context.Context, row entry) (stop bool, err error) {
	call, is := b.read(row)
	if !is {
		return false, nil
	}
	if over(ctx) {
		return true, nil // a call without its result would break the transcript
	}

	// 1, 2: prepare and announce.
	b.seen++

	if b.options.SpinDetector != nil {
		b.spins = append(b.spins, NewSpinSignature(call.name, call.parameters))
	}

	b.prepare(call)
	b.announce(call)

	// 3: decide and execute.
	call.decision = b.decide(ctx, call)
	result := b.execute(ctx, call)

	// 4, 5: a call that waits for someone stops the batch.
	if waits, err := b.awaitTool(ctx, call, result); waits || err != nil {
		return true, err
	}

	result, waits := b.awaitApproval(call, result)
	if waits {
		return true, nil
	}

	// 6 to 9: truncate, report, keep.
	if result, err = b.truncate(call, result); err != nil {
		return true, err
	}

	b.report(ctx, call, result)

	// 10: repeated failure.
	if err := b.nudge(call, result); err != nil {
		return true, err
	}

	// 11, 12, 13: budgets, mediator, completion policy.
	for _, name := range []string{BudgetToolCalls, BudgetToolCalls + "_" + call.name} {
		if budget, over := b.budgets.count(name); over {
			b.exceed(budget)
			b.complete = true
			return true, nil
		}
	}

	if call.decision.Complete {
		b.complete = true
		return true, nil
	}

	return false, b.consult(ctx, call, result)
}

// read takes a call out of what the model wrote; what has no name is no call.
func (b *batch) read(row entry) (*toolCall, bool) {
	raw, is := value.Object(row.value)
	name, named := first(raw["name"], raw["tool_name"]).(string)
	if !is || !named || name == "" {
		return nil, false
	}

	sequence := row.index + 1
	if row.index < 0 {
		sequence = b.seen + 1
	}

	id, given := value.NonBlank(first(raw["id"], raw["tool_call_id"]))
	if !given {
		id = fmt.Sprintf("tool-call-%d-%d", b.turn, sequence)
	}

	return &toolCall{name: name, id: id, raw: raw, parameters: value.Assoc(raw["parameters"])}, true
}

func (b *batch) prepare(call *toolCall) {
	call.prepared, call.failure = tool.Prepare(
		tool.ModelCall{Name: call.name, Parameters: call.parameters, ID: call.id}, b.tools, b.turnContext)
	call.exposure = call.prepared.Exposure()
	call.toolContext = call.prepared.Call.Context
	if call.toolContext == nil {
		call.toolContext = maps.Clone(b.turnContext)
		call.toolContext["tool_call_id"] = call.id
	}
}

// facts are the members that all records of a call have.
func (b *batch) facts(call *toolCall, more map[string]any) map[string]any {
	facts := make(map[string]any, 3+len(more))
	facts["turn"], facts["tool_name"], facts["tool_call_id"] = b.turn, call.name, call.id
	maps.Copy(facts, more)
	return facts
}

// announce tells about a call before anything happens, with the parameters that may be shown.
func (b *batch) announce(call *toolCall) {
	b.emit("tool_call", b.facts(call, call.exposure))
	metadata := map[string]any{"status": "called"}
	maps.Copy(metadata, call.exposure)
	b.addToolEvent("tool_call", call, metadata)
	call.before = b.messages
	b.append(envelope.NewToolCall("", call.name, value.Assoc(call.exposure["parameters"]), int64(b.turn), map[string]any{
		"tool_call_id": call.id, "parameters_sha256": call.prepared.ParametersSHA256, "parameters_redacted": true,
	}))
}

func (b *batch) addToolEvent(kind string, call *toolCall, metadata map[string]any) {
	b.toolEvents = append(b.toolEvents, map[string]any{
		"type": kind, "tool_name": call.name, "tool_call_id": call.id, "turn_count": b.turn, "metadata": metadata,
		"status": metadata["status"],
	})
}

// decide asks the rules first, then the mediator, whose failures mean proceed (agent runtime contract, section 4.6).
func (b *batch) decide(ctx context.Context, call *toolCall) tool.Decision {
	var given any
	if refusal := b.gate.checkCall(call.name, call.before); refusal != nil {
		given = map[string]any{
			"action": tool.ActionReject, "error": refusal.reason,
			"metadata": map[string]any{"error_type": "tool_call_gate_rejected", "tool_call_gate": refusal.context},
		}
	} else if b.options.Mediator != nil {
		if err := guard("mediator", func() (err error) {
			given, err = b.options.Mediator.Decide(ctx, b.proposal(call))
			return err
		}); err != nil {
			given = nil
		}
	}

	decision := tool.NormalizeDecision(given, call.prepared, call.id, call.parameters, b.turnContext)
	if decision.Action == tool.ActionPending {
		if _, err := request.Normalize(decision.Request); err != nil {
			return tool.Decision{Action: tool.ActionProceed}
		}
	}

	return decision
}

func (b *batch) proposal(call *toolCall) Proposal {
	proposal := Proposal{
		Messages: slices.Clip(b.messages), RawToolCall: call.raw,
		ToolDeclaration: call.prepared.Declaration, ToolName: call.name, Parameters: call.parameters, ToolCallID: call.id,
		TurnContext: b.turnContext, Turn: b.turn,
		PriorToolResults:     slices.Clip(b.toolResults),
		PriorMediatedResults: slices.Clip(b.toolResults[b.earlier:]),
	}

	if call.failure == nil {
		proposal.PreparedToolCall = call.prepared.Call.Object()
	}
	return proposal
}

func (b *batch) execute(ctx context.Context, call *toolCall) map[string]any {
	switch {
	case call.decision.Action != tool.ActionProceed:
		return call.decision.Result
	case call.failure != nil:
		return call.failure.Result
	}
	return tool.Execute(ctx, call.prepared, b.options.Executors)
}
