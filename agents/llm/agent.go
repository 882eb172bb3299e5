package llm

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"inbox/agents"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/normalized"
)

// Reach reports whether the model's provider takes connections, if it can be looked for without a request.
func (a *Agent) Reach(ctx context.Context) error {
	if reacher, is := a.options.Provider.(Reacher); is {
		return reacher.Reach(ctx)
	}
	return nil
}

// Probe reports why the model's provider does not work, if it can be asked without a call of the model.
func (a *Agent) Probe(ctx context.Context) error {
	if prober, is := a.options.Provider.(Prober); is {
		return prober.Probe(ctx)
	}
	return nil
}

// Handle answers a turn: prompt, loop, answer. Errors are faults, or the cause of the ended context. A turn that runs
// again takes up its transcript from turn.Memory: tools that ended are not called twice.
func (a *Agent) Handle(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	return func(yield func(normalized.Delta, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		answer := &answer{yield: yield, enough: cancel, limits: a.options.Limits, meter: normalized.NewMeter(a.options.Limits)}
		err := a.answer(ctx, turn, answer)
		if err != nil && !answer.stopped {
			yield(normalized.Delta{}, err)
		}
	}
}

// job is one run of one turn. It stays in one goroutine.
type job struct {
	agent     *Agent
	turn      agents.Turn
	answer    *answer
	note      *note
	tools     tool.Declarations
	executors map[string]Tools
	forbidden map[string]bool // tools that the sender may not use, by the names that models use
	pictures  *images
	system    string
	marks     marker
	problem   error  // of the model or the note, as it was
	stop      string // why the model stopped last
	kept      int    // messages of the transcript that the note knows
	begun     map[string]begun
	earlier   int    // turns of the model in earlier runs
	said      *reply // the last turn of the model
	tokens    *loop.Budget
	cost      *loop.Budget
	budget    string // that stopped the run
	hooked    hooked

	budgetsOfRun []*loop.Budget
	before       records            // of calls that ended before the loop of this run
	persisted    map[string]any     // result of the loop; nil = the run has none yet
	resultKept   bool               // agents.Turn.KeepResult has it
	resultBlocks map[string][]Block // files of results of tools, by call

	unkept  bool // tokens were spent that the stored note does not have
	crammed bool // the conversation could not be shortened: it is not tried again unless the provider refuses it
}

func (a *Agent) answer(ctx context.Context, turn agents.Turn, answer *answer) error {
	if ctx.Err() != nil {
		return fmt.Errorf("llm: %w", context.Cause(ctx))
	}

	j := &job{agent: a, turn: turn, answer: answer, system: a.system(turn), marks: a.marker(&turn.Message)}
	j.hook()
	defer j.tell(ctx)

	if err := j.prepare(ctx); err != nil {
		return err
	}

	waits, err := j.takeUp(ctx)
	if err != nil {
		return err
	}
	defer j.keepSpent(ctx)

	j.pictures = a.loadFiles(ctx, turn, j.marks, j.note.Shown)
	j.note.Shown = j.pictures.shown
	transcript := prompt(turn, j.marks, j.pictures)
	transcript = append(j.note.shorten(transcript), j.note.Messages...)
	j.kept = len(transcript)
	answer.replay(j.note.Messages, j.tools)

	if waits {
		return j.park(j.note.Waiting)
	}

	options := j.options(ctx)
	j.budgetsOfRun, j.before = options.Budgets, j.callsOf(j.note.Messages)
	defer j.keepResult(ctx) // with what the model concludes after the loop
	if j.note.Complete {
		j.persisted = map[string]any{
			"messages": envelope.Values(transcript), "run_outcome": map[string]any{"status": envelope.StatusCompleted},
		}
		return j.finish(ctx, j.persisted)
	}

	result, err := loop.Run(ctx, transcript, j, options)
	j.tellRecorded(ctx, result)

	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("llm: %w", context.Cause(ctx))
	case j.problem != nil:
		return j.problem
	case err != nil:
		return unusable(fmt.Errorf("run conversation: %w", err))
	case value.Text(result["status"]) == loop.StatusLockContention:
		return fmt.Errorf("llm: %w", agents.ErrLeaseLost)
	}

	return j.finish(ctx, result)
}

// prepare collects the tools that the sender may use.
func (j *job) prepare(ctx context.Context) error {
	declared, rejected, err := declaredTools(ctx, j.turn, j.agent.options.Tools)
	if err != nil {
		return err
	}

	j.executors, j.forbidden = map[string]Tools{}, map[string]bool{}
	var allowed []*tool.Declaration
	for _, one := range declared {
		if j.action(one.Declaration) == tool.ActionForbidden {
			j.forbidden[one.SafeName()] = true
			continue
		}
		j.executors[one.Name()] = one.source
		allowed = append(allowed, one.Declaration)
	}

	j.tellRejected(ctx, rejected, len(declared))
	j.tools = j.visible(allowed)
	return nil
}

// execute runs a tool by the source that declared it.
func (j *job) execute(ctx context.Context, call tool.Call) (map[string]any, error) {
	source, has := j.executors[call.Name]
	if !has {
		return nil, errors.New("the tool is gone")
	}
	if refused := j.usedUp(call); refused != nil {
		return refused, nil
	}
	return source.Execute(ctx, call) //nolint:wrapcheck // its text is for the model
}

func (j *job) options(ctx context.Context) loop.Options {
	limits := j.agent.options
	options := loop.Options{
		MaxTurns: j.turnsLeft(), Tools: j.tools, Context: j.context(), Principal: j.principal(),
		Executors: tool.Executors{Default: tool.ExecutorFunc(j.execute), Repeats: repeats{j}},
		Budgets:   j.budgets(), ToolCallRules: j.rules(),
		SpinDetector: loop.NewConsecutiveSpin(0), FailureTracker: loop.NewConsecutiveFailures(0),
		Truncator: loop.NewByteTruncator(maxResultBytes),
	}

	j.policies(&options)
	if limits.Configure != nil {
		limits.Configure(ctx, j.turn, &options)
	}

	j.join(ctx, &options)
	return options
}

// turnsLeft counts the model's turns of all runs of one message. A budget of turns stops the run before the last of them.
func (j *job) turnsLeft() int {
	if budget := j.agent.options.Budgets.Turns; budget > 0 {
		return max(1, budget-j.earlier) + 1
	}
	return max(1, j.agent.options.MaxTurns-j.earlier)
}

// maxResultBytes is how much of one tool's result a model reads.
const maxResultBytes = 32 << 10

// join puts our own part beside what Configure set. Our refusals come first.
func (j *job) join(ctx context.Context, options *loop.Options) {
	j.session(options)
	observer, mediator, diagnostics := options.Observer, options.Mediator, options.Diagnostics
	ours := j.observe(ctx)
	options.Observer = loop.ObserverFunc(func(name string, payload map[string]any) {
		ours(name, payload)
		if observer != nil {
			observer.Observe(name, payload)
		}
	})

	options.Mediator = loop.MediatorFunc(func(ctx context.Context, proposal loop.Proposal) (any, error) {
		if decision := j.decide(ctx, proposal); decision != nil {
			return decision, nil
		}
		if mediator == nil {
			return nil, nil
		}
		return mediator.Decide(ctx, proposal) //nolint:wrapcheck // the loop takes errors for no opinion
	})

	options.Diagnostics = func(ctx context.Context, about map[string]any) (map[string]any, error) {
		j.answer.finish(value.Text(about["tool_call_id"]), value.Assoc(about["result"]))
		j.toolEnded(value.Text(about["tool_call_id"]), value.Text(about["tool_name"]), value.Assoc(about["result"]))
		if diagnostics == nil {
			return nil, nil
		}
		return diagnostics(ctx, about)
	}
}

func (j *job) observe(ctx context.Context) func(string, map[string]any) {
	return func(name string, payload map[string]any) {
		if name == "tool_call" {
			j.toolBegins(payload)
			j.answer.begin(value.Text(payload["tool_call_id"]), j.tools.Resolve(value.Text(payload["tool_name"])), payload["parameters"])
		}
		if name == "budget_exceeded" {
			j.budget = value.Text(payload["budget"])
		}
		j.hooked.observe(name, payload)
		j.tellEvent(ctx, name, payload)
		if j.agent.options.Observe != nil {
			j.agent.options.Observe(ctx, j.turn, name, payload)
		}
	}
}

// context is what tools and policies may know of the turn.
func (j *job) context() map[string]any {
	message := &j.turn.Message
	identities := make([]any, len(message.Sender.Identities))
	for i := range message.Sender.Identities {
		proof := &message.Sender.Identities[i]
		identities[i] = map[string]any{"subject": proof.Subject, "issuer": proof.Issuer, "method": proof.Method, "assurance": proof.Assurance}
	}

	known := map[string]any{
		"run_id": j.turn.ID, "attempt": j.turn.Attempt, "agent": j.turn.Agent, "thread_id": message.ThreadID, "message_id": message.ID,
		"caller_context": map[string]any{
			"address": message.Sender.Address.String(), "principal": message.Sender.Principal(), "identities": identities,
		},
	}

	if resolution := message.PolicyResolution; resolution != nil {
		known["policy_resolution"] = map[string]any{"kind": resolution.Kind, "outcome": resolution.Outcome}
	}

	return known
}
