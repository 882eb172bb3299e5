package demand

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// Approvals lists what waits for the decision of somebody else than its asker, newest first; with filter.All also what
// was decided.
func (s *Service) Approvals(ctx context.Context, filter exchange.ApprovalFilter) ([]exchange.Approval, error) {
	found, err := s.options.Store.Approvals(ctx, filter)
	list := make([]exchange.Approval, 0, len(found))
	for _, issuance := range found {
		list = append(list, listed(issuance, s.now()))
	}
	return list, err
}

// Approval returns one approval by its id or code. fault.NotFound when there is none.
func (s *Service) Approval(ctx context.Context, id string) (exchange.Approval, error) {
	issuance, err := s.findApproval(ctx, id)
	if err != nil {
		return exchange.Approval{}, err
	}
	return listed(issuance, s.now()), nil
}

// Approve lets the turn go on: its agent runs again with the grant, or the answer that was held back is sent. By is for
// the record, such as "operator:<name of the token>". fault.NotFound, Gone (expired) or Conflict (decided before); beside
// an error about an approval that exists it is given as it stands now.
func (s *Service) Approve(ctx context.Context, id, by string) (exchange.Approval, error) {
	return s.decideApproval(ctx, id, by, true, "")
}

// Deny ends the turn. The asker of an action is told so, with the reason if there is one; an answer that was held back is
// not sent, and only a reason is told. Errors are those of Approve, and Malformed for a reason over 500 bytes.
func (s *Service) Deny(ctx context.Context, id, by, reason string) (exchange.Approval, error) {
	reason, err := reasonText(reason)
	if err != nil {
		return exchange.Approval{}, err
	}
	return s.decideApproval(ctx, id, by, false, reason)
}

func (s *Service) decideApproval(ctx context.Context, id, by string, grant bool, reason string) (exchange.Approval, error) {
	issuance, err := s.openApproval(ctx, id, by)
	if err == nil {
		err = s.settle(ctx, s.verdict(issuance, grant, Decider{Name: by}, reason))
	}
	return s.nowApproval(ctx, issuance), err
}

// EditReply replaces the text of an answer that is held back; files and recipients stay. The approval stays open. Errors
// are those of Approve, and Malformed for an approval of an action, or a text that is empty or too long.
func (s *Service) EditReply(ctx context.Context, id, by, text string) (exchange.Approval, error) {
	issuance, err := s.openApproval(ctx, id, by)
	if err == nil {
		err = s.editReply(ctx, issuance, by, text)
	}
	return s.nowApproval(ctx, issuance), err
}

func (s *Service) editReply(ctx context.Context, i policypart.Issuance, by, text string) error {
	kept := notesOf(i)
	text = strings.TrimSpace(text)
	limit := normalized.DefaultLimits().TextPart
	switch {
	case kept.Draft == nil:
		return fault.New(fault.Malformed, "this approval is about an action: it has no text that could be changed")
	case text == "" || len(text) > limit || !utf8.ValidString(text):
		return fault.InField("text", fmt.Sprintf("must be text of 1 to %d bytes", limit))
	}
	kept.Draft.Response.Parts = reworded(kept.Draft.Response.Parts, text)
	kept.Draft.EditedBy = by
	noted, err := s.options.Store.NoteDemand(ctx, i.ID, policypart.StatusIssued, kept.raw())
	switch {
	case err != nil:
		return fault.Wrap(fault.Unavailable, "the text cannot be stored now; try again", err)
	case !noted:
		return s.refuse(ctx, i, s.lost(ctx, i.ID))
	}
	return nil
}

// reworded puts the text in the place of all texts. It keeps the form of the first one, unless that was HTML, which nobody
// writes by hand.
func reworded(parts []normalized.Part, text string) []normalized.Part {
	isText := func(part normalized.Part) bool { return part.Kind == normalized.PartText }
	place := max(0, slices.IndexFunc(parts, isText))
	fresh := normalized.Text(text)
	if place < len(parts) && isText(parts[place]) && parts[place].MIME == normalized.MIMEMarkdown {
		fresh = normalized.Markdown(text)
	}
	rest := slices.Clone(parts)
	before := slices.DeleteFunc(slices.Clone(rest[:place]), isText)
	after := slices.DeleteFunc(rest[place:], isText)
	return slices.Concat(before, []normalized.Part{fresh}, after)
}

// findApproval finds one by id or code.
func (s *Service) findApproval(ctx context.Context, id string) (issuance policypart.Issuance, err error) {
	found := true
	if isCode(id) {
		issuance, found, err = s.byCode(ctx, hashCode(plainCode(id)))
	} else {
		issuance, err = s.options.Store.Demand(ctx, id)
	}
	if fault.Is(err, fault.NotFound) {
		err, found = nil, false
	}
	if err == nil && (!found || issuance.Purpose != policypart.PurposeApproval) {
		return policypart.Issuance{}, fault.Newf(fault.NotFound, "there is no approval %s; see: inbox approvals list", id)
	}
	return issuance, err
}

// byCode finds the newest approval with a code, an open one first.
func (s *Service) byCode(ctx context.Context, hash string) (policypart.Issuance, bool, error) {
	for _, all := range []bool{false, true} {
		found, err := s.options.Store.Approvals(ctx, exchange.ApprovalFilter{CodeHash: hash, All: all, Limit: 1})
		if err != nil || len(found) > 0 {
			return first(found), len(found) > 0, err
		}
	}
	return policypart.Issuance{}, false, nil
}

func first(found []policypart.Issuance) (issuance policypart.Issuance) {
	if len(found) > 0 {
		issuance = found[0]
	}
	return issuance
}

// openApproval finds one that can be decided; an attempt at one that cannot is on record.
func (s *Service) openApproval(ctx context.Context, id, by string) (policypart.Issuance, error) {
	issuance, err := s.findApproval(ctx, id)
	if err != nil {
		return issuance, err
	}
	if refusal := issuance.CheckOpen(s.now()); refusal != nil {
		refusal.Reason += ", tried by " + by
		return issuance, s.refuse(ctx, issuance, refusal)
	}
	return issuance, nil
}

// nowApproval reads it again after a decision.
func (s *Service) nowApproval(ctx context.Context, issuance policypart.Issuance) exchange.Approval {
	if issuance.ID == "" {
		return exchange.Approval{}
	}
	if current, err := s.options.Store.Demand(ctx, issuance.ID); err == nil {
		issuance = current
	}
	return listed(issuance, s.now())
}

// Released is an answer that somebody let pass.
type Released struct {
	Response normalized.Response
	Combined bool // the answers of other agents are in it
}

// Released returns the answer of a turn that was held back and approved: it is sent as it is, its agent does not run again.
// A turn without such an approval costs no query. Errors (fault.Unavailable) mean that the same call should be repeated.
func (s *Service) Released(ctx context.Context, turn exchange.TurnRecord) (Released, bool, error) {
	if resolution := turn.Message.PolicyResolution; resolution == nil || !decidedOf(resolution).Reply || resolution.Outcome != policypart.OutcomeGranted {
		return Released{}, false, nil
	}
	issuance, err := s.options.Store.Demand(ctx, progressOf(turn).ID)
	if fault.Is(err, fault.NotFound) {
		return Released{}, false, nil
	}
	if err != nil {
		return Released{}, false, fault.RetryIn(0, "the approved answer cannot be read now", err)
	}
	kept := notesOf(issuance)
	if issuance.TurnID != turn.ID || issuance.Status != policypart.StatusResolved || kept.Draft == nil {
		return Released{}, false, nil
	}
	return Released{Response: kept.Draft.Response, Combined: kept.Draft.Combined}, true, nil
}
