package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"inbox/agents"
	"inbox/engine/moderation"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/telemetry"
	"inbox/normalized"
	"inbox/policypart"
)

// again is after how long a run that lost a race, or met a store that is down, begins anew.
const again = 2 * time.Second

// maxRuns bounds the runs of one job that end with the process: a message that kills the server may not do so for ever.
// Runs after which the turn waited for someone have jobs of their own; maxAttempts bounds all runs of a turn.
const (
	maxRuns     = 20
	maxAttempts = 200
)

// runner makes the runs of turns: it asks the agent, or goes on with what a turn waited for, and ends the run.
type runner struct {
	*core
	replies   *replier
	demands   *settler
	cancels   *canceller
	approvals *approver
	calls     *dispatcher
	history   *historian
	breaker   *breaker
	prober    *prober
}

// Run makes one run of the turn named by the job: history, agent, answer. The agent may be asked again after a crash
// (Turn.Attempt tells); the answer is stored once.
func (s *runner) Run(ctx context.Context, job queue.Job) (err error) {
	turn, err := s.load(ctx, job)
	if fault.Is(err, fault.NotFound) {
		return queue.GiveUp("the turn row is gone", err)
	}
	if err != nil {
		return queue.RetryAfter(time.Second, err)
	}
	if turn.State != exchange.StateAccepted && turn.State != exchange.StateRunning {
		return nil
	}

	if ended, err := s.withdrawn(ctx, turn); ended {
		return err
	}
	if err := s.recallReply(ctx, &turn); err != nil {
		return queue.RetryAfter(time.Second, err)
	}
	if turn.Written != nil && len(turn.Written.Parts) > 0 { // whatever its agent may do now
		return s.sendWritten(withTurn(ctx, turn), job, turn)
	}
	handed, parked, err := s.parkForOperator(ctx, job, turn)
	if parked || err != nil {
		return err
	}
	if s.options.Closed.Paused(turn.Agent) {
		return queue.SnoozeFor(pausedFor)
	}

	ctx = withTurn(ctx, turn)
	if s.options.Tracer != nil {
		ctx = telemetry.WithTraceparent(ctx, turn.Trace, true)
	}
	ctx, span := s.options.Tracer.Start(ctx, "run", telemetry.KindInternal, telemetry.Attribute("inbox.turn", turn.ID), telemetry.Attribute("inbox.agent", turn.Agent))
	defer func() { span.End(failedAs(err)) }()

	var entered entry
	agent, release, known := s.options.Agents.Acquire(turn.Agent) // one agent for the whole run, whatever the operator changes meanwhile
	defer release()
	if known && !resumed(turn) {
		if ended, err := s.stale(ctx, job, agent, turn); ended {
			return err
		}

		var err error
		if entered, err = s.breaker.enter(ctx, job, agent, turn); err != nil {
			return queue.RetryAfter(again, err)
		}
		if entered.wait > 0 {
			return queue.SnoozeFor(entered.wait)
		}
		if entered.trial != nil {
			defer s.breaker.tried(agent.Profile.Name, entered.trial)
		}
	}

	ctx, record, err := s.begin(ctx, job, &turn)
	if err != nil {
		return err
	}
	defer record.end()
	record.agent, record.known = agent, known
	if entered.overdue {
		return s.fail(ctx, job, turn, record, fault.RetryIn(0, "the agent's back end has been down for as long as its schedule waits", nil).Coded(normalized.FailedUnreachable))
	}

	scheduled := len(agent.Settings.Retry.Of(false)) // runs that failed and were repeated are no crashes
	if job.Attempt > maxRuns+scheduled || turn.Attempt > maxAttempts+scheduled {
		const reason = "gave up: every run was cut off, perhaps because it brings the server down"
		return s.replies.reply(ctx, job, turn, record, failure(turn, fault.New(fault.Internal, reason)), reason)
	}

	record.probe, record.handed = entered.probe, handed
	return s.stopped(ctx, job, record, s.answer(ctx, job, turn, record))
}

// stopped is the outcome of a run, which ended with err, where its turn is not its own any more: one whose message was edited begins
// again, and of one that has ended the job ends too.
func (s *runner) stopped(ctx context.Context, job queue.Job, record *runRecord, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(err, queue.ErrSettled):
		return err
	case errors.Is(cause, queue.ErrLeaseLost):
		return queue.ErrLeaseLost
	case errors.Is(cause, errEdited):
		return queue.RetryAfter(time.Millisecond, errEdited)
	case !errors.Is(cause, errNotRunning) && !errors.Is(cause, queue.ErrUnwanted):
		return err
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	return s.replies.abandon(ctx, job, record, func(Tx) error { return nil })
}

// stopWithin bounds the transaction in which the job of a stopped run ends.
const stopWithin = 5 * time.Second

// Limit returns how many turns of a group (exchange.TurnGroup) may run at once on this node now: none while its agent rests, and
// what the agent says where others work for it. It is the queue's KindOptions.Limit of JobKind.
func (s *runner) Limit(group string) int {
	agent, requires := exchange.ReadTurnGroup(group)
	if s.options.Closed.Paused(agent) {
		return 0
	}

	entry, known := s.options.Agents.Lookup(agent)
	if !known {
		return math.MaxInt
	}
	if labelled, is := entry.Agent.(agents.Labelled); is {
		return labelled.LimitFor(requires)
	}
	if limited, is := entry.Agent.(agents.Limited); is {
		return limited.Limit()
	}
	return math.MaxInt
}

// resumed reports whether a turn goes on with what someone else brought: it may need no agent any more.
func resumed(turn exchange.TurnRecord) bool {
	return turn.Message.PolicyResolution != nil || turn.Message.ReceivedTrace != nil
}

// load returns the turn. What this process remembers of it needs no query where the transaction that leased the job vouches for it: the
// one that accepted the turn, or a claim that found the same version of the row. The first write of the run finds out what changes later.
func (s *runner) load(ctx context.Context, job queue.Job) (exchange.TurnRecord, error) {
	if entry, ok := s.broker.expectation(job.Payload); ok && entry.accepted != nil {
		if job.Reserved || job.Version == entry.accepted.UpdatedAt.UnixMicro() {
			return *entry.accepted, nil
		}
	}
	return s.options.Store.Turn(ctx, job.Payload)
}

// answer gets the answer of a run, from the agent or from where it is already, and goes on with it.
func (s *runner) answer(ctx context.Context, job queue.Job, turn exchange.TurnRecord, record *runRecord) error {
	agent := record.agent
	if !record.known {
		return s.replies.reply(ctx, job, turn, record, failure(turn, fault.New(fault.NotFound, "the agent was removed")), "the agent is not configured any more")
	}
	if finished, err := s.decided(ctx, job, agent, turn, record); finished {
		return err
	}

	turn, err := s.withGrant(ctx, turn)
	if err != nil {
		return queue.RetryAfter(time.Second, err)
	}

	from, response, err := s.originOf(ctx, job, turn)
	if err != nil {
		return queue.RetryAfter(time.Second, err)
	}

	switch from {
	case originCombined:
		s.noteCut(ctx, record, response.Left)
		return s.finishRun(ctx, job, turn, record, response)
	case originReleased, originLink, originCaptured:
		return s.compose(ctx, job, agent, turn, record, response)
	}

	return s.ask(ctx, job, agent, turn, record)
}

// withGrant leaves out a resolution that does not cover the turn as it stands: its message was edited after an approver read it,
// say. The agent then asks anew.
func (s *runner) withGrant(ctx context.Context, turn exchange.TurnRecord) (exchange.TurnRecord, error) {
	if turn.Message.PolicyResolution == nil {
		return turn, nil
	}
	granted, err := s.options.Demands.Granted(ctx, turn)
	if err == nil && !granted {
		turn.Message.PolicyResolution = nil
	}
	return turn, err
}

// origin is where the answer of a run comes from.
type origin int

// Most runs ask the agent. The others go on with what a parked turn waited for, or with what a crash left behind.
const (
	originAgent    origin = iota
	originReleased        // it was held back, and an approver let it pass
	originCombined        // the agents that it mentions have been asked
	originLink            // the turn goes on with a link, or its message is a bare yes or no to a demand: what the server says about that
	originCaptured        // it was there already when the process died while it took the money for it
)

// originOf finds out why the turn runs. A turn that never waited costs no query, unless its message has the form of a link's word.
// Errors mean that the database cannot say so now.
func (s *runner) originOf(ctx context.Context, job queue.Job, turn exchange.TurnRecord) (origin, normalized.Response, error) {
	released, isReleased, err := s.options.Demands.Released(ctx, turn)
	switch {
	case err != nil:
		return originAgent, normalized.Response{}, err
	case isReleased && released.Combined:
		return originCombined, released.Response, nil
	}

	combined, isCombined, err := s.calls.combined(ctx, job, turn)
	switch {
	case err != nil:
		return originAgent, normalized.Response{}, err
	case isCombined:
		return originCombined, combined, nil
	case isReleased:
		return originReleased, released.Response, nil
	}

	response, isLink, err := s.challenged(ctx, turn)
	if err == nil && !isLink && turn.Message.PolicyResolution == nil {
		response, isLink, err = s.reminded(ctx, turn)
	}
	if isLink {
		return originLink, response, err
	}
	if err != nil || turn.Message.PolicyResolution == nil {
		return originAgent, response, err
	}

	response, isCaptured, err := s.options.Demands.Captured(ctx, turn)
	if isCaptured {
		return originCaptured, response, err
	}

	return originAgent, response, err
}

// ask runs the agent and goes on with its response, with the call that it waits for, or with its failure.
func (s *runner) ask(ctx context.Context, job queue.Job, agent agents.Entry, turn exchange.TurnRecord, record *runRecord) error {
	runCtx, cancel := context.WithTimeout(ctx, agent.Settings.TimeLimit)
	defer cancel()

	backEndsOpen.Show(agent.Profile.Name)
	begun := time.Now()
	quiet := s.replies.signOfLife(runCtx, agent, turn)
	requests := &toolWait{core: s.core, turn: turn}
	asked := s.breaker.begin(agent.Profile.Name)
	response, err := s.runAgent(runCtx, agent, turn, record, job.Lease, requests)
	asked()
	quiet()
	runSeconds.WithLabelValues(agent.Profile.Name).Observe(time.Since(begun).Seconds())
	record.leave()
	if runCtx.Err() == nil && (err == nil || !passes(err)) {
		s.breaker.answered(ctx, agent.Profile.Name, turn.ID, agent.Settings.Retry.Rate)
		s.prober.clear(agent.Profile.Name)
	}

	switch {
	case ctx.Err() != nil: // another worker runs the turn, or its run was stopped
		return ctx.Err()
	case err == nil && requests.tells(agent, response):
		return s.awaitAuthorization(ctx, job, turn, record, *requests.wanted, response)
	case errors.Is(err, agents.ErrNoWorker) && runCtx.Err() == nil:
		return queue.PutBack()
	case err == nil && requests.wanted != nil:
		return s.awaitTool(ctx, job, agent, turn, record, *requests.wanted)
	case err == nil:
		return s.compose(ctx, job, agent, turn, record, response)
	case errors.Is(runCtx.Err(), context.DeadlineExceeded):
		s.breaker.failed(ctx, agent.Profile.Name, turn, err, record.probe)
		s.prober.suspect(agent.Profile.Name, err)
		err = fault.GiveUp("the agent did not answer in time", err).Coded(normalized.FailedTimeout)
	}

	return s.failed(ctx, job, turn, record, err)
}

// unlinkWord is what a sender writes, and nothing else, to end the links of their address with the agent.
var unlinkWord = moderation.NewWords([]string{"unlink"})

// challenged answers a turn that goes on with a link: with the demand for the consent of its sender, or with the reason why its sender
// cannot be linked, which is for them alone. It also answers the word that ends links.
func (s *runner) challenged(ctx context.Context, turn exchange.TurnRecord) (response normalized.Response, answers bool, err error) {
	said := turn.Message
	said.Parts = normalized.NewParts(said.Parts) // mail programs quote what they answer
	if turn.Message.PolicyResolution == nil && unlinkWord.Only(said) {
		sentence, ended, err := s.options.Demands.Unlink(ctx, turn)
		response.Parts = []normalized.Part{normalized.Text(sentence)}
		return response.Answering(turn.Message), ended, err
	}

	part, answers, err := s.options.Demands.Challenge(ctx, turn)
	switch {
	case fault.Is(err, fault.Forbidden):
		response.Visibility, response.Parts = normalized.VisibilityDirect, []normalized.Part{normalized.Text(fault.Of(err).Public)}
	case err != nil || !answers:
		return response, false, err
	default:
		response.Parts = []normalized.Part{{Kind: normalized.PartPolicy, Policy: &part}}
	}
	return response.Answering(turn.Message), true, nil
}

// finishRun goes on with what the agent said: a demand parks the turn, and so does an answer that someone has to let
// pass; everything else answers it.
func (s *runner) finishRun(ctx context.Context, job queue.Job, turn exchange.TurnRecord, record *runRecord, response normalized.Response) error {
	response, err := s.confined(ctx, turn, response)
	if err != nil {
		return queue.RetryAfter(time.Second, err)
	}
	if policy := response.Policy(); policy != nil && policypart.Resumable(policy.Kind) {
		return s.park(ctx, job, turn, record, response)
	}

	held, err := s.approvals.holds(ctx, record.agent, turn, response)
	switch {
	case err != nil:
		return queue.RetryAfter(time.Second, err)
	case held:
		return s.hold(ctx, job, turn, record, response)
	}

	if response, err = s.options.Demands.Capture(ctx, turn, response); err != nil {
		return s.failed(ctx, job, turn, record, err)
	}

	return s.replies.reply(ctx, job, turn, record, response, "")
}

// passes reports whether a failure is worth another run.
func passes(cause error) bool {
	f := fault.Of(cause)
	return f.Kind == fault.Unavailable && !f.Permanent
}

// failed repeats a run that may succeed later, on the schedule of its agent and channel or when the agent's back end is
// back, and answers with a plain sentence otherwise. A turn that was taken up again has tries anew.
func (s *runner) failed(ctx context.Context, job queue.Job, turn exchange.TurnRecord, record *runRecord, cause error) error {
	agent := record.agent
	if !record.known || !passes(cause) {
		return s.fail(ctx, job, turn, record, cause)
	}

	outage, open := BackEnd{}, false
	if _, is := errors.AsType[backEndFailure](cause); is {
		outage, open = s.breaker.failed(ctx, turn.Agent, turn, cause, record.probe)
		s.prober.suspect(turn.Agent, cause)
	}

	late, exceeded := fault.CodeOf(cause) == normalized.FailedTimeout, strings.Contains(job.LastError, limitExceeded)
	if late && exceeded {
		last := *fault.Of(cause)
		last.Cause = fmt.Errorf("%w; the run is not repeated again: raise the agent's timeout (now %s) or let it answer sooner", last.Cause, agent.Settings.TimeLimit)
		return s.fail(ctx, job, turn, record, &last)
	}
	if s.breaker.isAtFault(turn.Agent, turn, cause) {
		return s.fail(ctx, job, turn, record, fault.GiveUp(fault.Of(cause).Public, fmt.Errorf("%w (%d times, while the agent answered others)", cause, failuresOfTurn)))
	}

	wait, snooze, ok := s.breaker.repeatAfter(job, agent, turn, cause, outage, open)
	if !ok {
		return s.fail(ctx, job, turn, record, cause)
	}

	s.options.Logger.WarnContext(ctx, "agent run failed and will be repeated", "attempt", turn.Attempt, "after", wait.String(), "error", cause)
	if err := record.flushResult(ctx, nil); err != nil {
		return queue.RetryAfter(time.Second, err)
	}
	if late || exceeded { // the row of the job remembers it, whatever fails next
		cause = fmt.Errorf("%s: %w", limitExceeded, cause)
	}
	if snooze {
		return queue.SnoozeBecause(wait, cause)
	}

	return queue.RetryAfter(wait, cause)
}

// limitExceeded is in the last error of a job one of whose runs its agent's time limit ended: a second one is not repeated.
const limitExceeded = "a run exceeded the time limit of its agent"

// fail ends a turn with a plain sentence to its sender.
func (s *runner) fail(ctx context.Context, job queue.Job, turn exchange.TurnRecord, record *runRecord, cause error) error {
	s.breaker.forget(turn.Agent, turn.ID)
	response := failure(turn, cause)
	if s.options.OperatorHears != nil && s.options.OperatorHears() {
		response = saying(response, response.Error.Message+sayOperatorTold)
	}
	return s.replies.conclude(ctx, job, record, ending{
		turn: turn, reply: s.replies.newReply(turn, response), state: stateOf(response), reason: cause.Error(),
	})
}

// runAgent loads the history and folds the agent's deltas.
func (s *runner) runAgent(
	ctx context.Context, agent agents.Entry, turn exchange.TurnRecord, record *runRecord, lease queue.Lease, requests agents.ToolRequests,
) (response normalized.Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Wrap(fault.Internal, "the agent failed", panicError(p))
		}
	}()

	told, err := s.history.withHistory(ctx, agent, turn)
	if err != nil {
		return response, fault.RetryIn(0, "the history cannot be read", err)
	}

	answers, err := s.answersOf(ctx, turn)
	if err != nil {
		return response, fault.RetryIn(0, "the answers of other agents cannot be read", err)
	}

	handover, err := s.handover(ctx, turn, record)
	if err != nil {
		return response, fault.RetryIn(0, "what the operator noted cannot be read", err)
	}

	files := s.files(turn, agent)
	asked := agents.Turn{
		ID: turn.ID, Attempt: turn.Attempt, AcceptedAt: turn.AcceptedAt, Agent: agent.Profile.Name, Message: told.message, HistoryCacheBreakpointAfter: told.breakpoint,
		NotAddressed: told.named, Requests: requests, Returnable: true, Requires: exchange.Requires(turn.Route),
		Permits: permits(agent, told.message.Sender), Memory: s.memoryOf(turn.ID, record), Steps: record.steps.note, Answers: answers, KeepResult: record.keepResult,
		Handover: handover, Format: exchange.FormatIn(turn.Route), Interrupt: record.interrupted, Lease: record.held(lease),
	}
	if files != nil {
		asked.Files = files
	}

	fold := normalized.NewFold(s.options.Limits)
	stream := newRecorder(turn.ID, record)
	defer stream.end()
	shown := &showing{setting: agent.Settings.ShowTools, limits: s.options.Limits}
	held := agent.Settings.HoldsReply(told.message.Sender) // no reader may watch it grow
	for delta, err := range agent.Agent.Handle(ctx, asked) {
		if err != nil {
			return response, backEndFailure{err}
		}
		if delta, err = withOwnFiles(ctx, files, delta); err != nil {
			return response, unownedFiles(err)
		}
		taken, some, err := fold.Take(delta)
		if err != nil {
			return response, invalidAnswer("the agent's answer breaks a rule", err)
		}
		if held || !some {
			continue
		}
		readable, is := shown.delta(taken)
		if !is {
			continue
		}
		if err := stream.add(ctx, readable); err != nil {
			return response, fault.RetryIn(0, "the answer cannot be recorded", err)
		}
	}

	if ctx.Err() != nil {
		return response, ctx.Err()
	}

	if response, err = s.finish(fold, turn); err != nil {
		return response, err
	}
	response = record.result.outcome(response)
	readable := shown.response(response)
	if !held && !fold.Whole() { // readers have not seen the line about what is left out
		if err := stream.add(ctx, normalized.Delta{Kind: normalized.DeltaResponse, Response: &readable}); err != nil {
			return response, fault.RetryIn(0, "the answer cannot be recorded", err)
		}
	}
	s.noteCut(ctx, record, readable.Left)
	return noteNamed(record, agent, &turn.Message, readable), nil
}

// noteCut keeps on the timeline and in the log what of an answer had no room.
func (s *runner) noteCut(ctx context.Context, record *runRecord, left normalized.Left) {
	if left == (normalized.Left{}) {
		return
	}
	record.steps.note(exchange.EventAnswerCut, left)
	s.options.Logger.InfoContext(ctx, "answer cut", "tool_calls", left.Calls, "sources", left.Sources, "parts", left.Parts,
		"bytes", left.Bytes, "rest", left.Rest)
}

// filesMargin is how long the addresses of a turn's bytes outlive the time limit of its run.
const filesMargin = 15 * time.Minute

func (s *runner) files(turn exchange.TurnRecord, agent agents.Entry) Files {
	if s.options.Files == nil {
		return nil
	}
	return s.options.Files(turn, time.Now().Add(agent.Settings.TimeLimit+filesMargin))
}

// withOwnFiles returns a piece of an answer that names no bytes of others. Streams show pieces before the answer is whole.
func withOwnFiles(ctx context.Context, files Files, delta normalized.Delta) (normalized.Delta, error) {
	if files == nil {
		return delta, nil
	}

	if delta.Part != nil && delta.Part.BytesRef != nil {
		checked, err := files.Check(ctx, []normalized.Part{*delta.Part})
		if err != nil {
			return delta, err
		}
		delta.Part = &checked[0]
	}
	if delta.Response == nil {
		return delta, nil
	}

	response := *delta.Response
	var err error
	if response.Parts, err = files.Check(ctx, response.Parts); err != nil {
		return delta, err
	}

	response.Dispatch = slices.Clone(response.Dispatch)
	for i := range response.Dispatch {
		if response.Dispatch[i].Parts, err = files.Check(ctx, response.Dispatch[i].Parts); err != nil {
			return delta, err
		}
	}

	delta.Response = &response
	return delta, nil
}

// unownedFiles is the failure of a run whose answer names bytes of others, or of one that could not be checked.
func unownedFiles(err error) error {
	if fault.Is(err, fault.Malformed) {
		return invalidAnswer("the agent's answer breaks a rule", err)
	}
	return fault.RetryIn(0, "the files of the answer cannot be checked", err)
}

// Told returns the message of a turn as its agent is told it, with the history of its thread as far as it is here: unlike a run it asks
// no other server. NotFound when its agent is not here.
func (s *runner) Told(ctx context.Context, turn exchange.TurnRecord) (normalized.Message, error) {
	agent, known := s.options.Agents.Lookup(turn.Agent)
	if !known {
		return normalized.Message{}, fault.Newf(fault.NotFound, "no agent %s here", turn.Agent)
	}
	before, err := s.history.joined(ctx, agent, turn, s.history.kept)
	return before.message, err
}

// invalidAnswer is the failure of a run whose answer breaks a rule; another run would bring the same.
func invalidAnswer(reason string, cause error) error {
	return fault.GiveUp(reason, cause).Coded(normalized.FailedInvalidAnswer)
}

// finish completes the response and holds it to the contract.
func (s *runner) finish(fold *normalized.Fold, turn exchange.TurnRecord) (normalized.Response, error) {
	response, err := fold.Response()
	if err != nil {
		return response, invalidAnswer("the agent's answer is incomplete", err)
	}

	if response, err = response.Completed(turn.Message, s.options.Limits, normalized.Left{}); err != nil {
		return response, invalidAnswer("the agent's answer breaks a rule", err)
	}
	return response, nil
}

// stale does what the agent's policy says about a turn that is older than it may be; ended reports whether the turn's run is
// over with that. The age counts from when the turn was taken up: what the operator released, or someone resumed, is new.
func (s *runner) stale(ctx context.Context, job queue.Job, agent agents.Entry, turn exchange.TurnRecord) (ended bool, err error) {
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
		ctx, record, err := s.begin(ctx, job, &turn)
		if err != nil {
			return true, err
		}
		defer record.end()
		return true, s.replies.reply(ctx, job, turn, record, failure(turn, fault.New(fault.Unavailable, reason).Coded(normalized.FailedTimeout)), reason)
	}

	return false, nil
}

// leave ends the job of a turn that gets no answer now, without a word to its sender.
func (s *runner) leave(ctx context.Context, job queue.Job, turn exchange.TurnRecord, state, reason string) error {
	moved, now := false, time.Now()
	err := s.replies.closeRun(ctx, job, nil, nil, now, func(tx Tx) (err error) {
		moved, err = tx.MoveTurn(ctx, leaveStale.Move(turn.ID, state, reason, now))
		return err
	})
	if err != nil {
		return queue.RetryAfter(again, err)
	}

	if moved {
		s.logState(ctx, turn, state, reason)
		turn.State, turn.Reason = state, reason
		s.broker.finished(turn)
	}
	return queue.ErrSettled
}

// auditURLRemoved is the code of a policy part whose address led away from this server.
const auditURLRemoved = "policy:url_removed"

// confined takes the address out of a policy part that leads off our origin, and records it: a link in a demand for
// money or consent is what a phisher would forge (message contract, section 8). Adapters check again when they render.
// A demand that a turn waits for gets the address of its own page in any case.
func (s *runner) confined(ctx context.Context, turn exchange.TurnRecord, response normalized.Response) (normalized.Response, error) {
	policy := response.Policy()
	if policy == nil || policy.URL == "" || s.options.BaseURL == nil {
		return response, nil
	}

	kept := policy.Confine(s.options.BaseURL)
	if kept.URL != "" {
		return response, nil
	}

	row := auditOf(turn, auditURLRemoved, "the agent's "+policy.Kind+" part pointed to another origin")
	if err := s.options.Store.InTx(ctx, func(tx Tx) error { return tx.Audit(ctx, row) }); err != nil {
		return response, err
	}
	if policypart.Resumable(policy.Kind) {
		return response, nil
	}

	response.Parts = slices.Clone(response.Parts)
	response.Parts[len(response.Parts)-1].Policy = &kept
	return response, nil
}
