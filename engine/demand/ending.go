package demand

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
	"inbox/policypart"
)

// Codes of the last word of a demand that was not met, and of audit rows about those that were.
const (
	codeDenied  = "demand:denied"
	codeExpired = "demand:expired"
	codeGranted = "demand:granted"
	codePaid    = "demand:paid"
	codeLinked  = "identity:linked"
)

// deed is what somebody did about a demand.
type deed struct {
	outcome string
	by      *policypart.Resolver
	receipt string
	data    map[string]json.RawMessage
	notes   *notes // nil = unchanged
}

// ended returns the demand as it is stored after the deed.
func ended(i policypart.Issuance, d deed, now time.Time) policypart.Issuance {
	kept := notesOf(i)
	if d.notes != nil {
		kept = *d.notes
		i.Notes = kept.raw()
	}
	next := progress{ID: i.ID, Number: kept.Number, Paid: kept.Paid, Approvals: kept.Approvals}
	if d.outcome == policypart.OutcomePaid {
		next.Paid = i.ID
	}
	i.Status = map[string]string{
		policypart.OutcomeDenied: policypart.StatusDenied, policypart.OutcomeExpired: policypart.StatusExpired,
	}[d.outcome]
	if i.Status == "" {
		i.Status = policypart.StatusResolved
	}
	i.UpdatedAt = now
	i.Resolution = &policypart.Resolution{
		Kind: i.Kind, Outcome: d.outcome, ResolvedAt: identity.At(now), ResolvedBy: d.by, Receipt: d.receipt,
		Data: withData(d.data, NumberKey, next),
	}
	return i
}

// grant lets the parked turn go on.
func (s *Service) grant(i policypart.Issuance, d deed, from string) Ending {
	now := s.now()
	code := codeGranted
	if d.outcome == policypart.OutcomePaid {
		code = codePaid
	}
	return Ending{
		Issuance: ended(i, d, now), From: []string{from}, Resume: true,
		Audit: []exchange.AuditRecord{s.record(i, code, i.Kind+" "+d.outcome)},
	}
}

// deny ends the parked turn with a plain sentence.
func (s *Service) deny(i policypart.Issuance, by *policypart.Resolver, from, sentence string) Ending {
	now := s.now()
	return Ending{
		Issuance: ended(i, deed{outcome: policypart.OutcomeDenied, by: by}, now), From: []string{from},
		Response: refused(i, codeDenied, sentence), State: exchange.StateRefused,
		Audit: []exchange.AuditRecord{s.record(i, codeDenied, i.Kind+" was denied")},
	}
}

// expire ends the parked turn of a demand that nobody answered.
func (s *Service) expire(i policypart.Issuance) Ending {
	if i.Purpose == policypart.PurposeApproval {
		return s.expireApproval(i)
	}
	sentence := fmt.Sprintf("Nobody answered this request in time, so nothing was done: %s Send your message again to start over.", quoted(i))
	return Ending{
		Issuance: ended(i, deed{outcome: policypart.OutcomeExpired}, s.now()),
		From:     []string{policypart.StatusIssued, policypart.StatusClaimed},
		Response: refused(i, codeExpired, sentence), State: exchange.StateRefused,
	}
}

// refused is the last word to the asker of a demand that was not met: for them alone, like the demand.
func refused(i policypart.Issuance, code, sentence string) *normalized.Response {
	response := told(i, sentence)
	response.Status = normalized.StatusFailed
	response.Error = &normalized.ResponseError{Code: code, Message: sentence}
	return response
}

func told(i policypart.Issuance, sentence string) *normalized.Response {
	return &normalized.Response{
		InReplyTo: i.MessageID, ThreadID: i.ThreadID, Visibility: normalized.VisibilityDirect,
		Status: normalized.StatusCompleted, Parts: []normalized.Part{normalized.Text(sentence)},
	}
}

// quoted names the demand in the asker's language where the agent translated it.
func quoted(i policypart.Issuance) string {
	title, message := i.Part.Localized(notesOf(i).Locale)
	if title == "" {
		title = message
	}
	const longest = 200
	title = strings.Join(strings.Fields(title), " ")
	if runes := []rune(title); len(runes) > longest {
		title = string(runes[:longest]) + "…"
	}
	return "“" + title + "”."
}

// asker is the identity that the holder of the state is taken for; nil when the asker has none.
func asker(i policypart.Issuance) *policypart.Resolver {
	if len(i.Asker) == 0 {
		return nil
	}
	by := i.Asker[0]
	return &by
}
