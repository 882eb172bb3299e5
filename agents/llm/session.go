package llm

import (
	"cmp"
	"context"
	"time"

	"inbox/agents"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
)

// session puts the server's lock, persister and interrupts into the options of a run, beside those that Configure set. A lock of
// Configure replaces ours, which the store enforces anyway.
func (j *job) session(options *loop.Options) {
	options.SessionID = cmp.Or(options.SessionID, j.turn.Message.ThreadID)
	options.RunID = cmp.Or(options.RunID, j.turn.ID)
	options.TranscriptPersister = persisters{j, options.TranscriptPersister}
	if j.turn.Lease != nil && options.TranscriptLock == nil {
		options.TranscriptLock = j
	}
	if j.turn.Interrupt != nil {
		options.Interrupts = interrupts{j, options.Interrupts}
	}
}

// persisters are ours and, unless nil, that of Configure.
type persisters struct {
	ours  *job
	other loop.TranscriptPersister
}

// Persist implements loop.TranscriptPersister. What the model concludes afterwards belongs to the result, too, so that keepResult hands
// it over at the end; the engine writes it in the transaction of that end.
func (p persisters) Persist(ctx context.Context, messages []envelope.Envelope, request loop.Request, result map[string]any) error {
	p.ours.persisted = result
	if p.other == nil {
		return nil
	}
	return p.other.Persist(ctx, messages, request, result) //nolint:wrapcheck // the loop takes no notice of it
}

// interrupts are ours and, unless nil, those of Configure.
type interrupts struct {
	ours  *job
	other loop.InterruptSource
}

// Poll implements loop.InterruptSource.
func (i interrupts) Poll(ctx context.Context, request loop.Request, turn map[string]any) (any, error) {
	found, err := i.ours.interrupted(ctx, request)
	if err != nil || found != nil || i.other == nil {
		return found, err
	}
	return i.other.Poll(ctx, request, turn) //nolint:wrapcheck // of the embedding program
}

// Acquire implements loop.TranscriptLock: the lease of the conversation is the lock, and it is held already or lost.
func (j *job) Acquire(context.Context, string, time.Duration) (string, error) {
	lease, held := j.turn.Lease()
	if !held {
		return "", nil
	}
	return lease, nil
}

// Release implements loop.TranscriptLock. The lease ends in the transaction that ends the run.
func (j *job) Release(context.Context, string, string) error { return nil }

// wordsOfInterrupts are what the transcript says about an interrupt.
var wordsOfInterrupts = map[string]string{
	agents.InterruptCancel:   "Cancel this run.",
	agents.InterruptTakeover: "An operator has taken the conversation over. Stop here.",
}

// interrupted returns the message with which the server stops the run, or nil. A takeover does not stop an answer that is whole: it becomes
// a draft. Otherwise the note keeps what the tools did, because the turn runs again when the operator hands the conversation back.
func (j *job) interrupted(ctx context.Context, request loop.Request) (any, error) {
	stop := j.turn.Interrupt()
	if stop == nil {
		return nil, nil
	}

	if stop.Source == agents.InterruptTakeover {
		if j.said != nil && len(j.said.calls) == 0 && !j.hooked.goesOn {
			return nil, nil
		}
		if err := j.keep(ctx, request.Messages); err != nil {
			return nil, j.fail(err)
		}
	}

	return envelope.UserText(wordsOfInterrupts[stop.Source], map[string]any{
		"type": "chat_run_interrupt", "interrupt_action": loop.ActionCancel, "source": stop.Source, "reason": stop.Reason,
		"run_id": request.RunID, "session_id": request.SessionID,
	}), nil
}
