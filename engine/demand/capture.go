package demand

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/internal/facilitator"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

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
)

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
func (s *Service) Capture(ctx context.Context, turn exchange.TurnRecord, response normalized.Response) (normalized.Response, error) {
	if response.Outcome() != normalized.StatusCompleted || len(response.Dispatch) > 0 {
		return response, nil
	}
	issuance, paid, err := s.paid(ctx, turn)
	if err != nil || !paid {
		return response, err
	}
	kept := notesOf(issuance)
	if kept.Payment == nil {
		return s.uncaptured(ctx, issuance, kept, response, codeCaptureFailed, "the payment was not kept")
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
			return failedCapture(response, codeCaptureFailed), nil
		}
		again = true
	} else if err := s.note(ctx, issuance, &kept, capture{State: capturing, Response: keepable(response)}); err != nil {
		return response, err
	}
	return s.take(ctx, issuance, kept, response, again)
}

// paid finds the payment of a turn. A turn that nobody paid for costs no query.
func (s *Service) paid(ctx context.Context, turn exchange.TurnRecord) (policypart.Issuance, bool, error) {
	before := progressOf(turn)
	if before.Paid == "" {
		return policypart.Issuance{}, false, nil
	}
	issuance, err := s.options.Store.Demand(ctx, before.Paid)
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

// take has the payment carried out. Again says that it may have been carried out before.
func (s *Service) take(ctx context.Context, i policypart.Issuance, kept notes, response normalized.Response, again bool) (normalized.Response, error) {
	settled, known, err := s.carryOut(ctx, kept.Payment.Payment, &again)
	switch {
	case ctx.Err() != nil:
		return response, ctx.Err()
	case known && settled.Success:
		captures.WithLabelValues("captured").Inc()
		s.noteEnd(ctx, i, &kept, capture{State: captured, Response: keepable(response), Receipt: settled.Raw})
		return receipted(response, settled.Raw), nil
	case known && !again:
		return s.uncaptured(ctx, i, kept, response, codeCaptureFailed, "the facilitator refused: "+settled.Reason)
	case err != nil:
		return s.uncaptured(ctx, i, kept, response, codeCaptureUnknown, "the facilitator cannot be asked: "+err.Error())
	}
	return s.uncaptured(ctx, i, kept, response, codeCaptureUnknown, "asked again, the facilitator says: "+settled.Reason)
}

// carryOut asks until there is an outcome or the tries are used up. It sets again once an attempt ended without one.
func (s *Service) carryOut(ctx context.Context, offered facilitator.Payment, again *bool) (settled facilitator.Settlement, known bool, err error) {
	if s.options.Facilitator == nil {
		return settled, false, fault.New(fault.Unavailable, "no facilitator is configured any more")
	}
	for try := 0; ; try++ {
		settled, err = s.options.Facilitator.Settle(ctx, offered)
		if err == nil && !settled.Pending {
			return settled, true, nil
		}
		*again = *again || err != nil
		if try == len(settlePauses) || !pause(ctx, settlePauses[try]) {
			return settled, false, err
		}
	}
}

// uncaptured makes the failed response and tells the operator.
func (s *Service) uncaptured(
	ctx context.Context, i policypart.Issuance, kept notes, response normalized.Response, code, reason string,
) (normalized.Response, error) {
	captures.WithLabelValues(map[string]string{codeCaptureFailed: "failed", codeCaptureUnknown: "unknown"}[code]).Inc()
	if err := s.options.Store.Audit(ctx, s.record(i, code, reason)); err != nil {
		return response, fault.RetryIn(0, "the failed payment cannot be recorded now", err)
	}
	if code == codeCaptureFailed {
		s.noteEnd(ctx, i, &kept, capture{State: captureFailed, Response: keepable(response), Reason: reason})
	}
	return failedCapture(response, code), nil
}

func (s *Service) note(ctx context.Context, i policypart.Issuance, kept *notes, state capture) error {
	kept.Capture = &state
	noted, err := s.options.Store.NoteDemand(ctx, i.ID, policypart.StatusResolved, kept.raw())
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
func (s *Service) noteEnd(ctx context.Context, i policypart.Issuance, kept *notes, state capture) {
	if err := s.note(context.WithoutCancel(ctx), i, kept, state); err != nil {
		s.options.Logger.WarnContext(ctx, "outcome of a payment cannot be noted", "demand", i.ID, "state", state.State, "error", err)
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

// failedCapture takes the place of work that was done and not paid.
func failedCapture(response normalized.Response, code string) normalized.Response {
	sentence := "The payment could not be taken, so the result is withheld. Nothing was charged."
	if code == codeCaptureUnknown {
		sentence = "It is not certain whether the payment was taken, so the result is withheld. Please ask the operator of this agent before you pay again."
	}
	return normalized.Response{
		InReplyTo: response.InReplyTo, ThreadID: response.ThreadID, Visibility: normalized.VisibilityDirect, Status: normalized.StatusFailed,
		Parts: []normalized.Part{normalized.Text(sentence)}, Error: &normalized.ResponseError{Code: code, Message: sentence},
		Metadata: map[string]string{PaymentStatusKey: statusFailed},
	}
}
