package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/telemetry"
	"inbox/normalized"
	"inbox/policypart"
)

var (
	callsEnded = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_dispatches_total",
		Help: "Calls of our agents to other agents that came to an end, by calling agent and outcome (completed, input_required, failed).",
	}, []string{"agent", "outcome"})
	callSeconds = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "inbox_dispatch_seconds", Help: "From storing a call to the other agent's answer.",
		Buckets: []float64{.01, .05, .25, 1, 5, 15, 30, 60, 120},
	}, []string{"agent"})
)

// Caller calls an agent of another server and returns its answer. It may be asked again with the same call after a crash;
// the call's id is the id of the message on the wire. An error is classed by fault: Unavailable and not Permanent is
// tried again, everything else becomes a failed answer with the public text.
type Caller interface {
	Call(ctx context.Context, d exchange.Dispatch) (normalized.Response, error)
}

const (
	// callWithin bounds a call with all its attempts, from its creation.
	callWithin = 2 * time.Minute
	// holdFor is how long a job waits for an agent of this server before it makes room for other calls: the answer may
	// depend on one of them.
	holdFor  = 2 * time.Second
	makeRoom = 500 * time.Millisecond
)

// retryCalls are the waits between attempts to reach an agent; the last one repeats until callWithin.
var retryCalls = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second}

// maxErrorWords bounds the sentence that goes with a failure of another agent.
const maxErrorWords = 4 << 10

// errStillRunning says that the called agent of this server has not answered yet.
var errStillRunning = errors.New("the agent has not answered yet")

// RunDispatch makes one call; it is the queue handler of DispatchKind. Whatever becomes of the call, the turn that waits
// for it goes on: an agent that cannot be reached is an answer, too.
func (s *dispatcher) RunDispatch(ctx context.Context, job queue.Job) error {
	d, err := s.options.Store.Dispatch(ctx, job.Payload)
	if fault.Is(err, fault.NotFound) {
		return queue.GiveUp("the row of the call is gone", err)
	}
	if err != nil {
		return queue.RetryAfter(time.Second, err)
	}

	turn, err := s.options.Store.Turn(ctx, d.TurnID)
	if err != nil {
		return queue.RetryAfter(time.Second, err)
	}

	ctx = telemetry.With(ctx, "turn", d.TurnID, "agent", d.Agent, "dispatch", d.ID, "to", d.To)
	if d.State != exchange.DispatchPending {
		return nil
	}
	if !asking(turn) { // cancelled meanwhile
		return s.finishCall(ctx, job, turn, d, failedCall(d, "dispatch:dropped", "The question was withdrawn."))
	}

	calling := ctx
	if s.options.Tracer != nil {
		calling = telemetry.WithTraceparent(ctx, turn.Trace, true)
	}
	calling, span := s.options.Tracer.Start(calling, "call", telemetry.KindInternal, telemetry.Attribute("inbox.turn", turn.ID), telemetry.Attribute("inbox.agent", d.Agent))
	response, err := s.call(calling, d)
	span.End(failedAs(err))
	if err == nil {
		return s.finishCall(ctx, job, turn, d, s.received(d, response))
	}
	if ctx.Err() != nil { // the lease is lost or the server stops
		return ctx.Err()
	}

	return s.callFailed(ctx, job, turn, d, err)
}

// call asks the agent and waits for its answer, on this server without the network.
func (s *dispatcher) call(ctx context.Context, d exchange.Dispatch) (answer normalized.Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Wrap(fault.Internal, "the call failed", panicError(p))
		}
	}()

	ctx, cancel := context.WithDeadline(ctx, deadlineOf(d))
	defer cancel()
	callee, here, err := s.here(d.From, d.To)
	switch {
	case err != nil:
		return normalized.Response{}, err
	case here:
		return s.callHere(ctx, d, callee)
	case s.options.Caller == nil:
		return normalized.Response{}, fault.GiveUp("agents of other servers cannot be called here", nil)
	}

	return s.options.Caller.Call(ctx, d)
}

// callFailed tries again what may pass while there is time, and answers with a plain sentence otherwise.
func (s *dispatcher) callFailed(ctx context.Context, job queue.Job, turn exchange.TurnRecord, d exchange.Dispatch, cause error) error {
	f := fault.Of(cause)
	left := time.Until(deadlineOf(d))
	wait := max(retryCalls[min(job.Attempt, len(retryCalls))-1], f.RetryAfter)
	switch {
	case errors.Is(cause, errStillRunning) && left > makeRoom:
		return queue.SnoozeFor(makeRoom)
	case f.Kind == fault.Unavailable && !f.Permanent && left > wait:
		return queue.RetryAfter(wait, cause)
	}

	s.options.Logger.WarnContext(ctx, "another agent did not answer", "attempt", job.Attempt, "error", cause)
	code, words := refusal(d, f)
	return s.finishCall(ctx, job, turn, d, failedCall(d, code, words))
}

// codeUnreachable is that of a call that reached no agent.
const codeUnreachable = "dispatch:unreachable"

// refusal says what became of a call in a code and in plain words.
func refusal(d exchange.Dispatch, f *fault.Fault) (code, words string) {
	switch f.Kind {
	case fault.Forbidden, fault.Unauthenticated, fault.RateLimited, fault.Malformed, fault.TooLarge, fault.Unsupported, fault.Conflict:
		return "dispatch:refused", fmt.Sprintf("%s does not take this question: %s", d.To, f.Public)
	}
	if errors.Is(f, errStillRunning) || errors.Is(f, context.DeadlineExceeded) {
		return codeUnreachable, d.To + " did not answer in time."
	}
	return codeUnreachable, d.To + " could not be reached."
}

func failedCall(d exchange.Dispatch, code, words string) normalized.Response {
	return normalized.Response{
		InReplyTo: d.ID, ThreadID: d.ThreadID, Status: normalized.StatusFailed,
		Parts: []normalized.Part{normalized.Text(words)},
		Error: &normalized.ResponseError{Code: code, Message: words},
	}
}

// received makes an answer from outside fit to be kept: as data, with nothing that would steer our own reply.
func (s *dispatcher) received(d exchange.Dispatch, answer normalized.Response) normalized.Response {
	answer.Clean()
	answer.InReplyTo, answer.ThreadID = d.ID, d.ThreadID
	answer.To, answer.Cc, answer.Visibility, answer.Metadata, answer.Dispatch = nil, nil, "", nil, nil

	if policy := answer.Policy(); policy != nil && answer.Outcome() == normalized.StatusCompleted { // a demand is no success
		answer.Status = policypart.ResponseStatus(policy.Kind)
	}
	if answer.Error != nil {
		answer.Error = &normalized.ResponseError{Code: answer.Error.Code, Message: clip.Bytes(answer.Error.Message, maxErrorWords)}
	}

	answer = answer.FitBytes(s.options.Limits, normalized.Left{}, s.options.Limits.Trace)
	if err := normalized.ValidateTrace(answer, s.options.Limits); err != nil {
		return unusable(d)
	}

	return answer
}

// finishCall stores the answer and ends the job. The last answer of a round also wakes the turn, in the same transaction.
func (s *dispatcher) finishCall(ctx context.Context, job queue.Job, turn exchange.TurnRecord, d exchange.Dispatch, answer normalized.Response) error {
	now := time.Now()
	body, err := json.Marshal(map[string]string{"id": d.ID, "to": d.To, "status": answer.Outcome()})
	if err != nil {
		return err
	}

	err = s.options.Store.InTx(ctx, func(tx Tx) error {
		if err := tx.SettleJob(ctx, job.Lease, queue.Outcome{Kind: queue.Done}); err != nil {
			return err
		}

		finished, err := tx.FinishDispatch(ctx, d.ID, answer, now)
		if err != nil || !finished {
			return err
		}

		// The row of the timeline also holds the turn: of two answers at once the second one sees the first.
		event := exchange.Event{Kind: exchange.EventDispatchAnswered, Body: body, At: now}
		if err := tx.AppendEvents(ctx, d.TurnID, []exchange.Event{event}); err != nil {
			return err
		}
		return s.wakeTurn(ctx, tx, turn, now)
	})
	if err != nil {
		return s.unfinished(ctx, job, turn, d, answer, err)
	}

	callsEnded.WithLabelValues(d.Agent, answer.Outcome()).Inc()
	callSeconds.WithLabelValues(d.Agent).Observe(now.Sub(d.CreatedAt).Seconds())
	return queue.ErrSettled
}

// codeUnusable is that of an answer that cannot be kept.
const codeUnusable = "dispatch:unusable"

// unfinished sees to it that a turn never waits for ever: a database that is down is asked again until it is there, an
// answer that it does not take for good is replaced by a word about it.
func (s *dispatcher) unfinished(
	ctx context.Context, job queue.Job, turn exchange.TurnRecord, d exchange.Dispatch, answer normalized.Response, cause error,
) error {
	switch {
	case errors.Is(cause, queue.ErrLeaseLost) || ctx.Err() != nil:
		return cause
	case fault.Is(cause, fault.Unavailable) || answer.Error != nil && answer.Error.Code == codeUnusable:
		return queue.RetryAfter(time.Second, cause)
	}
	s.options.Logger.ErrorContext(ctx, "store the answer of another agent", "error", cause)
	return s.finishCall(ctx, job, turn, d, unusable(d))
}

func unusable(d exchange.Dispatch) normalized.Response {
	return failedCall(d, codeUnusable, d.To+" gave an answer that cannot be understood.")
}

// wakeTurn lets the turn run again when nothing is pending any more. A turn that was cancelled stays as it is.
func (s *dispatcher) wakeTurn(ctx context.Context, tx Tx, turn exchange.TurnRecord, now time.Time) error {
	calls, err := tx.Dispatches(ctx, turn.ID)
	if err != nil || pending(calls) {
		return err
	}
	resumed, err := tx.ResumeTurn(ctx, turn.ID, nil, traceOf(turn, calls, s.options.Limits), now)
	if err != nil || !resumed {
		return err
	}
	return tx.Enqueue(ctx, resumedJob(turn))
}

func pending(calls []exchange.Dispatch) bool {
	for _, d := range calls {
		if d.State == exchange.DispatchPending {
			return true
		}
	}
	return false
}

// here finds the agent of this server behind an address. An address on our domain without an agent is fault.NotFound.
func (s *dispatcher) here(from, to string) (agent agents.Entry, here bool, err error) {
	own, err := identity.ParseAddress(from)
	if err != nil {
		return agent, false, fault.GiveUp("the calling agent has no address", err)
	}

	address, err := identity.ParseAddress(to)
	if err != nil {
		return agent, false, fault.InField("to", "must be @agent@domain")
	}
	if !sameDomain(own.String(), address) {
		return agent, false, nil
	}

	agent, known := s.options.Agents.Lookup(address.Local)
	if !known || !sameDomain(agent.Profile.Address, address) {
		return agent, false, fault.Newf(fault.NotFound, "no agent %s here", to)
	}

	return agent, true, nil
}

// canonical returns the address of one of our agents as it is configured, and any other one as it is.
func (s *dispatcher) canonical(agent agents.Entry, to string) string {
	if callee, here, err := s.here(agent.Profile.Address, to); err == nil && here {
		return callee.Profile.Address
	}
	return to
}

// callHere sends the call through the same door as any message and waits for the answer. The id of the call is that of
// the message: a repeat after a crash finds the turn of the first attempt.
func (s *dispatcher) callHere(ctx context.Context, d exchange.Dispatch, callee agents.Entry) (normalized.Response, error) {
	in, err := s.callOf(d, callee)
	if err != nil {
		return normalized.Response{}, err
	}

	receipt, err := s.accept.Receive(ctx, in)
	if err != nil {
		return normalized.Response{}, err
	}

	hold, cancel := context.WithTimeout(ctx, holdFor)
	defer cancel()
	turn, err := s.watch.Wait(hold, receipt.TurnID)

	if hold.Err() != nil {
		return normalized.Response{}, fault.RetryIn(0, "the agent did not answer in time", errStillRunning)
	}
	if err != nil {
		return normalized.Response{}, fault.RetryIn(0, "the answer cannot be read", err)
	}

	return answerOf(d, turn), nil
}

// fetched is the route of a question whose answer the call reads.
var fetched = json.RawMessage(`{"dispatch":"fetched"}`)

// callOf makes the message of a call to an agent of this server.
func (s *dispatcher) callOf(d exchange.Dispatch, callee agents.Entry) (exchange.Inbound, error) {
	original, err := json.Marshal(struct {
		From  string                `json:"from"`
		To    string                `json:"to"`
		Parts []normalized.Part     `json:"parts"`
		Chain normalized.AgentChain `json:"agent_chain"`
	}{d.From, d.To, d.Parts, d.Chain})
	if err != nil {
		return exchange.Inbound{}, fmt.Errorf("encode call: %w", err)
	}

	chain := d.Chain
	return exchange.Inbound{
		FromAgent: true, Original: original, Channel: exchange.ChannelLocal, Route: fetched,
		Message: normalized.Message{
			ID: d.ID, ThreadID: d.ThreadID, Sender: s.caller(d, callee), Recipient: callee.Profile.Address, Parts: d.Parts,
			RecipientCapabilities: normalized.RecipientCapabilities{
				MentionRelay: normalized.MentionRelay{Kind: normalized.RelayNone}, AgentChain: &chain,
			},
			ReceivedVia: normalized.ViaA2A, ReceivedAt: identity.Now(), Raw: normalized.Raw{MediaType: "application/json"},
		},
	}, nil
}

// caller is our own agent as a sender. Nothing went over a wire: what vouches for it is this process, as it does for a
// peer with a token of ours.
func (s *dispatcher) caller(d exchange.Dispatch, callee agents.Entry) normalized.Sender {
	own, _ := identity.ParseAddress(d.From) // here has parsed it
	evidence := identity.Transport(identity.TransportProof{
		Domain: own.Domain, Subject: own.Acct(), Method: identity.MethodLocalAgent, Assurance: identity.AssuranceAgent, Addressed: identity.AddressedLocal,
		Recipient: callee.Profile.Address, IssuedAt: d.CreatedAt,
	})

	evidence.OnBehalfOf = onBehalfOf(d.Sender)
	sender := normalized.Sender{
		Address: identity.Stated(d.From), AuthMethod: normalized.AuthA2AOAuth, Verified: true, Identities: []identity.Evidence{evidence},
	}

	if agent, known := s.options.Agents.Lookup(d.Agent); known {
		sender.DisplayName = agent.Profile.DisplayName
	}
	return sender
}

// onBehalfOf names for whom an agent acts: those for whom the sender acted, upstream first, then the sender. Who proved
// nothing is not named.
func onBehalfOf(sender normalized.Sender) []string {
	proven := sender.Speaker()
	if proven == nil {
		return nil
	}
	subjects := slices.Clone(proven.OnBehalfOf)
	if !slices.Contains(subjects, proven.Subject) {
		subjects = append(subjects, proven.Subject)
	}
	return subjects[:min(len(subjects), identity.MaxEvidence)]
}

// answerOf reads the answer of an agent of this server off its turn. What it demands, or who must let the question in,
// is the answer: the calling agent is the one who was asked.
func answerOf(d exchange.Dispatch, turn exchange.TurnRecord) normalized.Response {
	switch {
	case turn.State == exchange.StateSilent:
		return normalized.Response{Silent: true}
	case turn.State == exchange.StateHeld:
		return failedCall(d, "dispatch:held", d.To+" does not answer before its operator lets the question in.")
	case turn.Response == nil:
		return failedCall(d, "dispatch:"+turn.State, d.To+" did not answer.")
	}

	answer := *turn.Response
	if turn.State == exchange.StateWaiting {
		answer.Status = normalized.StatusInputRequired
	}
	return answer
}

// deadlineOf is when a call is given up.
func deadlineOf(d exchange.Dispatch) time.Time { return d.CreatedAt.Add(callWithin) }

// traceOf returns the answers that a turn has got as its agent sees them: one as it is, several one after the other, each
// behind a text that says whose it is. Answers of earlier rounds stay in it, because an agent need not remember its own
// runs. nil when the agent asked for none itself.
func traceOf(turn exchange.TurnRecord, calls []exchange.Dispatch, limits normalized.Limits) *normalized.Response {
	var answers []exchange.Dispatch
	for _, d := range calls {
		if d.Number > 0 && !d.Combine && d.Response != nil {
			answers = append(answers, d)
		}
	}

	switch len(answers) {
	case 0:
		return nil
	case 1:
		return answers[0].Response
	}

	trace := normalized.Response{InReplyTo: turn.Message.ID, ThreadID: turn.Message.ThreadID, Status: normalized.StatusCompleted}
	share := limits.Trace / len(answers)
	for _, d := range answers {
		answer := d.Response.FitBytes(limits, normalized.Left{}, share-len(d.To)-256) // room for the name and the fields around
		trace.Parts = append(append(trace.Parts, normalized.Text(d.To+":")), answer.Parts...)
		trace.Status = worse(trace.Status, answer.Outcome())
		if trace.Error == nil {
			trace.Error = answer.Error
		}
	}

	if trace.Status != normalized.StatusFailed {
		trace.Error = nil
	}
	trace = trace.FitBytes(limits, normalized.Left{}, limits.Trace)
	return &trace
}

// answersOf returns the answers one by one. A first run has asked no agent.
func (s *runner) answersOf(ctx context.Context, turn exchange.TurnRecord) (answers []agents.Answer, err error) {
	if turn.Message.ReceivedTrace == nil {
		return nil, nil
	}

	calls, err := s.options.Store.Dispatches(ctx, turn.ID)
	if err != nil {
		return nil, err
	}

	for _, d := range calls {
		if d.Number > 0 && !d.Combine && d.Response != nil {
			answers = append(answers, agents.Answer{To: d.To, Response: *d.Response})
		}
	}
	return answers, nil
}

// worse joins the outcomes of several answers: one that failed or wants something first makes no success of all.
func worse(a, b string) string {
	for _, status := range []string{normalized.StatusFailed, normalized.StatusInputRequired} {
		if a == status || b == status {
			return status
		}
	}
	return normalized.StatusCompleted
}
