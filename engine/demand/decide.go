package demand

import (
	"context"

	"inbox/internal/fault"
	"inbox/policypart"
)

// Decide is the POST of a demand's page. Grant consents; for a link demand it makes the code word visible instead, and
// a demand for a login or a payment is not granted by a click (state:proof). Not grant denies any demand. What Decide
// gives is the page afterwards, also beside an error about a demand that exists. Errors: fault.NotFound, Gone, Conflict
// or Forbidden for a failed check (Code tells which), Unavailable when it could not be stored.
func (s *Service) Decide(ctx context.Context, token string, grant bool) (View, error) {
	issuance, err := s.open(ctx, token)
	if err != nil {
		return s.view(issuance), err
	}
	switch {
	case issuance.Purpose == policypart.PurposeApproval:
		err = s.settle(ctx, s.verdict(issuance, grant, Decider{Name: deciderPage}, ""))
	case !grant:
		err = s.settle(ctx, s.deny(issuance, asker(issuance), policypart.StatusIssued, "You declined, so nothing was done: "+quoted(issuance)))
	case issuance.Kind != policypart.ConsentRequired:
		err = s.refuse(ctx, issuance, &policypart.Refusal{Code: policypart.CodeProof, Reason: issuance.Kind + " is not met by consent"})
	case issuance.Purpose == policypart.PurposeLink:
		err = s.agree(ctx, issuance)
	case issuance.Purpose == policypart.PurposeLinkConfirm:
		err = s.link(ctx, issuance)
	default:
		err = s.settle(ctx, s.grant(issuance, deed{outcome: policypart.OutcomeGranted, by: asker(issuance)}, policypart.StatusIssued))
	}
	return s.refreshed(ctx, issuance), err
}

// agree lets the asker of a link see the word that the other address has to send.
func (s *Service) agree(ctx context.Context, issuance policypart.Issuance) error {
	kept := notesOf(issuance)
	if kept.Agreed {
		return nil
	}
	kept.Agreed = true
	noted, err := s.options.Store.NoteDemand(ctx, issuance.ID, policypart.StatusIssued, kept.raw())
	switch {
	case err != nil:
		return fault.Wrap(fault.Unavailable, "the answer cannot be stored now; try again", err)
	case !noted:
		return s.refuse(ctx, issuance, s.lost(ctx, issuance.ID))
	}
	return nil
}
