package pipeline

import (
	"context"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// failureNoticeEvery is how often the operator is told of failed turns of one agent.
const failureNoticeEvery = time.Hour

// failureNotices is the namespace of when the operator was last told that messages to an agent fail.
const failureNotices = "operator.failures"

// stale does what the agent's policy says about a turn that is older than it may be; ended reports whether the turn's run is
// over with that. The age counts from when the turn was taken up: what the operator released, or somebody resumed, is new.
func (s *Service) stale(ctx context.Context, job queue.Job, agent agents.Entry, turn exchange.TurnRecord) (ended bool, err error) {
	policy := agent.Settings.Retry
	age := time.Since(job.CreatedAt)
	if policy.StaleAfter <= 0 || age <= policy.StaleAfter {
		return false, nil
	}
	reason := "older than " + policy.StaleAfter.String() + " when the agent could answer (agents.retry.stale_after)"
	switch policy.Stale {
	case agents.StaleHold:
		return true, s.leave(ctx, job, turn, exchange.StateHeld, reason)
	case agents.StaleDrop:
		return true, s.leave(ctx, job, turn, exchange.StateRefused, reason)
	case agents.StaleApologise:
		record, err := s.begin(ctx, job, &turn)
		if err != nil {
			return true, queue.RetryAfter(time.Second, err)
		}
		return true, s.reply(ctx, job, turn, record, failure(turn, fault.GiveUp(reason, nil)), reason)
	}
	return false, nil
}

// leave ends the job of a turn that gets no answer now, without a word to its sender.
func (s *Service) leave(ctx context.Context, job queue.Job, turn exchange.TurnRecord, state, reason string) error {
	err := s.options.Store.InTx(ctx, func(tx Tx) error {
		if err := tx.SettleJob(ctx, job.Lease, queue.Outcome{Kind: queue.Done}); err != nil {
			return err
		}
		if err := tx.CancelAck(ctx, turn.ID, time.Now()); err != nil {
			return err
		}
		_, err := tx.MoveTurn(ctx, leaveStale.Move(turn.ID, state, reason, time.Now()))
		return err
	})
	if err != nil {
		return queue.RetryAfter(again, err)
	}
	turn.State, turn.Reason = state, reason
	s.broker.finished(turn)
	return queue.ErrSettled
}

// failureNotice prepares the notice that tells the operator of a failed turn, for the transaction that ends it: one for each
// agent and hour. It is nil where nothing can be sent, and what it returns stores nothing when the operator was told within
// the hour: either way the operator has it when the transaction commits.
func (s *Service) failureNotice(ctx context.Context, turn exchange.TurnRecord, cause error) func(context.Context, Tx) error {
	if s.options.OperatorAddress == "" || s.options.Documents == nil {
		return nil
	}
	last, _, err := s.options.Documents.Get(ctx, failureNotices, turn.Agent)
	if err != nil {
		return nil
	}
	told, _ := time.Parse(time.RFC3339Nano, string(last)) // none: long ago
	now := time.Now()
	if now.Sub(told) < failureNoticeEvery {
		return func(context.Context, Tx) error { return nil }
	}
	job, err := Notice{
		ID: newID(), Agent: turn.Agent, To: s.options.OperatorAddress, Subject: "A message to " + turn.Agent + " was not answered",
		Text: "The agent " + turn.Agent + " failed for good on a message: " + cause.Error() + "\n\nThe message: inbox show " + turn.ID +
			"\nTo run it again: inbox retry " + turn.ID + "\n\nFurther failures of this agent within an hour are not written to you: inbox retry --agent " +
			turn.Agent + " --failed --since 1h --dry-run lists them.",
	}.Job()
	if err != nil {
		return nil
	}
	return func(ctx context.Context, tx Tx) error {
		value := []byte(now.UTC().Format(time.RFC3339Nano))
		instead, err := tx.Claim(ctx, exchange.Claim{Namespace: failureNotices, Key: turn.Agent, Value: value, Instead: last})
		if err != nil || instead != nil { // another run told just now
			return err
		}
		return tx.Enqueue(ctx, job)
	}
}
