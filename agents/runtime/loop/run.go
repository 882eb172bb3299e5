package loop

import (
	"context"
	"maps"
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
// contract and callbacks that may not fail. When the context ends, Run gives both the interrupted result and the cause
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
	if r.contended(token) {
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

// runTurn is one turn of step 5. It says whether another one follows.
func (r *run) runTurn(ctx context.Context, turn int) (goOn bool, err error) {
	// a, b: wall clock, cancellation.
	if budget, over := r.budgets.clock(time.Now()); over {
		r.exceed(budget)
		return false, nil
	}
	r.turn, r.complete = turn, false
	r.turnContext = maps.Clone(r.options.Context)
	r.turnContext["turn"] = turn
	if stop, err := r.checkCancelled(ctx); stop || err != nil {
		return false, err
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
	if stop, err := r.checkCancelled(ctx); stop || err != nil {
		return false, err
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
		if stop, err := r.checkCancelled(ctx); stop || err != nil {
			return false, err
		}
		forced = r.gateCompletion(result)
	} else if result, err = r.adopt(ctx, result); err != nil {
		return false, err
	}

	// k: reasons to stop.
	if r.exceeded != "" || r.stalled != nil || r.pending != nil || r.complete {
		return false, nil
	}

	// l: interrupts. An interrupt of the source goes before a cancellation.
	found, err := r.poll(ctx)
	if err == nil && found == nil {
		found, err = r.cancelled(ctx)
	}
	if err != nil || (found != nil && r.take(found)) {
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
