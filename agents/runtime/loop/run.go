// Package loop runs a conversation between a model and tools to its end: turn by turn it calls a runner, executes the
// tool calls that come back, watches budgets, stalls, interrupts and completion, and returns one conversation result
// (agent runtime contract, sections 3 and 9). Run reads like section 3.2.
//
// It dispatches no model, stores nothing and knows no protocol: the model, the tools, the store of transcripts, the lock
// and run control are small interfaces that the caller fills. Messages and results are JSON values of agents/runtime/envelope.
package loop

import (
	"context"
	"maps"
	"slices"
	"time"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// run is the state of one Run. It stays in one goroutine.
type run struct {
	options   Options
	runner    Runner
	tools     tool.Declarations
	rejected  []tool.Rejection
	gate      gate
	budgets   *budgets
	mediating bool

	// What grows.
	messages     []envelope.Envelope
	events       []any
	toolResults  []any
	toolEvents   []any
	auditEvents  []any
	usage        map[string]any
	metadata     map[string]any
	requestMeta  map[string]any
	diagnostics  []any
	output       *any // parsed structured output
	outputStatus map[string]any

	// The turn.
	turn        int // turns that began
	turnContext map[string]any
	spins       []SpinSignature

	// Why it stops.
	complete     bool
	exceeded     string // name of the budget
	stalled      map[string]any
	approval     map[string]any
	pending      map[string]any
	interruption map[string]any
	stopCause    error // of the context
	failed       map[string]any
}

// Run leads a conversation from its messages to one conversation result: it calls the runner turn by turn and executes
// the tool calls that come back, until the conversation is complete or something stops it (agent runtime contract,
// section 3). Messages is a list of messages of any age: []envelope.Envelope or a JSON list.
//
// A run that failed, paused or was stopped is a result with its status, not an error. Errors are inputs that break the
// contract and callbacks that may not fail. When the context ends, Run returns both the interrupted result and the cause
// as error: the tools that ran are in the transcript, the answer of the turn is not. Values inside of the result share
// members; Clone it before changing it.
func Run(ctx context.Context, messages any, runner Runner, options Options) (result map[string]any, err error) {
	// 1, 2: options and request.
	r, err := newRun(messages, runner, options)
	if err != nil {
		return nil, err
	}

	// 3: declarations, run control.
	r.reportDeclarations()

	if err := r.start(ctx); err != nil {
		return r.runControlFailure(err, false)
	}
	defer func() {
		if err != nil && r.stopCause == nil {
			r.abandon(ctx)
		}
	}()

	if r.runner == nil {
		return nil, invalid(codeLoop, "", "a turn runner or provider_turn_adapter is required")
	}

	// 4: lock.
	token, err := r.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer r.release(ctx, token) // 8

	if r.locking() && token == "" {
		return r.contention(ctx)
	}

	// 5: turns.
	for turn := 1; turn <= r.options.MaxTurns; turn++ {
		goOn, err := r.runTurn(ctx, turn)
		if err != nil {
			return nil, err
		}
		if r.failed != nil {
			return r.failure(ctx)
		}
		if !goOn {
			break
		}
	}

	// 6, 7: result, run control, persister, completed.
	return r.finish(ctx)
}

// runTurn is one turn of step 5. It reports whether another one follows.
func (r *run) runTurn(ctx context.Context, turn int) (goOn bool, err error) {
	// a, b: wall clock, tokens and cost, cancellation.
	budget, over := r.budgets.clock(time.Now())
	if !over {
		budget, over = r.budgets.measured()
	}
	if over {
		r.exceed(budget)
		return false, nil
	}

	r.turn, r.complete = turn, false
	r.turnContext = maps.Clone(r.options.Context)
	r.turnContext["turn"] = turn

	if r.stopped(ctx) {
		return false, nil
	}

	// c, d: the turn starts, compaction.
	r.emit("turn_started", map[string]any{
		"turn": turn, "max_turns": r.options.MaxTurns, "message_count": len(r.messages),
	})

	r.compact(ctx)

	// e, f: runner, cancellation. A cancelled turn leaves nothing behind.
	given, problem := r.callRunner(ctx)
	if problem != nil && ctx.Err() == nil {
		r.runnerFailed(problem)
		return false, nil
	}

	result, isObject := value.Object(given)
	if !isObject && problem == nil {
		return false, r.runnerGaveNonsense(ctx)
	}
	if r.stopped(ctx) {
		return false, nil
	}

	// g, h, i: diagnostics, failure, usage and metadata.
	if diagnostics, is := value.Object(result["provider_diagnostics"]); is {
		r.diagnostics = append(r.diagnostics, diagnostics)
	}

	if failure, is := value.Object(result["failure"]); is {
		r.providerFailed(failure)
		return false, nil
	}

	r.account(result)

	// j: tools of the model, or what the runner did by itself.
	forced := false
	if r.mediating && value.Container(result["tool_calls"]) {
		if err := r.mediate(ctx, result); err != nil {
			return false, err
		}
		if err := r.checkSpin(); err != nil {
			return false, err
		}
		if r.stopped(ctx) {
			return false, nil
		}
		forced = r.gateCompletion(result)
	} else if result, err = r.adopt(ctx, result); err != nil {
		return false, err
	}

	// k: reasons to stop.
	if r.exceeded != "" || r.stalled != nil || r.pending != nil || r.complete {
		return false, nil
	}

	// l: interrupts, cancellation.
	if stop, err := r.checkInterrupted(ctx); stop || err != nil {
		return false, err
	}

	// m, n: budget of turns, the caller's opinion.
	if budget, over := r.budgets.count(BudgetTurns); over {
		if r.budgets.explicitTurns {
			r.exceed(budget)
		}
		return false, nil
	}
	if forced {
		return true, nil
	}

	return r.shouldContinue(ctx, result)
}

// newRun is steps 1 and 2 of section 3.2: nothing is called and no event is sent.
func newRun(messages any, runner Runner, options Options) (*run, error) {
	r := &run{options: options.resolved(), runner: runner, tools: options.Tools}
	if len(options.Declarations) > 0 {
		r.tools, r.rejected = tool.Declare(options.Declarations)
	}

	output, err := r.options.structuredOutput(r.tools.Len())
	if err != nil {
		return nil, err
	}
	if r.messages, err = envelopes(messages); err != nil {
		return nil, err
	}

	r.messages = slices.Clip(r.messages) // the caller's list stays its own
	r.mediating = r.executable() && r.tools.Len() > 0
	r.gate = newGate(options.ToolCallRules)
	r.budgets = newBudgets(options.Budgets, r.options.MaxTurns, time.Now())
	r.usage, r.metadata, r.requestMeta = newUsage(), map[string]any{}, map[string]any{}

	if options.Provider != nil {
		r.runner = &providerRunner{run: r, adapter: options.Provider, output: output}
	}

	return r, nil
}

func (r *run) executable() bool {
	return r.options.Executors.Default != nil
}

// envelopes reads a list of messages of any age.
func envelopes(value any) ([]envelope.Envelope, error) {
	switch list := value.(type) {
	case []envelope.Envelope:
		return list, nil
	case nil:
		return []envelope.Envelope{}, nil
	}
	return envelope.NormalizeMany(value) //nolint:wrapcheck // its errors are the contract's
}

// reportDeclarations tells about dropped tools, so that a misspelt name does not look like a model that calls nothing.
func (r *run) reportDeclarations() {
	if len(r.rejected) == 0 {
		return
	}
	r.emit("tool_declarations_rejected", tool.RejectionReport(r.rejected, r.tools.Len()))
	if r.tools.Len() == 0 && r.executable() {
		r.emit("tool_mediation_disabled", tool.DisabledReport(r.rejected))
	}
}

func (r *run) controlled() bool {
	return r.options.Control != nil && r.options.RunID != "" && r.options.SessionID != ""
}

func (r *run) start(ctx context.Context) error {
	if !r.controlled() {
		return nil
	}
	return guard("run control", func() error {
		return r.options.Control.Start(ctx, r.options.RunID, r.options.SessionID)
	})
}

// end stores the status of a run that is over, also when its context is.
func (r *run) end(ctx context.Context, status string) error {
	if !r.controlled() {
		return nil
	}
	return guard("run control", func() error {
		return r.options.Control.Finish(context.WithoutCancel(ctx), r.options.RunID, status)
	})
}

// abandon ends a run that leaves with an error, so that no caller waits for it.
func (r *run) abandon(ctx context.Context) { _ = r.end(ctx, envelope.StatusFailed) }

func (r *run) locking() bool { return r.options.TranscriptLock != nil && r.options.SessionID != "" }

func (r *run) acquire(ctx context.Context) (token string, err error) {
	if !r.locking() {
		return "", nil
	}
	err = guard("transcript lock", func() (err error) {
		token, err = r.options.TranscriptLock.Acquire(ctx, r.options.SessionID, r.options.TranscriptLockTTL)
		return err
	})
	return token, err
}

func (r *run) release(ctx context.Context, token string) {
	if token == "" {
		return
	}
	quietly(func() {
		_ = r.options.TranscriptLock.Release(context.WithoutCancel(ctx), r.options.SessionID, token)
	})
}

// StatusLockContention is the status of a run that found its session locked, and the name of the event that reports it.
const StatusLockContention = "transcript_lock_contention"

// contention is the result of a run that found its session locked. The recorded runtime derives the outcome of this status as
// completed and natural; a reader recognizes the refusal by the status and by the missing member completed.
func (r *run) contention(ctx context.Context) (map[string]any, error) {
	r.emit(StatusLockContention, map[string]any{"session_id": r.options.SessionID})
	r.abandon(ctx)
	return envelope.NormalizeResult(map[string]any{ //nolint:wrapcheck // its errors are the contract's
		"messages": envelope.Values(r.messages), "tool_execution_results": []any{}, "events": []any{},
		"status": StatusLockContention,
	})
}

// persist hands the result to the persister. The result does not depend on it.
func (r *run) persist(ctx context.Context, result map[string]any) {
	if r.options.TranscriptPersister == nil {
		return
	}
	quietly(func() {
		_ = r.options.TranscriptPersister.Persist(context.WithoutCancel(ctx), slices.Clip(r.messages), r.options.request(r.messages), result)
	})
}

// filled keeps an absent list from being written as null.
func filled(list []any) []any {
	if list == nil {
		return []any{}
	}
	return list
}

// snapshot is the result of a failed run so far.
func (r *run) snapshot(more map[string]any) map[string]any {
	result := map[string]any{
		"messages": envelope.Values(r.messages), "tool_execution_results": filled(r.toolResults),
		"tool_events": filled(r.toolEvents), "tool_audit_events": filled(r.auditEvents), "events": filled(r.events),
		"status": envelope.StatusFailed, "completed": false, "turn_count": r.turn,
		"final_content": finalContent(r.messages), "usage": r.usage, "request_metadata": r.requestMeta,
	}
	maps.Copy(result, more)
	return result
}

// failure ends a run whose turn failed. The event completed is not for it.
func (r *run) failure(ctx context.Context) (map[string]any, error) {
	result, err := envelope.NormalizeResult(r.failed)
	if err != nil {
		return nil, err //nolint:wrapcheck // its errors are the contract's
	}
	_ = r.end(ctx, envelope.StatusFailed) // the failure of the turn is what counts
	r.persist(ctx, result)
	return result, nil
}

// runControlFailure is the result of a run that run control refused or could not finish.
func (r *run) runControlFailure(problem error, keep bool) (map[string]any, error) {
	message := publicText(problem)
	r.emit("failed", map[string]any{"error": message})
	result := map[string]any{
		"messages": envelope.Values(r.messages), "tool_execution_results": []any{}, "tool_events": []any{},
		"tool_audit_events": []any{}, "events": []any{}, "status": envelope.StatusFailed, "completed": false,
		"turn_count": 0, "final_content": finalContent(r.messages),
		"failure": map[string]any{
			"type": "run_control", "message": message, "code": errorCode(problem), "turn_count": 0,
		},
	}

	if keep {
		result["tool_execution_results"], result["tool_events"] = filled(r.toolResults), filled(r.toolEvents)
		result["tool_audit_events"], result["events"] = filled(r.auditEvents), filled(r.events)
	}

	return envelope.NormalizeResult(result) //nolint:wrapcheck // its errors are the contract's
}

// finish is steps 6 and 7 of section 3.2.
func (r *run) finish(ctx context.Context) (map[string]any, error) {
	result, err := envelope.NormalizeResult(r.result())
	if err != nil {
		return nil, err //nolint:wrapcheck // its errors are the contract's
	}
	if problem := r.end(ctx, envelope.RunControlStatus(result)); problem != nil {
		failed, err := r.runControlFailure(problem, true)
		r.persist(ctx, failed)
		return failed, err
	}

	r.persist(ctx, result)
	r.emit("completed", map[string]any{
		"turn": r.turn, "message_count": len(r.messages), "tool_results": len(r.toolResults),
	})

	return result, r.stopCause
}

func (r *run) result() map[string]any {
	result := map[string]any{
		"messages": envelope.Values(r.messages), "tool_execution_results": filled(r.toolResults),
		"tool_events": filled(r.toolEvents), "tool_audit_events": filled(r.auditEvents), "events": filled(r.events),
		"turn_count": r.turn, "final_content": finalContent(r.messages), "metadata": r.metadata, "usage": r.usage,
		"request_metadata": r.requestMeta, "provider_diagnostics": filled(r.diagnostics),
		"structured_output_diagnostics": r.outputStatus, "completed": true,
	}

	if r.outputStatus == nil {
		result["structured_output_diagnostics"] = map[string]any{}
	}
	if r.output != nil {
		result["structured_output"] = *r.output
	}

	r.overlay(result)
	return result
}

// overlay writes why a run stopped. The last reason names the status; the others stay readable beside it.
func (r *run) overlay(result map[string]any) {
	stop := func(happened bool, status, member string, value any) {
		if happened {
			result["status"], result[member], result["completed"] = status, value, false
		}
	}

	stop(r.exceeded != "", envelope.StatusBudgetExceeded, "budget", r.exceeded)
	stop(r.stalled != nil, envelope.StatusStalled, "stalled", r.stalled)
	stop(r.approval != nil, envelope.StatusApprovalRequired, "approval_required", r.approval)
	stop(r.pending != nil, envelope.StatusRuntimeToolPending, "runtime_tool_pending", r.pending)
	stop(r.interruption != nil, envelope.StatusInterrupted, "interrupted", r.interruption)
}

// finalContent is the last thing that the assistant said.
func finalContent(messages []envelope.Envelope) string {
	for _, message := range slices.Backward(messages) {
		if message.Role == "assistant" && message.Type != envelope.TypeToolCall && message.Text() != "" {
			return message.Text()
		}
	}
	return ""
}
