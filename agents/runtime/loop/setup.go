package loop

import (
	"context"
	"slices"
	"time"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
)

// newRun is steps 1 and 2 of section 3.2: nothing is called and no event is sent.
func newRun(messages any, runner Runner, options Options) (*run, error) {
	r := &run{options: options.withOverrides(), runner: runner, tools: options.Tools}
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
	return r.options.Executors.Default != nil || len(r.options.Executors.Named) > 0
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

// abandon ends a run that leaves with an error, so that nobody waits for it.
func (r *run) abandon(ctx context.Context) { _ = r.end(ctx, envelope.StatusFailed) }

func (r *run) locking() bool { return r.options.Lock != nil && r.options.SessionID != "" }

func (r *run) acquire(ctx context.Context) (token string, err error) {
	if !r.locking() {
		return "", nil
	}
	err = guard("transcript lock", func() (err error) {
		token, err = r.options.Lock.Acquire(ctx, r.options.SessionID, r.options.LockTTL)
		return err
	})
	return token, err
}

func (r *run) contended(token string) bool { return r.locking() && token == "" }

func (r *run) release(ctx context.Context, token string) {
	if token == "" {
		return
	}
	quietly(func() {
		_ = r.options.Lock.Release(context.WithoutCancel(ctx), r.options.SessionID, token)
	})
}
