package pipeline

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"inbox/agents"
	"inbox/engine/moderation"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/telemetry"
	"inbox/normalized"
)

// inlineOriginal is the largest original that is stored in the message's own transaction; larger ones are written to
// the blob store first, because a second fsync costs more than checking a DKIM signature.
const inlineOriginal = 64 << 10

// acceptor takes messages in: Receive, and the rules, limits and continuations that it asks.
type acceptor struct {
	*core
	replies *replier
	cancels *canceller
	refused refusals
}

// Receive accepts one message: validate, the operator's rules, dedupe, message and job in one transaction. When it
// returns without error the message is durable and the peer may hear its success answer. Errors are *fault.Fault:
// Malformed and TooLarge name the field, NotFound = no such agent, Forbidden = refused by policy, Conflict = the id
// was used for another message, Unavailable = nothing was stored, the peer should repeat.
func (s *acceptor) Receive(ctx context.Context, in exchange.Inbound) (exchange.Receipt, error) {
	if s.options.Tracer != nil {
		ctx = telemetry.WithTraceparent(ctx, in.Trace.Parent, in.Trace.Decided)
	}
	ctx, span := s.options.Tracer.Start(ctx, "accept", telemetry.KindServer, telemetry.Attribute("inbox.channel", in.Channel))
	receipt, outcome, err := s.receive(ctx, in)
	s.refused.note(outcome, err, time.Now())
	span.Set(telemetry.Attribute("inbox.outcome", outcome), telemetry.Attribute("inbox.turn", receipt.TurnID), telemetry.Attribute("inbox.recipient", clip.Bytes(in.Message.Recipient, maxLogged)))
	span.End(failedAs(err))
	accepted.WithLabelValues(in.Message.ReceivedVia, outcome).Inc()
	return receipt, err
}

// failedAs returns the kind of a failure for a span: its words may be about the message.
func failedAs(err error) string {
	if err == nil || errors.Is(err, queue.ErrSettled) {
		return ""
	}
	return string(fault.Of(err).Kind)
}

// acceptance is one message on its way in: what the stages find out about it, until one of them says what became of it.
type acceptance struct {
	in       exchange.Inbound
	agent    agents.Entry
	networks []string // by which a sender without proof is counted, the narrowest first

	admitted  ruling
	continues *continuation           // nil = the message continues no parked turn
	turn      exchange.TurnRecord     // the row, from limits on
	notice    *finalNotice            // nil = the agent answers, or nothing does
	counted   *moderation.Reservation // against the limits; kept or given back with the message
	audit     []exchange.AuditRecord  // rows that are stored with the turn
	original  Original
	staged    []func() error // remove what the blob store has of the message; emptied once the message may be stored
	receipt   exchange.Receipt
}

// Outcomes of an acceptance, for the metric; that of a stored message is the state of its turn.
const (
	outcomeNext      = "" // the next stage has the word
	outcomeRefused   = "refused"
	outcomeDuplicate = "duplicate"
	outcomeError     = "error"
)

// stage is one step of the acceptance. It refuses the message by an error (outcomeRefused unless it says otherwise), or ends the
// acceptance by another outcome and the receipt.
type stage struct {
	name string
	what string // for readers; docs/architecture.md prints it
	run  func(*acceptor, context.Context, *acceptance) (outcome string, err error)
}

// stages are those of the acceptance in their order: what costs least comes first, and nothing is changed before the last one.
var stages = []stage{
	{"validate", "the message keeps the contract and its agent is here", (*acceptor).validate},
	{"availability", "the agent takes messages now: it is not paused, the disk and its backlog are not full", (*acceptor).checkAvailable},
	{"size", "a sender without proof sends no more than it may", (*acceptor).checkSize},
	{"chain", "agents that call agents stay below their ceiling of hops", (*acceptor).checkChain},
	{"keys", "addresses and codes of this server that open something are hidden in what the message says", (*acceptor).hideKeys},
	{"admission", "the operator's lists and the agent's access rules: accepted, held, silent or refused", (*acceptor).checkAdmission},
	{"continuation", "the parked turn that the message continues, and whether it meets what was demanded", (*acceptor).checkContinuation},
	{"limits", "stop words, rates and budgets, counted by a reservation that ends with the transaction", (*acceptor).checkLimits},
	{"files", "large files and a large original, in the blob store before the message: removed again if it is not stored", (*acceptor).stageFiles},
	{"store", "message, job and all else of it in one transaction", (*acceptor).keep},
}

func (s *acceptor) receive(ctx context.Context, in exchange.Inbound) (exchange.Receipt, string, error) {
	a := &acceptance{in: in}
	defer func() { a.counted.Release() }() // unless it was committed: on every way out, also of a panic

	for _, one := range stages {
		outcome, err := one.run(s, ctx, a)
		if err == nil && outcome == outcomeNext {
			continue
		}

		s.withdraw(ctx, a)
		if err != nil {
			return exchange.Receipt{}, cmp.Or(outcome, outcomeRefused), err
		}
		return a.receipt, outcome, nil
	}
	return exchange.Receipt{}, outcomeError, fault.New(fault.Internal, "the last stage said nothing") // not reached: it always does
}

// StageTable returns the stages as a table of Markdown.
func StageTable() string {
	var table strings.Builder
	table.WriteString("| stage | what it sees to |\n|---|---|\n")
	for _, one := range stages {
		fmt.Fprintf(&table, "| %s | %s |\n", one.name, one.what)
	}
	return table.String()
}

// validate cleans and validates the message and finds its agent.
func (s *acceptor) validate(ctx context.Context, a *acceptance) (string, error) {
	message := &a.in.Message
	if message.ReceivedAt.IsZero() {
		message.ReceivedAt = identity.Now()
	}

	if a.in.Channel == "" {
		return "", fault.InField("channel", "is missing: an adapter names the channel by which it answers")
	}

	if message.Surface == nil {
		message.Surface = new(normalized.Surface)
	}

	if message.Surface.Channel == "" { // a connector names its product
		message.Surface.Channel = a.in.Channel
	}

	dropUnaddressed(&a.in)
	message.Clean()
	if err := normalized.Validate(*message, s.options.Limits); err != nil {
		return "", s.refuseChain(ctx, a.in, err) // the contract bounds hops, too
	}

	address, err := identity.ParseAddress(message.Recipient)
	if err != nil {
		return "", fault.InField("recipient", "must be @agent@domain")
	}

	agent, known := s.options.Agents.Lookup(address.Local)
	if !known || !sameDomain(agent.Profile.Address, address) {
		return "", fault.Newf(fault.NotFound, "no agent %s here", message.Recipient)
	}

	a.agent = agent
	return outcomeNext, nil
}

// dropUnaddressed takes away evidence that does not prove that the message was meant for this agent: a signed mail or note can be
// sent on by anyone who has seen it. Without evidence left the sender is unproven.
func dropUnaddressed(in *exchange.Inbound) {
	sender := &in.Message.Sender
	if !slices.ContainsFunc(sender.Identities, unaddressed) {
		return
	}

	kept := make([]identity.Evidence, 0, len(sender.Identities))
	for _, evidence := range sender.Identities {
		if !unaddressed(evidence) {
			kept = append(kept, evidence)
			continue
		}
		in.Rejected = append(in.Rejected, identity.Rejection{
			Code: identity.CodeNotAddressed, Reason: "nothing that the sender signed says that the message was meant for this agent",
			Issuer: evidence.Issuer, Subject: evidence.Subject, Method: evidence.Method,
		})
	}

	sender.Identities = kept
	if len(kept) == 0 {
		sender.Identities, sender.Verified, sender.AuthMethod, sender.KeyID = nil, false, normalized.AuthNone, ""
	}
}

func unaddressed(evidence identity.Evidence) bool { return evidence.Addressed() == "" }

// sameDomain reports whether the address is on the agent's domain; mail leaves the port of a development domain out.
func sameDomain(agentAddress string, given identity.Address) bool {
	own, err := identity.ParseAddress(agentAddress)
	return err == nil && (own.Domain == given.Domain || identity.HostOf(own.Domain) == given.Domain)
}

func (s *acceptor) checkAvailable(_ context.Context, a *acceptance) (string, error) {
	return outcomeNext, s.open(a.agent.Profile.Name, len(a.in.Message.Sender.Identities) > 0)
}

func (s *acceptor) checkSize(_ context.Context, a *acceptance) (string, error) {
	return outcomeNext, s.smallEnough(a.in)
}

func (s *acceptor) checkChain(ctx context.Context, a *acceptance) (string, error) {
	if err := s.chain(a.agent, &a.in); err != nil {
		return "", s.refuseChain(ctx, a.in, err)
	}
	return outcomeNext, nil
}

// checkAdmission asks the operator's rules. The proofs of a message that was taken before may be used up by now, evidence and
// settlements alike, so a refusal must not be the answer to its repeat.
func (s *acceptor) checkAdmission(ctx context.Context, a *acceptance) (string, error) {
	a.admitted = s.admit(a.agent, &a.in)
	a.audit = slices.Concat(a.admitted.audit, disbelief(a.agent.Profile.Name, a.in))
	if a.admitted.refusal == nil && a.in.Settlement == nil {
		return outcomeNext, nil
	}

	if outcome, err := s.checkRepeat(ctx, a); err != nil || outcome != outcomeNext {
		return outcome, err
	}
	if a.admitted.refusal != nil {
		return "", s.refuse(ctx, a.admitted.refusal, a.audit)
	}
	return outcomeNext, nil
}

// checkRepeat ends the acceptance of a message that was accepted before.
func (s *acceptor) checkRepeat(ctx context.Context, a *acceptance) (string, error) {
	receipt, repeated, err := s.repeat(ctx, a.agent, a.in)
	if err != nil || repeated {
		a.receipt = receipt
		return outcomeDuplicate, err
	}
	return outcomeNext, nil
}

func (s *acceptor) checkContinuation(ctx context.Context, a *acceptance) (_ string, err error) {
	a.continues, err = s.continues(ctx, a.agent, &a.in)
	return outcomeNext, err
}

// checkLimits makes the row of the turn and counts it.
func (s *acceptor) checkLimits(ctx context.Context, a *acceptance) (string, error) {
	a.turn = newTurn(ctx, a.agent, a.in, a.admitted)
	if a.networks = s.networks(a.in); len(a.networks) > 0 {
		a.turn.Network = a.networks[0]
	}

	a.continues.settleTurn(&a.turn)

	limited, err := s.limit(ctx, a.agent, a.in, &a.turn, a.networks)
	a.counted, a.notice = limited.counted, limited.last
	a.audit = append(a.audit, limited.audit...)
	if limited.repeated != nil && err == nil {
		a.receipt = *limited.repeated
		return outcomeDuplicate, nil
	}

	return outcomeNext, err
}

// stageFiles writes what is too large for the message's own transaction. The message passed every other check by then. If there is
// anything to write, it also has to be new and to have room, which the transaction decides for all others.
func (s *acceptor) stageFiles(ctx context.Context, a *acceptance) (string, error) {
	a.original = s.original(&a.turn.Message, a.in)
	large := len(a.in.Original) > inlineOriginal
	if !large && len(a.in.Files) == 0 {
		return outcomeNext, nil
	}
	if outcome, err := s.checkStorable(ctx, a); err != nil || outcome != outcomeNext {
		return outcome, err
	}

	for _, content := range a.in.Files {
		if err := s.stage(ctx, a, content); err != nil {
			return outcomeError, err
		}
	}
	if large {
		if err := s.stage(ctx, a, a.in.Original); err != nil {
			return outcomeError, err
		}
	}
	return outcomeNext, nil
}

// checkStorable looks for what would keep the transaction from storing the message. Another message may still be faster.
func (s *acceptor) checkStorable(ctx context.Context, a *acceptance) (string, error) {
	if a.in.Claim == nil && a.in.Task == nil { // those have an order of their own among what is there already
		if outcome, err := s.checkRepeat(ctx, a); err != nil || outcome != outcomeNext {
			return outcome, err
		}
	}

	room, counts := s.unanswered(a.turn, storedBytes(a.in))
	if !counts {
		return outcomeNext, nil
	}
	fits := false
	err := s.options.Store.InTx(ctx, func(tx Tx) (err error) {
		fits, err = tx.HasRoom(ctx, room)
		return err
	})
	switch {
	case err != nil:
		return outcomeError, unavailable("look for room", err)
	case !fits:
		return "", errNoRoom()
	}
	return outcomeNext, nil
}

func (s *acceptor) stage(ctx context.Context, a *acceptance, content []byte) error {
	withdraw, err := s.options.Blobs.Stage(ctx, content)
	if err != nil {
		if fault.Is(err, fault.TooLarge) {
			return err
		}
		return unavailable("store a file of the message", err)
	}
	if withdraw != nil {
		a.staged = append(a.staged, withdraw)
	}
	return nil
}

// withdraw removes the files of a message that was not stored. Files that stay because that fails are swept like those of a
// process that died.
func (s *acceptor) withdraw(ctx context.Context, a *acceptance) {
	for _, remove := range a.staged {
		if err := remove(); err != nil {
			s.options.Logger.WarnContext(ctx, "a file of a message that was not stored stays until the next sweep", "error", err)
		}
	}
}

// keep stores the message and says what became of it.
func (s *acceptor) keep(ctx context.Context, a *acceptance) (string, error) {
	stored, inserted, err := s.store(ctx, a)
	if taken, is := errors.AsType[*claimed](err); is {
		a.receipt = exchange.Receipt{Claimed: taken.instead}
		return outcomeDuplicate, nil
	}

	if errors.Is(err, errTaskTaken) {
		a.receipt = exchange.Receipt{TaskTaken: true}
		return outcomeDuplicate, nil
	}

	if fault.Is(err, fault.RateLimited) { // it waits here already
		if outcome, err := s.checkRepeat(ctx, a); err != nil || outcome != outcomeNext {
			return outcome, err
		}
	}

	switch {
	case fault.Is(err, fault.Conflict), fault.Is(err, fault.Malformed), fault.Is(err, fault.Forbidden), fault.Is(err, fault.RateLimited):
		return outcomeRefused, err
	case fault.OutcomeOf(err) == fault.Unknown:
		a.counted.Commit() // the message may be stored, and then its repeat is not counted
		a.staged = nil
		return outcomeError, unavailable("accept message", err)
	case err != nil:
		return outcomeError, unavailable("accept message", err)
	}

	a.receipt = exchange.Receipt{TurnID: stored.ID, New: inserted, State: stored.State, Reference: stored.Reference}
	if !inserted {
		return outcomeDuplicate, nil
	}

	a.counted.Commit()
	a.staged = nil
	return stored.State, nil
}

// repeat finds the first copy of a message. Its proofs may be used up by now, evidence and settlements alike, so a
// refusal must not be the answer to a message that was taken before.
func (s *acceptor) repeat(ctx context.Context, agent agents.Entry, in exchange.Inbound) (exchange.Receipt, bool, error) {
	sent, err := s.options.Store.SentMessages(ctx, agent.Profile.Name, in.Message.ID, in.Message.Sender.Principal())
	if err != nil {
		return exchange.Receipt{}, false, unavailable("look for a repeated message", err)
	}

	for _, one := range sent {
		turn, err := s.options.Store.Turn(ctx, one.TurnID)
		if err != nil {
			return exchange.Receipt{}, false, unavailable("read a repeated message", err)
		}
		if turn.Carrier == carrierOf(in.Message.Sender) {
			return exchange.Receipt{TurnID: turn.ID, State: turn.State, Reference: turn.Reference}, true, nil
		}
	}
	return exchange.Receipt{}, false, nil
}

// carrierOf is TurnRecord.Carrier for a sender.
func carrierOf(sender normalized.Sender) string {
	if !sender.Carried() {
		return ""
	}
	return sender.Carrier()
}

// newTurn makes the row in the state of its admission.
func newTurn(ctx context.Context, agent agents.Entry, in exchange.Inbound, decided ruling) exchange.TurnRecord {
	now := time.Now()
	turn := exchange.TurnRecord{
		ID: newID(), Agent: agent.Profile.Name, Principal: in.Message.Sender.Principal(), Carrier: carrierOf(in.Message.Sender), ThreadID: in.Message.ThreadID,
		Reference: in.Reference, Begins: in.NewReference, State: decided.state, Reason: decided.reason, Channel: in.Channel, Message: in.Message, Route: in.Route,
		AcceptedAt: now, UpdatedAt: now, Trace: telemetry.Traceparent(ctx),
		Conversation: in.Conversation, Request: telemetry.Request(ctx), Audience: in.Audience,
		Shared: agent.Settings.HistoryScope == agents.HistoryPerson && in.Message.Sender.Speaker() != nil &&
			!guarded(in), // an agent acts for many people
	}

	turn.Message.Recipient = agent.Profile.Address
	turn.Message.History = nil
	return turn
}

// original computes the digest of the native bytes. Its body is nil if they are too large for the message's own transaction.
func (s *acceptor) original(message *normalized.Message, in exchange.Inbound) Original {
	sum := sha256.Sum256(in.Original)
	original := Original{Digest: hex.EncodeToString(sum[:]), MediaType: message.Raw.MediaType, Body: in.Original}
	message.Raw.Ref, message.Raw.URL = "sha256:"+original.Digest, ""
	s.options.Closed.Admit(rowBytes + 2*int64(min(len(in.Original), inlineOriginal))) // the original and the message made of it

	if len(in.Original) > inlineOriginal {
		original.Body = nil
	}
	return original
}

// claimed rolls back a message whose claim met another document.
type claimed struct{ instead []byte }

func (c *claimed) Error() string { return errTaken.Error() }

// claim takes the place of a document that stands or falls with the message.
func (a *acceptance) claim(ctx context.Context, tx Tx) error {
	if a.in.Claim == nil {
		return nil
	}
	instead, err := tx.Claim(ctx, *a.in.Claim)
	if err == nil && instead != nil {
		return &claimed{instead}
	}
	return err
}

// errTaskTaken rolls back a message that would begin a run whose id is taken.
var errTaskTaken = errors.New("the run was begun before")

// beginTask stores the run that the message begins.
func (a *acceptance) beginTask(ctx context.Context, tx Tx, turn exchange.TurnRecord) error {
	if a.in.Task == nil {
		return nil
	}

	run := *a.in.Task
	run.TurnID = turn.ID
	if inserted, err := tx.InsertTaskRun(ctx, run); err != nil || !inserted {
		return cmp.Or(err, errTaskTaken)
	}
	return nil
}

// store writes turn and job in one transaction, and ends the parked turn that the message continues.
func (s *acceptor) store(ctx context.Context, a *acceptance) (stored exchange.TurnRecord, inserted bool, err error) {
	if err := s.planFinalNotice(ctx, a.continues, a.turn); err != nil {
		return a.turn, false, err
	}

	encoded, err := a.turn.Message.AppendJSON(nil) // here, because a transaction keeps others waiting
	if err != nil {
		return a.turn, false, fmt.Errorf("encode message: %w", err)
	}

	reservation := s.reserve(a)
	if a.turn.State == exchange.StateAccepted {
		s.broker.expect(a.turn, a.remembered(), a.in.NewThread, reservation != nil)
	}

	var dead []exchange.AuditRecord
	err = s.options.Store.InTx(ctx, func(tx Tx) (err error) {
		turn := a.turn
		turn.Encoded = encoded
		if guarded(a.in) { // another agent wrote it
			turn.Encoded = nil // the guard changes the message
			if dead, err = s.guard(ctx, tx, a.agent, &turn); err != nil {
				return err
			}
		}

		room, counts := s.unanswered(turn, storedBytes(a.in))
		if counts { // before anything is changed: to undo it costs others their common transaction
			if fits, err := tx.HasRoom(ctx, room); err != nil || !fits {
				return cmp.Or(err, errNoRoom())
			}
		}

		if err = a.claim(ctx, tx); err != nil {
			return err
		}

		stored, inserted, err = tx.InsertTurn(ctx, turn, a.original)
		if err != nil || !inserted {
			return err
		}
		if err = a.beginTask(ctx, tx, turn); err != nil {
			return err
		}

		if counts {
			if fits, err := tx.KeepUnanswered(ctx, room); err != nil || !fits {
				return cmp.Or(err, errNoRoom())
			}
		}

		if err := auditAll(ctx, tx, turn.ID, slices.Concat(a.audit, dead)); err != nil {
			return err
		}
		if err := a.notice.store(ctx, tx); err != nil {
			return err
		}
		if err := a.continues.store(ctx, tx, turn); err != nil || turn.State != exchange.StateAccepted {
			return err
		}
		if reservation != nil {
			return tx.EnqueueLeased(ctx, job(turn), reservation.Owner, reservation.Lease)
		}

		return tx.Enqueue(ctx, job(turn))
	})
	if err != nil || !inserted || stored.State != exchange.StateAccepted { // a job that may be stored runs when its lease ends
		s.broker.forget(a.turn.ID)
		if reservation != nil {
			reservation.Free()
		}
	}

	if err == nil && inserted {
		s.logState(ctx, stored, stored.State, stored.Reason) // before its run begins
		if reservation != nil && stored.State == exchange.StateAccepted {
			reservation.Start(job(stored))
		}
		countStopped(dead)
		a.notice.committed()
	}

	if err == nil && inserted && a.continues != nil {
		s.logState(ctx, a.continues.parked, exchange.StateCancelled, "taken up by the message of turn "+stored.ID)
		s.broker.notify(a.continues.parked.ID)
	}

	return stored, inserted, err
}

// reserve keeps a place for the run of a message that begins a thread, so that no worker has to find its job. Other messages
// wait for their turn in the thread.
func (s *acceptor) reserve(a *acceptance) *queue.Reservation {
	if !a.in.NewThread || a.turn.State != exchange.StateAccepted || s.options.Reserve == nil {
		return nil
	}
	return s.options.Reserve(job(a.turn))
}

// remembered says how large the message is for the broker. What guard may change is read from its row.
func (a *acceptance) remembered() int {
	if guarded(a.in) {
		return maxRemembered + 1
	}
	return len(a.in.Original)
}

// job is the run of a turn. Agents share the places of runs, and the senders of an agent those of the agent.
func job(turn exchange.TurnRecord) queue.NewJob {
	return queue.NewJob{
		ID: turn.ID, Kind: JobKind, Partition: Partition(turn.Agent, turn.ThreadID), Payload: turn.ID,
		Group: exchange.TurnGroup(turn.Agent, exchange.Requires(turn.Route)), Member: turn.BroughtBy(), Guest: len(turn.Message.Sender.Identities) == 0,
	}
}

// unavailable makes any storage trouble a fault that tells the peer to come again.
func unavailable(operation string, err error) error {
	return &fault.Fault{
		Kind: fault.Unavailable, Public: "the server cannot store messages right now", RetryAfter: 30 * time.Second,
		Cause: fmt.Errorf("%s: %w", operation, err),
	}
}
