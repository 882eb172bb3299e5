package pipeline

import (
	"context"
	"errors"
	"time"

	"inbox/agents"
	"inbox/engine/delivery"
	"inbox/engine/demand"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
	"inbox/policypart"
)

// Demands is what the pipeline needs of engine/demand.
type Demands interface {
	// Issue makes the record of a demand that the pipeline stores together with the parked turn. Its Part is what the
	// asker gets. Conflict when the turn has demanded too often.
	Issue(turn exchange.TurnRecord, part policypart.Part) (policypart.Issuance, error)
	// Challenge reports whether the turn goes on with the link of two addresses; the part is the demand for consent on this side.
	Challenge(ctx context.Context, turn exchange.TurnRecord) (part policypart.Part, answers bool, err error)
	// Unlink ends what makes the sender one person with others for the agent; the sentence is for the sender. ended is false if there
	// was nothing to end.
	Unlink(ctx context.Context, turn exchange.TurnRecord) (sentence string, ended bool, err error)
	// Offer holds what a message offers against the open demand of the parked turn: the eight checks. Forbidden with the
	// code when it does not meet it; Ending.Audit is then the row to store.
	Offer(ctx context.Context, in exchange.Inbound, parked exchange.TurnRecord) (demand.Ending, error)
	// Captured returns the response of a run whose payment capture had begun before the process died.
	Captured(ctx context.Context, turn exchange.TurnRecord) (response normalized.Response, begun bool, err error)
	Approvals
	// Capture takes the money for a completed response and returns the response to store: the same one, or a failed one.
	Capture(ctx context.Context, turn exchange.TurnRecord, response normalized.Response) (normalized.Response, error)
}

// errNoDemands is met where no service for demands is configured.
var errNoDemands = errors.New("this server is not set up for demands")

// noDemands stands in where Options.Demands is nil.
type noDemands struct{ noApprovals }

func (noDemands) Issue(exchange.TurnRecord, policypart.Part) (policypart.Issuance, error) {
	return policypart.Issuance{}, errNoDemands
}

func (noDemands) Challenge(context.Context, exchange.TurnRecord) (policypart.Part, bool, error) {
	return policypart.Part{}, false, nil
}

func (noDemands) Unlink(context.Context, exchange.TurnRecord) (string, bool, error) {
	return "", false, nil
}

func (noDemands) Offer(context.Context, exchange.Inbound, exchange.TurnRecord) (demand.Ending, error) {
	return demand.Ending{}, fault.New(fault.Forbidden, "state:unknown")
}

func (noDemands) Captured(context.Context, exchange.TurnRecord) (response normalized.Response, begun bool, err error) {
	return response, false, nil
}

func (noDemands) Capture(_ context.Context, _ exchange.TurnRecord, response normalized.Response) (normalized.Response, error) {
	return response, nil
}

// waitingFor is the reason of a parked turn: its first word says for what it waits.
func waitingFor(part policypart.Part) string {
	if part.Code == policypart.CodeApproval || part.Code == policypart.CodeApprovalReply {
		return waitingForApproval(part)
	}

	word := map[string]string{
		policypart.ConsentRequired: "consent", policypart.Unauthorized: "auth", policypart.PaymentRequired: "payment",
	}[part.Kind]

	if part.Code == "" {
		return word
	}
	return word + " (" + part.Code + ")"
}

// park lets a turn wait for its asker: the demand is stored and sent in the transaction that ends the job, so that a
// crash leaves either everything or a turn that runs again. The turn holds no worker while it waits.
func (s *runner) park(ctx context.Context, job queue.Job, turn exchange.TurnRecord, record *runRecord, response normalized.Response) error {
	issuance, err := s.options.Demands.Issue(turn, *response.Policy())
	if err != nil {
		wrong := invalidAnswer("the agent's demand cannot be made", err)
		return s.replies.reply(ctx, job, turn, record, failure(turn, wrong), "issue demand: "+err.Error())
	}
	if issuance.Purpose == policypart.PurposeApproval {
		return s.await(ctx, job, turn, record, issuance)
	}

	parts := append([]normalized.Part(nil), response.Parts...)
	parts[len(parts)-1].Policy = &issuance.Part
	response.Parts = parts
	reply := s.replies.newReply(turn, response)
	reply.Notice = turn.Attempt // no two demands of a turn come from the same run
	return s.replies.conclude(ctx, job, record, ending{
		turn: turn, reply: reply, state: exchange.StateWaiting, reason: waitingFor(issuance.Part),
		more: func(ctx context.Context, tx Tx) error { return tx.InsertDemand(ctx, issuance) },
	})
}

// reminded answers a bare yes or no that follows a demand in its conversation. Words do not decide a demand (message contract, section
// 9), and an agent that is given one would not know what it is about.
func (s *runner) reminded(ctx context.Context, turn exchange.TurnRecord) (response normalized.Response, reminds bool, err error) {
	if _, bare := demand.ReadDecision(turn.Message); !bare {
		return response, false, nil
	}

	newest, err := s.options.Store.Turns(ctx, exchange.TurnFilter{
		Agent: turn.Agent, Principal: turn.Principal, ThreadID: turn.ThreadID, ByArrival: true, Limit: 2,
	})
	if err != nil || len(newest) < 2 || newest[0].ID != turn.ID || newest[1].State != exchange.StateWaiting {
		return response, false, err
	}

	asked, found, err := s.options.Store.DemandOfTurn(ctx, newest[1].ID)
	if err != nil || !found {
		return response, false, err
	}
	sentence, open := demand.Reminder(asked, time.Now())
	if !open {
		return response, false, nil
	}

	response.Visibility, response.Parts = normalized.VisibilityDirect, []normalized.Part{normalized.Text(sentence)}
	return response.Answering(turn.Message), true, nil
}

// settlement is one demand.Ending made ready for the transaction.
type settlement struct {
	demand.Ending
	turn       exchange.TurnRecord
	reply      exchange.Reply // with Response
	nativeID   string
	deliveries []delivery.Record
	told       bool // the transaction ended the turn
	later      bool // this process has no way to the asker: a server that has tells them
}

// settler ends demands of parked turns.
type settler struct {
	*core
	replies *replier
}

// Settle ends demands, all of them in one transaction: each demand's row changes, and its parked turn runs again by
// itself or ends with a last word to the asker. Conflict when one of the demands was settled before, or when a turn
// that is to run again does not wait any more: then nothing happened.
func (s *settler) Settle(ctx context.Context, endings ...demand.Ending) error {
	settlements := make([]settlement, 0, len(endings))
	for _, one := range endings {
		prepared, err := s.prepare(ctx, one)
		if err != nil {
			return err
		}
		settlements = append(settlements, prepared)
	}

	err := s.options.Store.InTx(ctx, func(tx Tx) error {
		for i := range settlements {
			if err := settlements[i].store(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}

	for i := range settlements {
		s.announce(ctx, &settlements[i])
	}

	return nil
}

// announce tells of a settlement that is committed.
func (s *settler) announce(ctx context.Context, p *settlement) {
	if p.told {
		s.logState(ctx, p.turn, p.State, endReason(p.Issuance))
	}
	s.broker.notify(p.turn.ID)
}

// prepare reads the turn and plans the last word.
func (s *settler) prepare(ctx context.Context, ending demand.Ending) (settlement, error) {
	prepared := settlement{Ending: ending}
	turn, err := s.options.Store.Turn(ctx, ending.Issuance.TurnID)
	if err != nil {
		return prepared, err
	}

	prepared.turn = turn
	if ending.Response == nil {
		return prepared, nil
	}
	if prepared.later = s.options.Channels.Empty(); prepared.later {
		return prepared, nil
	}

	prepared.reply = s.replies.newReply(turn, ending.Response.Answering(turn.Message))
	plan, err := s.replies.plan(ctx, prepared.reply)
	if err != nil {
		return prepared, err
	}

	prepared.reply = planned(prepared.reply, plan)
	prepared.nativeID, prepared.deliveries = plan.NativeID, deliveriesOf(ctx, prepared.reply, plan)
	return prepared, nil
}

func (p *settlement) store(ctx context.Context, tx Tx) error {
	changed, err := tx.SettleDemand(ctx, p.Issuance, p.From, p.Read)
	if err != nil {
		return err
	}
	if !changed {
		return fault.New(fault.Conflict, policypart.CodeUsed)
	}

	if p.Link != nil {
		if err := tx.PutLink(ctx, *p.Link); err != nil {
			return err
		}
	}

	if err := auditAll(ctx, tx, p.turn.ID, p.Audit); err != nil {
		return err
	}

	switch {
	case p.Resume:
		return p.resume(ctx, tx)
	case p.later:
		return tx.Enqueue(ctx, lastWordJob(p.Issuance))
	case p.Response != nil:
		return p.tell(ctx, tx)
	}

	return nil
}

// resume queues the turn again. The job gets a new id: it runs behind what arrived in the thread meanwhile.
func (p *settlement) resume(ctx context.Context, tx Tx) error {
	moved, err := tx.ResumeTurn(ctx, p.turn.ID, p.Issuance.Resolution, nil, time.Now())
	if err != nil {
		return err
	}
	if !moved {
		return fault.New(fault.Conflict, "the message does not wait any more")
	}
	return tx.Enqueue(ctx, resumedJob(p.turn))
}

func resumedJob(turn exchange.TurnRecord) queue.NewJob {
	again := job(turn)
	again.ID = newID()
	return again
}

// tell ends the turn with the last word. A turn that was cancelled meanwhile hears nothing.
func (p *settlement) tell(ctx context.Context, tx Tx) error {
	moved, err := tx.MoveTurn(ctx, settleTurn.Move(p.turn.ID, p.State, endReason(p.Issuance), p.reply.CreatedAt))
	p.told = moved
	if err != nil || !moved {
		return err
	}
	if err := tx.InsertReply(ctx, p.reply, p.nativeID); err != nil {
		return err
	}
	return insertDeliveries(ctx, tx, p.reply, p.deliveries)
}

// continuation is what a message does to the parked turn that it continues: the person wrote before the demand was met, or
// brings what was demanded. The parked turn is dropped, the new one carries the resolution.
type continuation struct {
	parked exchange.TurnRecord
	ending *demand.Ending // what the message met; nil = it met nothing, the demand is dropped

	word       *exchange.Reply // the last word when the message declined what was demanded: no agent runs
	nativeID   string
	deliveries []delivery.Record
}

// declined reports whether the message declined what was demanded. Its turn then ends with the last word: an agent must
// not take a resolution for a grant.
func (t *continuation) declined() bool {
	return t != nil && t.ending != nil && !t.ending.Resume && t.ending.Response != nil
}

// settleTurn ends the turn of a message that declines.
func (t *continuation) settleTurn(turn *exchange.TurnRecord) {
	if t.declined() && turn.State == exchange.StateAccepted {
		turn.State, turn.Reason = t.ending.State, t.ending.Issuance.Kind+" "+t.ending.Issuance.Status
	}
}

// planFinalNotice prepares the answer to a message that declines.
func (s *acceptor) planFinalNotice(ctx context.Context, t *continuation, turn exchange.TurnRecord) error {
	if !t.declined() {
		return nil
	}
	word := s.replies.newReply(turn, t.ending.Response.Answering(turn.Message))
	word.Response.InReplyTo, word.Response.ThreadID = turn.Message.ID, turn.ThreadID
	plan, err := s.replies.plan(ctx, word)
	word = planned(word, plan)
	t.word, t.nativeID, t.deliveries = &word, plan.NativeID, deliveriesOf(ctx, word, plan)
	return err
}

// continues finds the parked turn that a message continues and holds what it offers against the demand; nil when it
// continues none. A message that meets the demand carries the resolution from here on.
func (s *acceptor) continues(ctx context.Context, agent agents.Entry, in *exchange.Inbound) (*continuation, error) {
	in.Message.PolicyResolution, in.Message.ReceivedTrace = nil, nil // only the engine writes them
	if in.Continues == "" && in.Settlement == nil {
		return nil, nil
	}

	parked, err := s.parkedTurn(ctx, agent, *in)
	if err != nil {
		return nil, err
	}

	taken := &continuation{parked: parked}
	if in.Settlement != nil {
		return taken, s.meet(ctx, taken, in)
	}
	if parked.State != exchange.StateWaiting || exchange.GoesOnByItself(parked) {
		return nil, nil
	}

	return taken, nil
}

// parkedTurn reads the turn that the message continues. Someone else's is refused as if it were not there.
func (s *acceptor) parkedTurn(ctx context.Context, agent agents.Entry, in exchange.Inbound) (exchange.TurnRecord, error) {
	if in.Continues == "" {
		return exchange.TurnRecord{}, nil
	}

	parked, err := s.options.Store.Turn(ctx, in.Continues)
	if err != nil {
		return parked, err
	}
	if parked.Agent != agent.Profile.Name || parked.Principal != in.Message.Sender.Principal() {
		return parked, fault.New(fault.NotFound, "there is no such message to continue")
	}
	return parked, nil
}

// meet asks whether the message meets the demand; it then carries the resolution, without the state.
func (s *acceptor) meet(ctx context.Context, taken *continuation, in *exchange.Inbound) error {
	ending, err := s.options.Demands.Offer(ctx, *in, taken.parked)
	if err != nil {
		return s.refuse(ctx, err, ending.Audit)
	}

	if taken.parked.ID == "" {
		if taken.parked, err = s.options.Store.Turn(ctx, ending.Issuance.TurnID); err != nil {
			return err
		}
	}

	taken.ending = &ending
	in.Message.PolicyResolution = ending.Issuance.Resolution
	return nil
}

// store writes the end of the parked turn into the transaction of the new one.
func (t *continuation) store(ctx context.Context, tx Tx, successor exchange.TurnRecord) error {
	if t == nil {
		return nil
	}

	reason := "taken up by the message of turn " + successor.ID
	moved, err := tx.MoveTurn(ctx, continueTurn.Move(t.parked.ID, exchange.StateCancelled, reason, time.Now()))
	switch {
	case err != nil:
		return err
	case !moved:
		return fault.New(fault.Conflict, "the message that this one continues does not wait any more")
	case t.ending == nil:
		return tx.DropDemands(ctx, t.parked.ID, time.Now())
	}

	return t.settle(ctx, tx, successor)
}

func (t *continuation) settle(ctx context.Context, tx Tx, successor exchange.TurnRecord) error {
	settled := t.ending.Issuance
	settled.TurnID = successor.ID // the money is taken when this one is answered
	changed, err := tx.SettleDemand(ctx, settled, t.ending.From, t.ending.Read)
	if err != nil {
		return err
	}
	if !changed {
		return fault.New(fault.Conflict, policypart.CodeUsed)
	}
	if err := auditAll(ctx, tx, successor.ID, t.ending.Audit); err != nil || t.word == nil {
		return err
	}
	if err := tx.InsertReply(ctx, *t.word, t.nativeID); err != nil {
		return err
	}

	return insertDeliveries(ctx, tx, *t.word, t.deliveries)
}
