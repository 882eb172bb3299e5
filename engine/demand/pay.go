package demand

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"inbox/internal/facilitator"
	"inbox/internal/fault"
	"inbox/policypart"
)

// verifyTries and verifyPause are how often a facilitator that cannot be reached is asked about a payment, while its
// payer waits. After that the payment counts as not verified: the claim is not given back.
const (
	verifyTries = 3
	verifyPause = 500 * time.Millisecond
)

// Pay offers a payment on the page: an x402 payment payload as JSON, or base64 of it as in a header. It has to be for
// one of the frozen requirements, and of no other demand. The demand is claimed first, then the facilitator is asked, so
// that a bad payment burns it; the turn then goes on and the money is taken by Capture once the work is done. Errors are those of Decide.
func (s *Service) Pay(ctx context.Context, token string, offered json.RawMessage) (View, error) {
	issuance, err := s.open(ctx, token)
	if err != nil {
		return s.view(issuance), err
	}
	paid, err := s.pay(ctx, issuance, offered, asker(issuance))
	if err == nil {
		err = s.settle(ctx, paid)
	} else if refusal, ok := errors.AsType[*policypart.Refusal](err); ok {
		err = s.refuse(ctx, issuance, refusal)
	}
	return s.refreshed(ctx, issuance), err
}

// pay claims the demand and verifies the payment: checks 6 to 8. A refusal is given as *policypart.Refusal, not yet
// recorded; after the claim the turn was told, too.
func (s *Service) pay(ctx context.Context, i policypart.Issuance, offered json.RawMessage, by *policypart.Resolver) (Ending, error) {
	if i.Kind != policypart.PaymentRequired || s.options.Facilitator == nil {
		return Ending{}, &policypart.Refusal{Code: policypart.CodeTerms, Reason: "no payment was asked for"}
	}
	matched, requirements, err := facilitator.Match(offered, i.Part.Accepts)
	switch {
	case errors.Is(err, facilitator.ErrTerms):
		return Ending{}, &policypart.Refusal{Code: policypart.CodeTerms, Reason: err.Error()}
	case err != nil:
		return Ending{}, &policypart.Refusal{Code: policypart.CodeProof, Reason: err.Error()}
	}
	kept := notesOf(i)
	kept.Payment = &payment{Payment: matched}
	claimed, err := s.options.Store.ClaimDemand(ctx, i.ID, matched.Key(), kept.raw(), s.now())
	switch {
	case fault.Is(err, fault.Conflict): // the demand stays open for another payment
		return Ending{}, &policypart.Refusal{Code: policypart.CodePayment, Reason: "the payment was offered for another demand before"}
	case err != nil:
		return Ending{}, fault.Wrap(fault.Unavailable, "the payment cannot be stored now; try again", err)
	case !claimed:
		return Ending{}, s.lost(ctx, i.ID)
	}
	i.Status, i.Notes = policypart.StatusClaimed, kept.raw()
	verified, err := s.verify(ctx, matched)
	if err != nil || !verified.Valid {
		return Ending{}, s.burn(ctx, i, by, verified, err)
	}
	kept.Payment.Payer = verified.Payer
	return s.grant(i, paidBy(kept, requirements, by), policypart.StatusClaimed), nil
}

func (s *Service) verify(ctx context.Context, offered facilitator.Payment) (verified facilitator.Verification, err error) {
	for try := range verifyTries {
		if try > 0 && !pause(ctx, verifyPause) {
			break
		}
		if verified, err = s.options.Facilitator.Verify(ctx, offered); err == nil {
			return verified, nil
		}
	}
	return verified, err
}

// burn ends the turn of a payment that failed its check, and returns the refusal.
func (s *Service) burn(ctx context.Context, i policypart.Issuance, by *policypart.Resolver, verified facilitator.Verification, cause error) *policypart.Refusal {
	refusal := &policypart.Refusal{Code: policypart.CodeProof, Reason: "the facilitator refused the payment: " + verified.Reason}
	sentence := "The payment was not accepted, and no money was taken. Send your message again to start over."
	if cause != nil {
		refusal.Reason = "the payment could not be verified: " + cause.Error()
		sentence = "The payment could not be checked, and no money was taken. Send your message again to start over."
	}
	ctx = context.WithoutCancel(ctx) // the claim is used up, whether the payer waits or not
	if err := s.turns.Settle(ctx, s.deny(i, by, policypart.StatusClaimed, sentence)); err != nil {
		s.options.Logger.WarnContext(ctx, "turn of a refused payment stays parked until it expires", "demand", i.ID, "error", err)
	} else {
		demands.WithLabelValues(i.Kind, policypart.OutcomeDenied).Inc()
	}
	return refusal
}

// paidBy is the deed of a verified payment. The receipt is the hash of what was signed; the transaction exists only
// after Capture.
func paidBy(kept notes, requirements facilitator.Requirements, by *policypart.Resolver) deed {
	sum := sha256.Sum256(kept.Payment.Payload)
	return deed{
		outcome: policypart.OutcomePaid, by: by, receipt: "sha256:" + hex.EncodeToString(sum[:]), notes: &kept,
		data: withData(nil, PaymentKey, map[string]string{
			"payer": kept.Payment.Payer, "scheme": requirements.Scheme, "network": requirements.Network,
			"amount": requirements.Amount(), "asset": requirements.Asset, "pay_to": requirements.PayTo,
		}),
	}
}

// pause waits; false = the context ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
