package demand

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/policypart"
)

// lookedThrough bounds the approvals of an agent that one message is held against.
const lookedThrough = 500

// Verdict is what an approver's message comes to.
type Verdict struct {
	Answers  bool    // the message is about an approval; otherwise it is an ordinary one
	Ending   *Ending // to be stored together with the answer; nil = nothing was decided
	Sentence string  // the answer
}

// Answer holds the decision in an approver's message against what is open at the turn's agent. A decision without code
// counts when exactly one approval is open; yes, no and ok without code only as an answer to what the approver was asked.
// The ending is for the caller to store; fault.Conflict then means that somebody else was faster, and to ask again.
func (s *Service) Answer(ctx context.Context, turn exchange.TurnRecord, d Decision, by Decider) (Verdict, error) {
	about, asked := approvalOfThread(turn.ThreadID)
	if d.Short && d.Code == "" && !asked {
		return Verdict{}, nil
	}
	filter := exchange.ApprovalFilter{Agent: turn.Agent, Limit: lookedThrough}
	if d.Code != "" {
		filter.CodeHash, filter.All = hashCode(d.Code), true
	}
	found, err := s.options.Store.Approvals(ctx, filter)
	if err != nil {
		return Verdict{}, fault.RetryIn(0, "the approvals cannot be read now", err)
	}
	closed := func(i policypart.Issuance) bool { return i.CheckOpen(s.now()) != nil }
	open := slices.DeleteFunc(slices.Clone(found), closed)
	if d.Code != "" {
		return s.answerCode(ctx, d, by, open, found), nil
	}
	isAbout := func(i policypart.Issuance) bool { return i.ID == about }
	switch {
	case asked && !slices.ContainsFunc(open, isAbout):
		return s.tooLate(ctx, turn.Agent, about, by)
	case len(open) == 0:
		return Verdict{}, nil
	case len(open) > 1:
		return Verdict{Answers: true, Sentence: choose(d, open)}, nil
	}
	return s.decision(open[0], d, by), nil
}

// answerCode answers a message that names an approval; found are those with its code.
func (s *Service) answerCode(ctx context.Context, d Decision, by Decider, open, found []policypart.Issuance) Verdict {
	switch {
	case len(open) > 0:
		return s.decision(open[0], d, by)
	case len(found) > 0:
		return s.late(ctx, found[0], by)
	}
	return Verdict{Answers: !d.Short, Sentence: "No request with the code " + d.Code + " waits for a decision."}
}

func (s *Service) decision(i policypart.Issuance, d Decision, by Decider) Verdict {
	ending := s.verdict(i, d.Grant, by, "")
	demands.WithLabelValues(i.Kind, ending.Issuance.Resolution.Outcome).Inc()
	return Verdict{Answers: true, Ending: &ending, Sentence: confirmation(i, d.Grant)}
}

// confirmation is the one sentence that an approver gets back.
func confirmation(i policypart.Issuance, grant bool) string {
	switch {
	case replies(i) && grant:
		return fmt.Sprintf("Approved (%s): the answer is on its way.", codeOf(i.ID))
	case replies(i):
		return fmt.Sprintf("Denied (%s): the answer is not sent.", codeOf(i.ID))
	case grant:
		return fmt.Sprintf("Approved (%s): %s", codeOf(i.ID), sentenceOf(i))
	}
	return fmt.Sprintf("Denied (%s), so nothing is done: %s", codeOf(i.ID), sentenceOf(i))
}

func sentenceOf(i policypart.Issuance) string {
	const longest = 200
	return "“" + beginning(oneLine(i.Part.Approval().Summary), longest) + "”."
}

// choose asks which of several is meant.
func choose(d Decision, open []policypart.Issuance) string {
	const shown = 5
	word := "deny"
	if d.Grant {
		word = "approve"
	}
	var lines []string
	for _, i := range open[:min(len(open), shown)] {
		what := sentenceOf(i)
		if replies(i) {
			what = "an answer to " + notesOf(i).Address + "."
		}
		lines = append(lines, word+" "+codeOf(i.ID)+" for "+what)
	}
	return fmt.Sprintf("%d requests wait for a decision, so add the code of the one that you mean: %s", len(open), strings.Join(lines, " "))
}

// tooLate answers a decision in a conversation about an approval that is not open any more.
func (s *Service) tooLate(ctx context.Context, agent, id string, by Decider) (Verdict, error) {
	issuance, err := s.options.Store.Demand(ctx, id)
	switch {
	case fault.Is(err, fault.NotFound):
		return Verdict{}, nil
	case err != nil:
		return Verdict{}, fault.RetryIn(0, "the approval cannot be read now", err)
	case issuance.Purpose != policypart.PurposeApproval || issuance.Agent != agent:
		return Verdict{}, nil
	}
	return s.late(ctx, issuance, by), nil
}

func (s *Service) late(ctx context.Context, i policypart.Issuance, by Decider) Verdict {
	refusal := i.CheckOpen(s.now())
	if refusal == nil {
		refusal = &policypart.Refusal{Code: policypart.CodeUsed, Reason: "decided at this moment"}
	}
	refusal.Reason += ", tried by " + by.Name
	public := fault.Of(s.refuse(ctx, i, refusal)).Public
	return Verdict{Answers: true, Sentence: strings.ToUpper(public[:1]) + public[1:] + "."}
}
