package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"inbox/agents"
	"inbox/engine/demand"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
	"inbox/policypart"
)

// Approvals is what the pipeline needs of engine/demand about decisions of someone else than the asker.
type Approvals interface {
	// Hold makes the demand for an answer that someone has to let pass. left counts what of the answer is not kept.
	Hold(turn exchange.TurnRecord, response normalized.Response, combined bool) (issuance policypart.Issuance, left normalized.Left, err error)
	// Released returns the answer of a turn that was held back and approved.
	Released(ctx context.Context, turn exchange.TurnRecord) (demand.Released, bool, error)
	// Told is what an approver gets to read.
	Told(issuance policypart.Issuance) normalized.Response
	// Granted reports whether what a turn is to go on with was granted for the turn as it stands.
	Granted(ctx context.Context, turn exchange.TurnRecord) (bool, error)
	// Question names the turn in which an approver is asked about an approval.
	Question(approval, approver string) string
	// Answer holds the decision in an approver's message against what is open.
	Answer(ctx context.Context, turn exchange.TurnRecord, asked *demand.Asked, d demand.Decision, by demand.Decider) (demand.Verdict, error)
	// Guide answers an approver whose message in the conversation about an approval decides nothing.
	Guide(ctx context.Context, turn exchange.TurnRecord, asked demand.Asked, by demand.Decider) (demand.Verdict, error)
	// LastWord returns the ending of an approval that was denied by a process without adapters.
	LastWord(issuance policypart.Issuance) (demand.Ending, bool)
}

// Approvers reaches the people who decide and says who they are.
type Approvers interface {
	// Open begins a conversation of the agent with an address.
	// Errors are classed by fault.RetryIn and fault.GiveUp.
	Open(ctx context.Context, agent, address string) (exchange.Opening, error)
	// Proves returns the sender's evidence that proves the address; nil = none does. A name never proves anything.
	Proves(ctx context.Context, sender normalized.Sender, address string) (*identity.Evidence, error)
}

// noApprovers is where Options.Approvers is nil.
type noApprovers struct{}

func (noApprovers) Open(context.Context, string, string) (exchange.Opening, error) {
	return exchange.Opening{}, fault.GiveUp("this server cannot begin a conversation", nil)
}

func (noApprovers) Proves(context.Context, normalized.Sender, string) (*identity.Evidence, error) {
	return nil, nil
}

// noApprovals stands in where Options.Demands is nil.
type noApprovals struct{}

func (noApprovals) Hold(exchange.TurnRecord, normalized.Response, bool) (issuance policypart.Issuance, left normalized.Left, err error) {
	return issuance, left, errNoDemands
}

func (noApprovals) Released(context.Context, exchange.TurnRecord) (released demand.Released, is bool, err error) {
	return released, false, nil
}

func (noApprovals) Told(policypart.Issuance) normalized.Response { return normalized.Response{} }

func (noApprovals) Granted(context.Context, exchange.TurnRecord) (bool, error) { return true, nil }

func (noApprovals) Question(string, string) string { return "" }

func (noApprovals) Answer(context.Context, exchange.TurnRecord, *demand.Asked, demand.Decision, demand.Decider) (demand.Verdict, error) {
	return demand.Verdict{}, nil
}

func (noApprovals) Guide(context.Context, exchange.TurnRecord, demand.Asked, demand.Decider) (demand.Verdict, error) {
	return demand.Verdict{}, nil
}

func (noApprovals) LastWord(policypart.Issuance) (demand.Ending, bool) { return demand.Ending{}, false }

// waitingForApproval is the reason of a turn that waits for an approver.
func waitingForApproval(part policypart.Part) string {
	what := part.Approval().Tool
	if part.Code == policypart.CodeApprovalReply {
		what = "reply"
	}
	if what == "" {
		return "approval"
	}
	return "approval (" + what + ")"
}

// endReason is the reason of a turn whose demand was not met.
func endReason(issuance policypart.Issuance) string {
	if issuance.Purpose == policypart.PurposeApproval {
		return "approval " + issuance.Status
	}
	return issuance.Kind + " " + issuance.Status
}

// waitingWord is all that the asker may learn, where their protocol shows the state of a message at all.
const waitingWord = "This needs an approval first. The answer comes by itself once it is given."

// await parks a turn for the decision of someone else. Nothing is sent to its asker; those who may decide are written
// to by jobs of their own, which are stored in the same transaction.
func (s *runner) await(ctx context.Context, job queue.Job, turn exchange.TurnRecord, record *runRecord, issuance policypart.Issuance) error {
	reply := s.replies.newReply(turn, normalized.Response{
		InReplyTo: turn.Message.ID, ThreadID: turn.Message.ThreadID, Visibility: normalized.VisibilityDirect,
		Status: normalized.StatusInputRequired, Parts: []normalized.Part{normalized.Text(waitingWord)},
	})

	reply.Notice = turn.Attempt // no two demands of a turn come from the same run
	var approvers []string
	if agent, known := s.options.Agents.Lookup(turn.Agent); known {
		approvers = agent.Settings.Approvers
	}

	return s.replies.conclude(ctx, job, record, ending{
		turn: turn, reply: reply, unsent: true, state: exchange.StateWaiting, reason: waitingFor(issuance.Part),
		more: func(ctx context.Context, tx Tx) error {
			if err := tx.InsertDemand(ctx, issuance); err != nil {
				return err
			}
			return enqueueTelling(ctx, tx, issuance, approvers)
		},
	})
}

// approver asks people whether an answer may pass.
type approver struct {
	*core
	replies *replier
	demands *settler
}

// holds reports whether someone has to let the response pass first. One that was let pass goes out as it is; what was added
// to it since, such as the answers of agents that it mentions, has to be let pass again.
func (s *approver) holds(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord, response normalized.Response) (bool, error) {
	if agent.Agent == nil || response.Silent || len(response.Dispatch) > 0 || demands(response) || !agent.Settings.HoldsReply(turn.Message.Sender) {
		return false, nil
	}
	released, is, err := s.options.Demands.Released(ctx, turn)
	return !is || !sameResponse(released.Response, response), err
}

func demands(response normalized.Response) bool {
	policy := response.Policy()
	return policy != nil && policypart.Resumable(policy.Kind)
}

// hold parks a turn with its finished answer.
func (s *runner) hold(ctx context.Context, job queue.Job, turn exchange.TurnRecord, record *runRecord, response normalized.Response) error {
	_, combined, err := s.calls.combined(ctx, job, turn)
	if err != nil {
		return queue.RetryAfter(time.Second, err)
	}
	issuance, left, err := s.options.Demands.Hold(turn, response, combined)
	if err != nil {
		return s.replies.reply(ctx, job, turn, record, failure(turn, err), "hold answer: "+err.Error())
	}
	s.noteCut(ctx, record, left)
	return s.await(ctx, job, turn, record, issuance)
}

// sameResponse compares what would be sent.
func sameResponse(a, b normalized.Response) bool {
	left, errLeft := json.Marshal(a)
	right, errRight := json.Marshal(b)
	return errLeft == nil && errRight == nil && string(left) == string(right)
}

// errOvertaken says that someone else decided while a decision was being stored: nothing of it was.
var errOvertaken = errors.New("another decision was faster")

// maxDecisions bounds how often a decision is held against what is open now.
const maxDecisions = 3

// mayDecide lets a decision of an approver in who is not allowed to talk to the agent otherwise. It is a first look
// without the network; decided looks again, and such a message never reaches the agent.
func mayDecide(agent agents.Entry, in exchange.Inbound) bool {
	if guarded(in) { // programs do not approve
		return false
	}

	if !agent.Settings.IsApprover(in.Message.Sender) {
		return false
	}
	_, is := demand.ReadDecision(in.Message) // last, because it reads a whole mail
	return is
}

// decided answers a message with which an approver decides, and any other one in the conversation in which an approver was
// asked. Its agent does not see it. The words of a decision in another message, or of another sender, are an ordinary message.
func (s *runner) decided(ctx context.Context, job queue.Job, agent agents.Entry, turn exchange.TurnRecord, record *runRecord) (answered bool, err error) {
	message := turn.Message
	if len(agent.Settings.Approvers) == 0 || message.PolicyResolution != nil || message.ReceivedTrace != nil {
		return false, nil
	}

	said, is := demand.ReadDecision(message)
	asked, err := s.approvals.questionOf(ctx, agent, turn)
	switch {
	case err != nil:
		return true, queue.RetryAfter(time.Second, err)
	case !is && asked == nil:
		return false, nil
	}

	by, approves, err := s.approvals.approver(ctx, agent, message, asked)
	if err != nil {
		return true, s.failed(ctx, job, turn, record, fault.RetryIn(0, "the sender cannot be checked now", err))
	}

	shutOut := len(message.Sender.Identities) > 0 &&
		!agent.Settings.Decide(identity.PurposeMessage, message.Sender).Allowed
	switch {
	case !approves && asked != nil:
		return true, s.replies.reply(ctx, job, turn, record, normalized.Response{Silent: true}.Answering(message), "about an approval, and not by its approver")
	case !approves && shutOut:
		return true, s.replies.reply(ctx, job, turn, record, sentence(turn, "access:no_rule", "This agent is not open to you."), "let in to decide, and is no approver")
	case !approves, !is && !shutOut && demand.IsForAgent(message):
		return false, nil
	}

	for range maxDecisions {
		verdict, err := s.approvals.verdict(ctx, turn, asked, said, is, by)
		switch {
		case err != nil:
			return true, s.failed(ctx, job, turn, record, err)
		case !verdict.Answers && !shutOut:
			return false, nil
		case !verdict.Answers:
			verdict.Sentence = "Nothing waits for your decision."
		}

		if err = s.confirm(ctx, job, turn, record, verdict); !errors.Is(err, errOvertaken) {
			return true, err
		}
	}

	return true, queue.RetryAfter(again, errOvertaken)
}

// question is what one approver was asked in a conversation.
type question struct {
	demand.Asked
	turnID  string
	address string // of the approver
}

// questionOf finds out whether the message belongs to a conversation in which an approver was asked: its first turn is then
// the one that asked. The name of the conversation says nothing, because ids of conversations come from outside.
func (s *approver) questionOf(ctx context.Context, agent agents.Entry, turn exchange.TurnRecord) (*question, error) {
	first, found, err := s.options.Store.FirstTurn(ctx, turn.Agent, turn.ThreadID)
	if err != nil || !found || first.Reference == "" || first.Response == nil || first.Response.Policy() == nil {
		return nil, err
	}

	for _, address := range agent.Settings.Approvers {
		if first.ID != s.options.Demands.Question(first.Reference, address) {
			continue
		}
		return &question{Asked: demand.Asked{Approval: first.Reference, Shown: shownIn(first)}, turnID: first.ID, address: address}, nil
	}
	return nil, nil
}

// shownIn returns the digest of what the answer of a turn shows an approver; without one nothing is granted by it.
func shownIn(turn exchange.TurnRecord) (shown string) {
	if turn.Response != nil && turn.Response.Policy() != nil {
		_ = json.Unmarshal(turn.Response.Policy().Data[demand.ShownKey], &shown)
	}
	return shown
}

// verdict is what the message of an approver comes to.
func (s *approver) verdict(ctx context.Context, turn exchange.TurnRecord, asked *question, said demand.Decision, is bool, by demand.Decider) (demand.Verdict, error) {
	if !is {
		return s.options.Demands.Guide(ctx, turn, asked.Asked, by)
	}

	shown, direct, err := s.answersUs(ctx, turn, asked)
	if err != nil {
		return demand.Verdict{}, fault.RetryIn(0, "the message that is answered cannot be read now", err)
	}

	var about *demand.Asked
	if direct && by.Address == asked.address {
		about = &demand.Asked{Approval: asked.Approval, Shown: cmp.Or(shown, asked.Shown)}
	}

	verdict, err := s.options.Demands.Answer(ctx, turn, about, said, by)
	if err == nil && !verdict.Answers && asked != nil {
		return s.options.Demands.Guide(ctx, turn, asked.Asked, by)
	}
	return verdict, err
}

// answersUs reports whether a message in the conversation about an approval answers what we said there. Someone who learned
// of the conversation can bring a message of their own into it; an answer to that one decides nothing, and neither does a message that
// names none that it answers: it may be one to theirs. Shown is the digest of what the answered message shows, if it showed the request
// again.
func (s *approver) answersUs(ctx context.Context, turn exchange.TurnRecord, asked *question) (shown string, direct bool, err error) {
	if asked == nil || turn.Message.InReplyTo == "" {
		return "", false, nil
	}

	answeredID, found, err := s.options.Store.AnsweredWith(ctx, turn.Agent, turn.Message.InReplyTo)
	if err != nil || !found || answeredID == asked.turnID {
		return "", found, err
	}

	answered, err := s.options.Store.Turn(ctx, answeredID)
	if fault.Is(err, fault.NotFound) {
		return "", false, nil
	}
	return shownIn(answered), answered.ThreadID == turn.ThreadID && answered.Principal == turn.Principal, err
}

// approver finds the approver that the sender is: the one who was asked, if they were. Programs are none.
func (s *approver) approver(ctx context.Context, agent agents.Entry, message normalized.Message, asked *question) (by demand.Decider, is bool, err error) {
	if message.RecipientCapabilities.AgentChain != nil {
		return by, false, nil
	}

	candidates := agent.Settings.Approvers
	if asked != nil {
		candidates = append([]string{asked.address}, candidates...)
	}

	for _, address := range candidates {
		counts := agent.Settings.ProvenAs(address, message.Sender)
		if len(counts.Identities) == 0 {
			continue
		}

		proof, err := s.options.Approvers.Proves(ctx, counts, address)
		if err != nil {
			return by, false, err
		}
		if proof != nil {
			return demand.Decider{
				Name: proof.Issuer + " " + proof.Subject, Address: address,
				Resolver: &policypart.Resolver{Issuer: proof.Issuer, Subject: proof.Subject, Method: proof.Method},
			}, true, nil
		}
	}

	return by, false, nil
}

// confirm stores the decision together with the sentence that confirms it: a crash leaves both or none.
func (s *runner) confirm(ctx context.Context, job queue.Job, turn exchange.TurnRecord, record *runRecord, verdict demand.Verdict) error {
	end := ending{turn: turn, state: exchange.StateAnswered, reason: "is about an approval"}
	response := normalized.Response{Visibility: normalized.VisibilityDirect, Status: normalized.StatusCompleted}
	if verdict.Told != nil {
		response = *verdict.Told
	}
	response.Parts = append([]normalized.Part{normalized.Text(verdict.Sentence)}, response.Parts...)
	end.reply = s.replies.newReply(turn, response.Answering(turn.Message))

	if verdict.Ending == nil {
		return s.replies.conclude(ctx, job, record, end)
	}

	prepared, err := s.demands.prepare(ctx, *verdict.Ending)
	if err != nil {
		return queue.RetryAfter(again, err)
	}

	end.more = func(ctx context.Context, tx Tx) error {
		err := prepared.store(ctx, tx)
		if fault.Is(err, fault.Conflict) {
			return errOvertaken
		}
		return err
	}

	err = s.replies.conclude(ctx, job, record, end)
	if errors.Is(err, queue.ErrSettled) {
		s.demands.announce(ctx, &prepared)
	}

	return err
}
