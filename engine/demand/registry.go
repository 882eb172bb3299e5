package demand

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/policypart"
)

// registry finds the demand that an attempt is about and stores what becomes of it. All roles decide through it.
type registry struct {
	store Store
	turns Turns
	audit *auditTrail
	now   func() time.Time
}

// Bind names the pipeline, which itself needs the Service. It must be called once, before the first request.
func (r *registry) Bind(turns Turns) { r.turns = turns }

// byToken finds the demand of a page. A token of another form is no demand and costs no query.
func (r *registry) byToken(ctx context.Context, token string) (policypart.Issuance, *policypart.Refusal, error) {
	unknown := &policypart.Refusal{Code: policypart.CodeUnknown, Reason: "no demand has this state"}
	if len(token) != tokenBytes {
		return policypart.Issuance{}, unknown, nil
	}

	issuance, found, err := r.store.DemandByState(ctx, policypart.HashState(token))
	switch {
	case err != nil:
		return issuance, nil, fault.Wrap(fault.Unavailable, "the request cannot be read now; try again", err)
	case !found:
		return policypart.Issuance{}, unknown, nil
	}
	return issuance, nil, nil
}

// open finds the demand of a page for an attempt to decide it: all of the eight checks that need no proof.
func (r *registry) open(ctx context.Context, token string) (policypart.Issuance, error) {
	issuance, refusal, err := r.byToken(ctx, token)
	if err != nil {
		return issuance, err
	}

	if refusal == nil {
		refusal = issuance.Check(policypart.Attempt{State: token, Bearer: true, At: r.now()})
	}
	if refusal != nil {
		return issuance, r.audit.refuse(ctx, issuance, refusal)
	}
	return issuance, nil
}

// settle stores endings. The first one is of the demand that was decided just now.
func (r *registry) settle(ctx context.Context, endings ...Ending) error {
	err := r.turns.Settle(ctx, endings...)
	decided := endings[0].Issuance
	switch {
	case fault.Is(err, fault.Conflict) && r.noted(ctx, endings):
		return errNoted
	case fault.Is(err, fault.Conflict):
		return r.audit.refuse(ctx, decided, r.lost(ctx, decided))
	case err != nil:
		return fault.Wrap(fault.Unavailable, "the answer cannot be stored now; try again", err)
	}

	for i := range endings {
		if resolution := endings[i].Issuance.Resolution; resolution != nil {
			demands.WithLabelValues(endings[i].Issuance.Kind, resolution.Outcome).Inc()
		}
	}
	return nil
}

// errNoted means that the notes of an open demand changed after they were read; the caller reads them again.
var errNoted = fault.New(fault.Conflict, "someone else answered at the same moment; try again")

func (r *registry) noted(ctx context.Context, endings []Ending) bool {
	return slices.ContainsFunc(endings, func(e Ending) bool {
		if e.Read == nil {
			return false
		}
		current, err := r.store.Demand(ctx, e.Issuance.ID)
		return err == nil && current.CheckOpen(r.now()) == nil && !bytes.Equal(current.Notes, e.Read)
	})
}

// lost returns why an attempt that passed the checks came to nothing: another one was faster, the turn is gone, or an approval
// was edited after it was read.
func (r *registry) lost(ctx context.Context, i policypart.Issuance) *policypart.Refusal {
	if current, err := r.store.Demand(ctx, i.ID); err == nil {
		if refusal := current.CheckOpen(r.now()); refusal != nil {
			return refusal
		}
		if i.Purpose == policypart.PurposeApproval && current.CodeHash != i.CodeHash {
			return changedSince("another party")
		}
	}
	return &policypart.Refusal{Code: policypart.CodeUsed, Reason: "the turn does not wait for it any more", Withdrawn: true}
}

// Audit rows of refused attempts that one node writes per minute. A scanner that guesses states must not fill the audit
// trail; what is left out is counted in the next row.
const (
	unknownRows = 30
	knownRows   = 300
)

// auditTrail records refused attempts.
type auditTrail struct {
	store          Store
	log            *slog.Logger
	now            func() time.Time
	unknown, known *rowLimit
}

// refuse counts and records a refused attempt and returns it as a fault.
func (a *auditTrail) refuse(ctx context.Context, i policypart.Issuance, refusal *policypart.Refusal) error {
	for _, record := range a.refusal(i, refusal, "") {
		if err := a.store.Audit(ctx, record); err != nil {
			a.log.WarnContext(ctx, "audit row of a refused demand cannot be stored", "code", record.Code, "error", err)
		}
	}

	if i.Purpose == policypart.PurposeApproval {
		return approvalFault(i, refusal)
	}
	return asFault(refusal)
}

// refusal returns the audit row of a refused attempt: one, or none when there were too many.
func (a *auditTrail) refusal(i policypart.Issuance, refusal *policypart.Refusal, principal string) []exchange.AuditRecord {
	kind, limit := i.Kind, a.known
	if i.ID == "" {
		kind, limit = "unknown", a.unknown
	}
	demands.WithLabelValues(kind, "refused").Inc()

	now := a.now()
	skipped, ok := limit.take(now)
	if !ok {
		return nil
	}
	record := auditRow(i, refusal.Code, refusal.Reason, now)
	record.Principal = principal
	if skipped > 0 {
		record.Detail += fmt.Sprintf(" (%d more attempts were not recorded)", skipped)
	}
	return []exchange.AuditRecord{record}
}

// auditRow makes an audit row about a demand.
func auditRow(i policypart.Issuance, code, detail string, now time.Time) exchange.AuditRecord {
	const maxDetail = 512
	if i.ID != "" {
		detail = "demand " + i.ID + ": " + detail
	}
	return exchange.AuditRecord{
		ID: uuid.Must(uuid.NewV7()).String(), At: now, Code: code, TurnID: i.TurnID, Agent: i.Agent, Principal: i.Principal,
		Detail: detail[:min(len(detail), maxDetail)],
	}
}

// rowLimit bounds the audit rows of one minute.
type rowLimit struct {
	rows int

	mutex   sync.Mutex
	minute  time.Time
	written int
	skipped int
}

// take reports whether one more row may be written, and how many were left out since the last one.
func (l *rowLimit) take(now time.Time) (skipped int, ok bool) {
	l.mutex.Lock()
	defer l.mutex.Unlock()

	if minute := now.Truncate(time.Minute); !minute.Equal(l.minute) {
		l.minute, l.written = minute, 0
	}
	if l.written >= l.rows {
		l.skipped++
		return 0, false
	}
	l.written++
	skipped, l.skipped = l.skipped, 0
	return skipped, true
}

// withdrawn is what the person at the page reads of a demand that no one met.
const withdrawn = "this request is no longer needed: the message was withdrawn, or its sender wrote again"

// asFault returns a refusal with the text for the person at the page.
func asFault(refusal *policypart.Refusal) error {
	if refusal.Withdrawn {
		return fault.Wrap(fault.Conflict, withdrawn, refusal)
	}
	switch refusal.Code {
	case policypart.CodeUnknown:
		return fault.Wrap(fault.NotFound, "this link is not valid", refusal)
	case policypart.CodeExpired:
		return fault.Wrap(fault.Gone, "this request has expired; send your message again to get a new one", refusal)
	case policypart.CodeUsed:
		return fault.Wrap(fault.Conflict, "this request was answered before", refusal)
	case policypart.CodeTerms:
		return fault.Wrap(fault.Forbidden, "this is not what was asked for", refusal)
	case policypart.CodePayment:
		return fault.Wrap(fault.Forbidden, "this payment was used for another request before; sign a new one, nothing was taken for this request", refusal)
	case policypart.CodeProof:
		return fault.Wrap(fault.Forbidden, "the proof could not be verified", refusal)
	}
	return fault.Wrap(fault.Forbidden, "this request was made to another sender", refusal)
}
