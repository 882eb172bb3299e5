package demand

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/internal/clock"
	"inbox/internal/facilitator"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// verifyTries and verifyPause are how often a facilitator that cannot be reached is asked about a payment, while its
// payer waits. After that the demand is open again.
const (
	verifyTries = 3
	verifyPause = 500 * time.Millisecond
)

// payments meets demands for money (x402): it has a payment verified before the work begins, and takes the money once the
// work is done.
type payments struct {
	store       Store
	demands     *registry
	pages       *pages
	audit       *auditTrail
	facilitator Facilitator // nil = no payments
	log         *slog.Logger
	now         func() time.Time
}

// freeze refuses terms that cannot be met, before the asker is asked for money.
func (p *payments) freeze(kept notes, part policypart.Part) error {
	switch {
	case p.facilitator == nil:
		return unmeetable(fmt.Errorf("no payment facilitator is configured (payments.facilitator_url)"))
	case kept.Paid != "":
		return unmeetable(fmt.Errorf("the turn was paid for already"))
	case len(part.Accepts) == 0:
		return unmeetable(fmt.Errorf("accepts is empty: there is no way to pay"))
	}

	for n, accept := range part.Accepts {
		if _, err := facilitator.ReadRequirements(accept); err != nil {
			return unmeetable(fmt.Errorf("accepts[%d]: %w", n, err))
		}
	}

	return nil
}

// Pay offers a payment on the page: an x402 payment payload as JSON, or base64 of it as in a header. It has to be for
// one of the frozen requirements, and of no other demand. The demand is claimed first, then the facilitator is asked: a payment that
// it refuses burns the demand, one that it could not be asked about leaves the demand open (fault.Unavailable). The turn then goes on,
// and the money is taken by Capture once the work is done. Errors are those of Decide.
func (p *payments) Pay(ctx context.Context, token string, offered json.RawMessage) (View, error) {
	issuance, err := p.demands.open(ctx, token)
	if err != nil {
		return p.pages.view(issuance), err
	}

	paid, err := p.pay(ctx, issuance, offered, asker(issuance))
	if err == nil {
		err = p.demands.settle(ctx, paid)
	} else if refusal, ok := errors.AsType[*policypart.Refusal](err); ok {
		err = p.audit.refuse(ctx, issuance, refusal)
	}
	return p.pages.refreshed(ctx, issuance), err
}

// pay claims the demand and verifies the payment: checks 6 to 8. A refusal is returned as *policypart.Refusal, not yet
// recorded; after the claim the turn was told, too. fault.Unavailable leaves the demand open.
func (p *payments) pay(ctx context.Context, i policypart.Issuance, offered json.RawMessage, by *policypart.Resolver) (Ending, error) {
	if i.Kind != policypart.PaymentRequired || p.facilitator == nil {
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
	claimed, err := p.store.ClaimDemand(ctx, i.ID, matched.Key(), kept.raw(), p.now())
	switch {
	case fault.Is(err, fault.Conflict): // the demand stays open for another payment
		return Ending{}, &policypart.Refusal{Code: policypart.CodePayment, Reason: "the payment was offered for another demand before"}
	case err != nil:
		return Ending{}, fault.Wrap(fault.Unavailable, "the payment cannot be stored now; try again", err)
	case !claimed:
		return Ending{}, p.demands.lost(ctx, i)
	}

	open := i
	i.Status, i.Notes = policypart.StatusClaimed, kept.raw()
	switch verified, err := p.verify(ctx, matched); {
	case err != nil:
		return Ending{}, p.reopen(ctx, open, err)
	case !verified.Valid:
		return Ending{}, p.burn(ctx, i, matched, by, verified)
	default:
		kept.Payment.Payer = verified.Payer
	}

	return granted(i, paidBy(kept, requirements, by), policypart.StatusClaimed, p.now()), nil
}

func (p *payments) verify(ctx context.Context, offered facilitator.Payment) (verified facilitator.Verification, err error) {
	for try := range verifyTries {
		if try > 0 && clock.Sleep(ctx, verifyPause) != nil {
			break
		}
		if verified, err = p.facilitator.Verify(ctx, offered); err == nil {
			return verified, nil
		}
	}
	return verified, err
}

// reopen gives a claim back when the facilitator could not be asked. Nothing is charged twice by that: to verify a payment moves no
// money, and money is taken for a demand that is resolved, with the payment that it was resolved with. Another node cannot have gone on
// with the claim, because the update wants it as it is.
func (p *payments) reopen(ctx context.Context, open policypart.Issuance, cause error) error {
	ctx = context.WithoutCancel(ctx) // whether the payer waits or not
	open.UpdatedAt = p.now()
	if err := p.demands.turns.Settle(ctx, Ending{Issuance: open, From: []string{policypart.StatusClaimed}}); err != nil {
		p.log.WarnContext(ctx, "demand whose payment could not be checked stays claimed until it expires", "demand", open.ID, "error", err)
	}
	p.log.WarnContext(ctx, "payment could not be checked; its demand stays open", "demand", open.ID, "error", cause)
	return &fault.Fault{
		Kind: fault.Unavailable, Public: "the payment cannot be checked now; no money was taken and the request stays open, so send the payment again",
		RetryAfter: reopenRetry, Cause: cause,
	}
}

// reopenRetry is when a payer may try again.
const reopenRetry = 5 * time.Second

// burn ends the turn of a payment that the facilitator refused, and returns the refusal.
func (p *payments) burn(ctx context.Context, i policypart.Issuance, offered facilitator.Payment, by *policypart.Resolver, verified facilitator.Verification) *policypart.Refusal {
	ending := denied(i, by, policypart.StatusClaimed, "The payment was not accepted, and no money was taken. Send your message again to start over.", p.now())
	ending.Response.Metadata = failedPayment(offered, verified.Reason, nil)

	ctx = context.WithoutCancel(ctx) // the claim is used up, whether the payer waits or not
	if err := p.demands.turns.Settle(ctx, ending); err != nil {
		p.log.WarnContext(ctx, "turn of a refused payment stays parked until it expires", "demand", i.ID, "error", err)
	} else {
		demands.WithLabelValues(i.Kind, policypart.OutcomeDenied).Inc()
	}
	return &policypart.Refusal{Code: policypart.CodeProof, Reason: "the facilitator refused the payment: " + verified.Reason}
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

// outcome: captured, failed, unknown
var captures = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_payment_captures_total", Help: "Payments taken for completed work, by outcome.",
}, []string{"outcome"})

// Codes of the failed response of work whose payment could not be taken. After codeCaptureUnknown the operator has to
// look at the facilitator: the money may have moved.
const (
	codeCaptureFailed  = "payment:capture_failed"
	codeCaptureUnknown = "payment:capture_unknown"
)

// Values of PaymentStatusKey (x402 extension of A2A).
const (
	statusCompleted = "payment-completed"
	statusFailed    = "payment-failed"
	statusRejected  = "payment-rejected"
)

// Values of PaymentErrorKey.
const (
	errorExpired    = "EXPIRED_PAYMENT"
	errorSettlement = "SETTLEMENT_FAILED"
)

// paymentErrors are the codes of the x402 extension by what is in the reasons of facilitators (x402, section 9), in this order.
var paymentErrors = []struct{ holds, code string }{
	{"insufficient", "INSUFFICIENT_FUNDS"}, {"network", "NETWORK_MISMATCH"}, {"valid_before", errorExpired}, {"valid_after", errorExpired},
	{"expired", errorExpired}, {"nonce", "DUPLICATE_NONCE"}, {"signature", "INVALID_SIGNATURE"}, {"value", "INVALID_AMOUNT"}, {"amount", "INVALID_AMOUNT"},
}

// failedPayment is the metadata of the response after a payment that failed. Receipt is what the facilitator answered; nil where it
// was not asked to settle, or said nothing.
func failedPayment(offered facilitator.Payment, reason string, receipt json.RawMessage) map[string]string {
	code := errorSettlement
	for _, known := range paymentErrors {
		if strings.Contains(strings.ToLower(reason), known.holds) {
			code = known.code
			break
		}
	}

	if receipt == nil {
		requirements, _ := facilitator.ReadRequirements(offered.Requirements) // frozen, so they can be read
		receipt, _ = json.Marshal(map[string]any{                             //nolint:errchkjson // texts and a boolean
			"success": false, "errorReason": cmp.Or(reason, "unexpected_settle_error"), "transaction": "", "network": requirements.Network,
		})
	}
	return map[string]string{PaymentStatusKey: statusFailed, PaymentErrorKey: code, PaymentReceiptsKey: "[" + string(receipt) + "]"}
}

// keptResponseBytes bounds the copy of a response that is kept beside a capture.
const keptResponseBytes = 1 << 20

// settlePauses are the waits between attempts to have a payment carried out while its outcome is unknown. Asking again
// spends nothing twice: the payment's nonce is good once.
var settlePauses = []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}

// Capture takes the money of a paid turn, when its response is completed and before it is stored: the response comes
// back with the receipt in its metadata, or as a failed one when the money could not be taken. Any other response, and
// a turn without payment, comes back as it is. It is safe to call again after a crash at any point: what was captured
// is not captured twice, and the answer is then the one that the money was taken for. Errors (fault.Unavailable) mean
// that nothing is decided and the same call should be repeated.
func (p *payments) Capture(ctx context.Context, turn exchange.TurnRecord, response normalized.Response) (normalized.Response, error) {
	if response.Outcome() != normalized.StatusCompleted || len(response.Dispatch) > 0 {
		return response, nil
	}

	issuance, paid, err := p.paid(ctx, turn)
	if err != nil || !paid {
		return response, err
	}

	kept := notesOf(issuance)
	if kept.Payment == nil {
		return p.uncaptured(ctx, issuance, kept, response, failedCapture{code: codeCaptureFailed, detail: "the payment was not kept"})
	}

	again := false
	if kept.Capture != nil {
		if kept.Capture.Response != nil {
			response = *kept.Capture.Response
		}

		switch kept.Capture.State {
		case captured:
			return receipted(response, kept.Capture.Receipt), nil
		case captureFailed:
			return failedCapture{code: codeCaptureFailed, reason: kept.Capture.Reason, receipt: kept.Capture.Receipt}.instead(response, kept), nil
		}
		again = true
	} else if err := p.note(ctx, issuance, &kept, capture{State: capturing, Response: keepable(response)}); err != nil {
		return response, err
	}

	return p.take(ctx, issuance, kept, response, again)
}

// paid finds the payment of a turn. A turn without a payment costs no query.
func (p *payments) paid(ctx context.Context, turn exchange.TurnRecord) (policypart.Issuance, bool, error) {
	before := progressOf(turn)
	if before.Paid == "" {
		return policypart.Issuance{}, false, nil
	}

	issuance, err := p.store.Demand(ctx, before.Paid)
	if fault.Is(err, fault.NotFound) {
		return issuance, false, nil
	}
	if err != nil {
		return issuance, false, fault.RetryIn(0, "the payment cannot be read now", err)
	}

	ours := issuance.Agent == turn.Agent && issuance.ThreadID == turn.ThreadID && issuance.Status == policypart.StatusResolved &&
		issuance.Resolution != nil && issuance.Resolution.Outcome == policypart.OutcomePaid
	return issuance, ours, nil
}

// take has the payment carried out. Again means that it may have been carried out before.
func (p *payments) take(ctx context.Context, i policypart.Issuance, kept notes, response normalized.Response, again bool) (normalized.Response, error) {
	settled, known, err := p.carryOut(ctx, kept.Payment.Payment, &again)
	switch {
	case ctx.Err() != nil:
		return response, ctx.Err()
	case known && settled.Success:
		captures.WithLabelValues("captured").Inc()
		p.noteEnd(ctx, i, &kept, capture{State: captured, Response: keepable(response), Receipt: settled.Raw})
		return receipted(response, settled.Raw), nil
	case known && !again:
		return p.uncaptured(ctx, i, kept, response, failedCapture{codeCaptureFailed, settled.Reason, "the facilitator refused: " + settled.Reason, settled.Raw})
	case err != nil:
		return p.uncaptured(ctx, i, kept, response, failedCapture{code: codeCaptureUnknown, detail: "the facilitator cannot be asked: " + err.Error()})
	}

	return p.uncaptured(ctx, i, kept, response, failedCapture{codeCaptureUnknown, settled.Reason, "asked again, the facilitator says: " + settled.Reason, settled.Raw})
}

// failedCapture is money that was not taken, or of which that is not known.
type failedCapture struct {
	code    string
	reason  string          // of the facilitator
	detail  string          // for the audit trail
	receipt json.RawMessage // of the facilitator; nil = it gave none
}

// carryOut asks until there is an outcome or the tries are used up. It sets again once an attempt ended without one.
func (p *payments) carryOut(ctx context.Context, offered facilitator.Payment, again *bool) (settled facilitator.Settlement, known bool, err error) {
	if p.facilitator == nil {
		return settled, false, fault.New(fault.Unavailable, "no facilitator is configured any more")
	}
	for try := 0; ; try++ {
		settled, err = p.facilitator.Settle(ctx, offered)
		if err == nil && !settled.Pending {
			return settled, true, nil
		}
		*again = *again || err != nil
		if try == len(settlePauses) || clock.Sleep(ctx, settlePauses[try]) != nil {
			return settled, false, err
		}
	}
}

// uncaptured makes the failed response and tells the operator.
func (p *payments) uncaptured(
	ctx context.Context, i policypart.Issuance, kept notes, response normalized.Response, failed failedCapture,
) (normalized.Response, error) {
	captures.WithLabelValues(map[string]string{codeCaptureFailed: "failed", codeCaptureUnknown: "unknown"}[failed.code]).Inc()
	if err := p.store.Audit(ctx, auditRow(i, failed.code, failed.detail, p.now())); err != nil {
		return response, fault.RetryIn(0, "the failed payment cannot be recorded now", err)
	}
	if failed.code == codeCaptureFailed {
		p.noteEnd(ctx, i, &kept, capture{State: captureFailed, Response: keepable(response), Reason: failed.reason, Receipt: failed.receipt})
	}
	return failed.instead(response, kept), nil
}

func (p *payments) note(ctx context.Context, i policypart.Issuance, kept *notes, state capture) error {
	kept.Capture = &state
	noted, err := p.store.NoteDemand(ctx, i.ID, policypart.StatusResolved, kept.raw())
	if err == nil && !noted {
		err = fault.New(fault.Conflict, "the demand changed")
	}
	if err != nil {
		return fault.RetryIn(0, "the payment cannot be noted now", err)
	}
	return nil
}

// noteEnd writes the outcome down. When it cannot, the answer is stored all the same; only a crash before that would
// ask the facilitator once more.
func (p *payments) noteEnd(ctx context.Context, i policypart.Issuance, kept *notes, state capture) {
	if err := p.note(context.WithoutCancel(ctx), i, kept, state); err != nil {
		p.log.WarnContext(ctx, "outcome of a payment cannot be noted", "demand", i.ID, "state", state.State, "error", err)
	}
}

func keepable(response normalized.Response) *normalized.Response {
	if body, err := json.Marshal(response); err != nil || len(body) > keptResponseBytes {
		return nil
	}
	return &response
}

func receipted(response normalized.Response, receipt json.RawMessage) normalized.Response {
	metadata := make(map[string]string, len(response.Metadata)+2)
	maps.Copy(metadata, response.Metadata)
	metadata[PaymentStatusKey] = statusCompleted
	metadata[PaymentReceiptsKey] = "[" + string(receipt) + "]"
	response.Metadata = metadata
	return response
}

// instead takes the place of work that was done and not paid.
func (f failedCapture) instead(response normalized.Response, kept notes) normalized.Response {
	sentence := "The payment could not be taken, so the result is withheld. Nothing was charged."
	if f.code == codeCaptureUnknown {
		sentence = "It is not certain whether the payment was taken, so the result is withheld. Please ask the operator of this agent before you pay again."
	}

	var offered facilitator.Payment
	if kept.Payment != nil {
		offered = kept.Payment.Payment
	}
	return normalized.Response{
		InReplyTo: response.InReplyTo, ThreadID: response.ThreadID, Visibility: normalized.VisibilityDirect, Status: normalized.StatusFailed,
		Parts: []normalized.Part{normalized.Text(sentence)}, Error: &normalized.ResponseError{Code: f.code, Message: sentence},
		Metadata: failedPayment(offered, f.reason, f.receipt),
	}
}

// Captured returns the response of a turn whose money was being taken when the process died: the agent need not work
// again, Capture goes on with it. Errors (fault.Unavailable) mean that the same call should be repeated.
func (p *payments) Captured(ctx context.Context, turn exchange.TurnRecord) (response normalized.Response, begun bool, err error) {
	issuance, paid, err := p.paid(ctx, turn)
	if err != nil || !paid {
		return response, false, err
	}
	if kept := notesOf(issuance); kept.Capture != nil && kept.Capture.Response != nil {
		return *kept.Capture.Response, true, nil
	}
	return response, false, nil
}
