package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"inbox/agents/hook"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/clip"
	"inbox/internal/fault"
)

// Hooks are programs of the operator that decide about a run and listen to it, over HTTP.
type Hooks struct {
	Hook       *hook.Hook // nil = none
	Mediator   bool       // is asked before each call of a tool
	Completion bool       // is asked after each call of a tool, and when the model is done
	Observer   bool       // hears every event of the loop
	Proceed    bool       // a mediator or completion policy without answer has no opinion; else calls are not made, and runs fail
}

// ActionApproval is the answer of a mediator that wants a person to decide, beside those of the agent runtime contract, section 4.6.
const ActionApproval = "require_approval"

// Bounds of what a hook is told and may say.
const (
	hookMessages = 20        // of the conversation
	hookText     = 4 << 10   // bytes of each of them, of its payload and of its metadata
	hookResults  = 256 << 10 // bytes of earlier results
	hookAnswer   = 64 << 10
	hookWords    = 16 << 10 // that a completion policy says to the model
)

// Bounds of a call that a mediator hands to a program outside.
const (
	pendingTime    = time.Hour
	longestPending = 6 * 24 * time.Hour // a run that waits is remembered for a week
)

// What is read when a hook does not answer: by the model about its call, by the sender about the run.
const (
	sayUnchecked = "The call was not made: it could not be checked."
	sayHookDown  = "The agent cannot finish its work right now. Please try again later."
)

// hooked is what one run knows of its hooks.
type hooked struct {
	Hooks

	run       hook.Run
	principal hook.Principal
	outbox    *hook.Outbox // nil = no one observes
	turn      int          // of the model in this attempt
	goesOn    bool         // the completion policy wants another turn
	ended     string       // id of the tool call that ended last
}

// hook fills in what every request says.
func (j *job) hook() {
	hooks := j.agent.options.Hooks
	if hooks.Hook == nil {
		return
	}

	message := &j.turn.Message
	j.hooked = hooked{
		Hooks: hooks,
		run: hook.Run{
			ID: j.turn.ID, Attempt: j.turn.Attempt, Agent: j.turn.Agent, ThreadID: message.ThreadID, MessageID: message.ID,
		},
		principal: hook.Principal{
			Address: message.Sender.Address.String(), Principal: message.Sender.Principal(), Evidence: []hook.Evidence{},
			ReceivedVia: message.ReceivedVia,
		},
	}

	asker := &j.hooked.principal
	for i := range message.Sender.Identities {
		proof := &message.Sender.Identities[i]
		asker.Evidence = append(asker.Evidence, hook.Evidence{
			Subject: proof.Subject, Issuer: proof.Issuer, Method: proof.Method, Assurance: proof.Assurance, OnBehalfOf: proof.OnBehalfOf,
		})
	}
	if message.Surface != nil {
		asker.Channel = message.Surface.Channel
	}
	if chain := message.RecipientCapabilities.AgentChain; chain != nil {
		asker.AgentChain = &hook.Chain{Hop: chain.Hop, MaxHops: chain.MaxHops}
	}

	if hooks.Observer {
		j.hooked.outbox = hooks.Hook.NewOutbox(j.hooked.run, *asker)
	}
}

func (h *hooked) observe(name string, payload map[string]any) {
	if h.outbox == nil {
		return
	}

	told := maps.Clone(payload)
	delete(told, "original_result") // of a result that is too long for a model
	h.outbox.Add(name, told)
}

// resume takes up the events that an earlier run kept and the observer did not take.
func (h *hooked) resume(kept *hook.State) {
	if h.outbox != nil && kept != nil {
		h.outbox.Resume(*kept)
	}
}

// keep writes the events into the note. The function that it returns follows when the note is saved.
func (h *hooked) keep(into *note) (saved func()) {
	if h.outbox == nil {
		return func() {}
	}
	state := h.outbox.Keep()
	into.Events = &state
	return h.outbox.Kept
}

// readEvents reads the outbox of an earlier run.
func (n *note) readEvents(given any) error {
	if given == nil {
		return nil
	}

	encoded, err := value.Encode(given)
	if err == nil {
		n.Events = &hook.State{}
		err = json.Unmarshal(encoded, n.Events)
	}
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	return nil
}

// tell brings the last events of a run to the observer. What it does not take stays in the note: when the same turn runs once more
// they go first. A run that was stopped keeps nothing and waits for no one.
func (j *job) tell(ctx context.Context) {
	outbox := j.hooked.outbox
	if outbox == nil {
		return
	}

	if ctx.Err() == nil && j.note != nil && outbox.Fresh() {
		if j.turn.Memory == nil || j.save(ctx) != nil { // told, although a crash would tell it again
			outbox.Keep()
			outbox.Kept()
		}
	}

	undelivered, err := outbox.Close(ctx)
	if undelivered == 0 {
		return
	}
	step := exchange.HookStep{Hook: hook.KindEvents, Undelivered: undelivered}
	if err != nil {
		step.Error = excerpt(err.Error(), "")
	}
	j.turn.Did(exchange.EventHookFailed, step)
}

// ask puts a question. A failure is on the timeline.
func (j *job) askHook(ctx context.Context, question hook.Question, step exchange.HookStep, check func(map[string]any) error) (map[string]any, error) {
	question.SentAt, question.Run, question.Principal, question.Turn = identity.Now(), j.hooked.run, j.hooked.principal, j.hooked.turn
	answer, err := j.hooked.Hook.Ask(ctx, question)
	if err == nil {
		err = check(answer)
	}
	if err == nil || ctx.Err() != nil {
		return answer, err
	}

	step.Hook, step.Error = question.Hook, excerpt(err.Error(), "")
	if j.hooked.Proceed {
		step.Action = tool.ActionProceed
	}
	j.turn.Did(exchange.EventHookFailed, step)
	return nil, err
}

// mediate asks the operator's mediator about a call that would be executed; nil lets it through. The loop takes a panic for no
// opinion, so none may leave it.
func (j *job) mediate(ctx context.Context, proposal loop.Proposal) (decision map[string]any) {
	if !j.hooked.Mediator {
		return nil
	}
	defer func() {
		if reason := recover(); reason != nil {
			slog.ErrorContext(ctx, "mediator panicked", "turn", j.turn.ID, "reason", fmt.Sprint(reason), "stack", string(debug.Stack()))
			decision = refuse(sayUnchecked, "mediator_unavailable")
		}
	}()

	name := value.Text(proposal.PreparedToolCall["tool_name"])
	step := exchange.HookStep{Tool: shortened(name), CallID: proposal.ToolCallID, Action: tool.ActionReject}
	answer, err := j.askHook(ctx, hook.Question{
		Hook: hook.KindCall, Call: j.proposed(proposal),
		ID: hook.QuestionID(j.turn.ID, hook.KindCall, proposal.ToolCallID+"\n"+value.EncodeText(proposal.PreparedToolCall["parameters"])),
	}, step, checkDecision)
	switch {
	case err != nil && j.hooked.Proceed && ctx.Err() == nil:
		return nil
	case err != nil:
		return refuse(sayUnchecked, "mediator_unavailable")
	}

	step.Hook, step.Action = hook.KindCall, actionOf(answer)
	if step.Action == tool.ActionProceed {
		return nil
	}

	j.turn.Did(exchange.EventHookDecided, step)
	switch step.Action {
	case ActionApproval:
		return j.question(ctx, proposal)
	case tool.ActionPending:
		return j.outside(proposal, answer)
	case tool.ActionReplace:
		answer["result"] = asResult(answer["result"])
	}

	if value.Truthy(answer["complete"]) {
		j.note.Complete = true // the loop ends after this call, and the model has not answered yet
	}
	answer["action"] = step.Action
	return answer
}

func actionOf(answer map[string]any) string {
	return strings.ToLower(strings.TrimSpace(value.Text(answer["action"])))
}

// checkDecision refuses what could be misread: a program that means something else than it says must not let a call through.
func checkDecision(answer map[string]any) error {
	result := value.Assoc(answer["result"])
	body := value.Assoc(result["result"])
	switch action := actionOf(answer); action {
	case tool.ActionProceed, ActionApproval, tool.ActionPending:
		return nil
	case tool.ActionReject, tool.ActionReplace:
		switch {
		case action == tool.ActionReplace && answer["result"] == nil:
			return errors.New("its answer is replace_result without a result")
		case result["status"] != nil || value.Assoc(result["metadata"])["status"] != nil || body["type"] == string(envelope.TypeApprovalRequired) ||
			result["type"] == string(envelope.TypeApprovalRequired):
			return errors.New("its answer has a result that waits; want the action pending or require_approval")
		}
		return nil
	}
	return errors.New(`its answer has no action; want "proceed", "reject", "replace_result", "pending" or "require_approval"`)
}

// asResult takes an answer without success as the result of a success (agent runtime contract, section 4.5).
func asResult(given any) map[string]any {
	if result, is := given.(map[string]any); is && result["success"] != nil {
		return result
	}
	return map[string]any{"success": true, "result": given}
}

// outside hands a call to a program that executes the tools of the agent.
func (j *job) outside(proposal loop.Proposal, answer map[string]any) map[string]any {
	if j.turn.Requests == nil {
		return refuse("The call was not made: nothing outside can execute it here.", "mediator_unavailable")
	}

	name, parameters := value.Text(proposal.PreparedToolCall["tool_name"]), value.Assoc(proposal.PreparedToolCall["parameters"])
	limit := pendingTime
	if seconds, whole := value.Integer(answer["timeout_seconds"]); whole && seconds > 0 {
		limit = min(time.Duration(min(seconds, int64(longestPending/time.Second)))*time.Second, longestPending)
	}

	metadata := map[string]any{
		"idempotency_key": tool.Call{Name: name, Parameters: parameters, Context: map[string]any{"run_id": j.turn.ID}}.IdempotencyKey(),
		"mediated":        true,
	}
	for _, member := range []string{"agent", "thread_id", "message_id", "caller_context"} {
		metadata[member] = proposal.TurnContext[member]
	}

	return map[string]any{"action": tool.ActionPending, "runtime_tool_request": map[string]any{
		"tool_name": name, "tool_call_id": proposal.ToolCallID, "parameters": parameters, "run_id": j.turn.ID,
		"timeout_at": time.Now().Add(limit).UTC().Format(time.RFC3339Nano), "metadata": metadata,
		"runtime": proposal.ToolDeclaration.Runtime(),
	}}
}

// proposed is what the mediator sees.
func (j *job) proposed(proposal loop.Proposal) *hook.Call {
	prepared := proposal.PreparedToolCall
	call := &hook.Call{
		ToolName: proposal.ToolName, ToolCallID: proposal.ToolCallID, Parameters: proposal.Parameters, PreparedToolCall: prepared,
		RawToolCall: proposal.RawToolCall, ToolDeclaration: proposal.ToolDeclaration.Object(), TurnContext: proposal.TurnContext,
		Messages: []hook.Said{},
		IdempotencyKey: tool.Call{
			Name: value.Text(prepared["tool_name"]), Parameters: value.Assoc(prepared["parameters"]), Context: map[string]any{"run_id": j.turn.ID},
		}.IdempotencyKey(),
	}

	for _, message := range proposal.Messages[max(0, len(proposal.Messages)-hookMessages):] {
		call.Messages = append(call.Messages, hook.Said{
			Type: string(message.Type), Role: message.Role, Content: clip.Marked(message.Text(), hookText, " …"),
			Payload: small(message.Payload), Metadata: small(message.Metadata),
		})
	}

	call.PriorToolResults = outcomesOf(append(slices.Clip(j.before.executed), proposal.PriorToolResults...))
	call.PriorMediatedResults = outcomesOf(proposal.PriorMediatedResults)
	return call
}

// small returns an object that has room in a message for a hook, else nil.
func small(object map[string]any) map[string]any {
	if len(object) == 0 || len(value.EncodeText(object)) > hookText {
		return nil
	}
	return object
}

// outcomesOf writes execution results for a hook. The newest ones that have room together are whole; the others say how they ended.
func outcomesOf(executed []any) []hook.Outcome {
	outcomes, room := make([]hook.Outcome, len(executed)), hookResults
	for i, given := range slices.Backward(executed) {
		earlier := value.Assoc(given)
		result := value.Assoc(earlier["result"])
		turn, _ := value.Integer(earlier["turn_count"])
		outcomes[i] = hook.Outcome{
			ToolName: value.Text(earlier["tool_name"]), ToolCallID: value.Text(earlier["tool_call_id"]), TurnCount: int(turn), Success: succeeded(result),
		}

		parameters := value.Assoc(earlier["parameters"])
		if room -= len(value.EncodeText(result)) + len(value.EncodeText(parameters)); room < 0 {
			outcomes[i].LeftOut, room = true, 0
			continue
		}
		outcomes[i].Result, outcomes[i].Parameters = result, parameters
	}
	return outcomes
}

// lets reports whether the mediator lets a question to another agent through that the loop does not show it.
func (j *job) lets(ctx context.Context, transcript []envelope.Envelope, asked *call, declaration *tool.Declaration, parameters map[string]any) bool {
	known := j.context()
	known["turn"] = j.hooked.turn
	return j.mediate(ctx, loop.Proposal{
		Messages: transcript, ToolName: asked.name, ToolCallID: asked.id, Parameters: parameters, ToolDeclaration: declaration,
		RawToolCall: asked.row(j.tools), TurnContext: known, Turn: j.hooked.turn,
		PreparedToolCall: map[string]any{"tool_name": declaration.Name(), "parameters": parameters, "id": asked.id},
	}) == nil
}

// policies puts the completion policy into the options of a run.
func (j *job) policies(options *loop.Options) {
	if !j.hooked.Completion {
		return
	}

	options.CompletionPolicy = j
	mediating := j.tools.Len() > 0
	options.ShouldContinue = func(_ context.Context, result, _ map[string]any) (bool, error) {
		if j.hooked.goesOn {
			return true, nil
		}
		calls, _ := value.List(result["tool_calls"])
		return mediating && len(calls) > 0, nil
	}
}

// RecordToolResult implements loop.CompletionPolicy.
func (j *job) RecordToolResult(ctx context.Context, given loop.ToolResult) (loop.Decision, error) {
	return j.judgedResult(ctx, hook.Result{ToolName: given.ToolName, ToolCallID: j.hooked.ended, Result: given.Result})
}

func (j *job) judgedResult(ctx context.Context, result hook.Result) (loop.Decision, error) {
	return j.judged(ctx, hook.Question{
		Hook: hook.KindResult, Result: &result,
		ID: hook.QuestionID(j.turn.ID, hook.KindResult, result.ToolCallID+"\n"+value.EncodeText(result.Result)),
	}, exchange.HookStep{Tool: shortened(j.tools.Resolve(result.ToolName)), CallID: result.ToolCallID})
}

// judgeSettled shows the completion policy the results for which the run waited: the loop has not seen them. They are saved before, so
// that a policy without answer repeats no call.
func (j *job) judgeSettled(ctx context.Context) error {
	if len(j.note.Unjudged) == 0 || !j.hooked.Completion {
		return nil
	}

	for len(j.note.Unjudged) > 0 {
		id := j.note.Unjudged[0]
		at := slices.IndexFunc(j.note.Messages, func(message envelope.Envelope) bool {
			return message.Type == envelope.TypeToolResult && message.ToolCallID() == id
		})
		if at >= 0 {
			result := &j.note.Messages[at]
			decision, err := j.judgedResult(ctx, hook.Result{ToolName: result.ToolName(), ToolCallID: id, Result: result.Payload})
			if err != nil {
				return err
			}
			if !decision.Complete && decision.Message != "" {
				j.note.Messages = append(j.note.Messages, goingOn(decision))
			}
		}
		j.note.Unjudged = j.note.Unjudged[1:]
	}

	return j.save(ctx)
}

// goingOn is what a completion policy says to the model.
func goingOn(decision loop.Decision) envelope.Envelope {
	return envelope.UserText(decision.Message, map[string]any{
		"type": "completion_policy_continue", "completion_policy_context": value.Filled(decision.Context),
	})
}

// judged asks the completion policy. Without answer it has no opinion, or ends the run.
func (j *job) judged(ctx context.Context, question hook.Question, step exchange.HookStep) (decision loop.Decision, err error) {
	step.Action = "retry"
	answer, err := j.askHook(ctx, question, step, checkCompletion)
	switch {
	case err != nil && j.hooked.Proceed && ctx.Err() == nil:
		return loop.Decision{}, nil
	case err != nil:
		return loop.Decision{}, j.fail(fault.RetryIn(0, sayHookDown, err))
	}

	decision = loop.Decision{
		Complete: marked(answer, "complete"), Message: clip.Bytes(strings.TrimSpace(value.Text(answer["message"])), hookWords),
		Context: value.Assoc(answer["context"]),
	}

	step.Hook, step.Action = question.Hook, ""
	switch {
	case decision.Complete && question.Hook == hook.KindResult:
		j.note.Complete, step.Action = true, "complete"
	case !decision.Complete && decision.Message != "":
		step.Action = "continue"
	}
	if step.Action != "" {
		j.turn.Did(exchange.EventHookDecided, step)
	}
	return decision, nil
}

func checkCompletion(answer map[string]any) error {
	if _, is := answer["complete"].(bool); !is {
		return errors.New(`its answer has no "complete": true or false`)
	}
	return nil
}

// goOn asks the completion policy whether the model is done when it called no tool, and returns the words with which it goes on. In
// its last turn it is done.
func (j *job) goOn(ctx context.Context, turn map[string]any, said *reply, last bool) ([]envelope.Envelope, error) {
	number, _ := value.Integer(turn["turn"])
	j.hooked.turn, j.hooked.goesOn = int(number), false
	if !j.hooked.Completion || len(said.calls) > 0 || last {
		return nil, nil
	}

	text := said.text.String()
	decision, err := j.judged(ctx, hook.Question{
		Hook: hook.KindTurn, Answer: &hook.Answer{Content: clip.Marked(text, hookAnswer, " …")},
		ID: hook.QuestionID(j.turn.ID, hook.KindTurn, fmt.Sprint(j.note.Turns, "\n", text)),
	}, exchange.HookStep{})
	if err != nil || decision.Complete || decision.Message == "" {
		return nil, err
	}

	j.hooked.goesOn = true
	return []envelope.Envelope{goingOn(decision)}, nil
}
