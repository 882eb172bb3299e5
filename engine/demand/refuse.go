package demand

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/policypart"
)

// Rows that refused attempts may write per minute and node. A scanner that guesses states must not fill the audit
// trail; what is left out is counted in the next row.
const (
	unknownRows = 30
	knownRows   = 300
)

// refuse counts and records a refused attempt and returns it as a fault.
func (s *Service) refuse(ctx context.Context, i policypart.Issuance, refusal *policypart.Refusal) error {
	for _, record := range s.refusal(i, refusal, "") {
		if err := s.options.Store.Audit(ctx, record); err != nil {
			s.options.Logger.WarnContext(ctx, "audit row of a refused demand cannot be stored", "code", record.Code, "error", err)
		}
	}
	if i.Purpose == policypart.PurposeApproval {
		return approvalFault(i, refusal)
	}
	return asFault(refusal)
}

// refusal returns the audit row of a refused attempt: one, or none when there were too many.
func (s *Service) refusal(i policypart.Issuance, refusal *policypart.Refusal, principal string) []exchange.AuditRecord {
	kind, limit := i.Kind, s.known
	if i.ID == "" {
		kind, limit = "unknown", s.unknown
	}
	demands.WithLabelValues(kind, "refused").Inc()
	skipped, ok := limit.take(s.now())
	if !ok {
		return nil
	}
	record := s.record(i, refusal.Code, refusal.Reason)
	record.Principal = principal
	if skipped > 0 {
		record.Detail += fmt.Sprintf(" (%d more attempts were not recorded)", skipped)
	}
	return []exchange.AuditRecord{record}
}

// record makes an audit row about a demand.
func (s *Service) record(i policypart.Issuance, code, detail string) exchange.AuditRecord {
	const maxDetail = 512
	if i.ID != "" {
		detail = "demand " + i.ID + ": " + detail
	}
	return exchange.AuditRecord{
		ID: uuid.Must(uuid.NewV7()).String(), At: s.now(), Code: code, TurnID: i.TurnID, Agent: i.Agent, Principal: i.Principal,
		Detail: detail[:min(len(detail), maxDetail)],
	}
}

// asFault says it to the person at the page.
func asFault(refusal *policypart.Refusal) error {
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
	return fault.Wrap(fault.Forbidden, "this request was made to somebody else", refusal)
}

// rows counts what is written in the current minute.
type rows struct {
	mutex   sync.Mutex
	limit   int
	minute  time.Time
	written int
	skipped int
}

// take reports whether one more row may be written, and how many were left out since the last one.
func (r *rows) take(now time.Time) (skipped int, ok bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if minute := now.Truncate(time.Minute); !minute.Equal(r.minute) {
		r.minute, r.written = minute, 0
	}
	if r.written >= r.limit {
		r.skipped++
		return 0, false
	}
	r.written++
	skipped, r.skipped = r.skipped, 0
	return skipped, true
}
