package demand

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/facilitator"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// notes is what this package keeps beside a demand.
type notes struct {
	Number       int    `json:"number"`                  // counts the demands of a turn from 1
	Paid         string `json:"paid,omitempty"`          // id of the turn's paid demand, whose money is captured at the end
	State        string `json:"state,omitempty"`         // that the agent issued with its demand; it gets it back with the resolution
	Locale       string `json:"locale,omitempty"`        // of the asker's profile
	AgentAddress string `json:"agent_address,omitempty"` // @agent@domain

	Address  identity.StatedAddress   `json:"address,omitzero"`   // of the asker, for display
	Proven   identity.ProvenAddress   `json:"proven,omitempty"`   // for which the evidence of the asker's principal vouches
	Personal []identity.ProvenAddress `json:"personal,omitempty"` // for which evidence of the asker as a person vouches
	Partner  string                   `json:"partner,omitempty"`  // of a link_confirm and a link_complete: id of the link demand that showed the word
	Sides    []linkWith               `json:"sides,omitempty"`    // of a link_complete: the address that it asks about, then those that agreed since
	Refused  []string                 `json:"refused,omitempty"`  // of a link_complete: principals of addresses to which the asker said no
	Agreed   bool                     `json:"agreed,omitempty"`   // of a link: the asker agreed and may see the word
	Payment  *payment                 `json:"payment,omitempty"`
	Capture  *capture                 `json:"capture,omitempty"`

	Approvals int    `json:"approvals,omitempty"` // counts the approvals of a turn from 1
	Question  string `json:"question,omitempty"`  // of an approval or a login: the start of the message
	Draft     *draft `json:"draft,omitempty"`     // of an approval: the answer that is held back; nil = the agent wants to do something

	Code    string   `json:"code,omitempty"`    // of an approval: names it and what was shown with it
	Earlier []string `json:"earlier,omitempty"` // hashes of the codes that it had before edits
	Told    string   `json:"told,omitempty"`    // of an approval: the message to its approvers
	Whole   bool     `json:"whole,omitempty"`   // Told shows all of what is decided
	Message string   `json:"message,omitempty"` // of an approval or a login: digest of the asker's message
}

// payment is what was offered and verified.
type payment struct {
	facilitator.Payment
	Payer string `json:"payer,omitempty"`
}

// States of a capture. capturing without an end means that the process died while the facilitator was asked.
const (
	capturing     = "capturing"
	captured      = "captured"
	captureFailed = "failed"
)

// capture is how far the money went. The response is the work that it was taken for.
type capture struct {
	State    string               `json:"state"`
	Response *normalized.Response `json:"response,omitempty"` // nil when it is too large to be kept here
	Receipt  json.RawMessage      `json:"receipt,omitempty"`
	Reason   string               `json:"reason,omitempty"`
}

// notesOf reads the notes; a demand without any has the zero ones.
func notesOf(i policypart.Issuance) (n notes) {
	_ = json.Unmarshal(i.Notes, &n) // written by this package alone
	return n
}

func (n notes) raw() json.RawMessage {
	body, err := json.Marshal(n)
	if err != nil {
		return nil
	}
	return body
}

// progress is what a resolution tells the next run of its turn about the demands so far.
type progress struct {
	ID     string `json:"id"`
	Number int    `json:"number"`
	Paid   string `json:"paid,omitempty"`

	Approvals int `json:"approvals,omitempty"`
}

// progressOf reads it from a turn that was resumed; zero for a first run.
func progressOf(turn exchange.TurnRecord) (p progress) {
	if resolution := turn.Message.PolicyResolution; resolution != nil {
		_ = json.Unmarshal(resolution.Data[NumberKey], &p) // absent or not ours: counts as a first run
	}
	return p
}

// AskedPrivately reports whether a turn goes on after its asker alone was asked for something: consent, a login, a payment, or an
// approval that was the asker's own to give. The release of an answer that was held back is none of these: what was approved is that
// others read it.
func AskedPrivately(turn exchange.TurnRecord) bool {
	resolution := turn.Message.PolicyResolution
	if resolution == nil {
		return false
	}
	if _, approval := resolution.Data[policypart.ApprovalKey]; !approval || progressOf(turn).Number > 0 {
		return true
	}

	by := resolution.ResolvedBy
	return by != nil && !decidedOf(resolution).Reply && slices.ContainsFunc(turn.Message.Sender.Identities, func(e identity.Evidence) bool {
		return e.Issuer == by.Issuer && e.Subject == by.Subject
	})
}

// Codes of the final notice of a demand that was not met, and of audit rows about those that were.
const (
	codeDenied  = "demand:denied"
	codeExpired = "demand:expired"
	codeGranted = "demand:granted"
	codePaid    = "demand:paid"
	codeLinked  = "identity:linked"

	codeLinkAgreed = "identity:link_agreed"
)

// deed is what was done about a demand.
type deed struct {
	outcome string
	by      *policypart.Resolver
	receipt string
	data    map[string]json.RawMessage
	notes   *notes // nil = unchanged
	same    *bool  // whether it was the sender; nil = not known
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
		Kind: i.Kind, InReplyToState: kept.State, Outcome: d.outcome, ResolvedAt: identity.At(now), ResolvedBy: d.by, SameAsSender: d.same, Receipt: d.receipt,
		Data: withData(answeredData(i.Part.Data, d.data), NumberKey, next),
	}

	return i
}

// reserved begins the keys of data that this server writes: what an agent writes there never passes for what was found out.
const reserved = "dev.mentionable."

// answeredData is what the agent put into its own demand, so that it can tell which one was met, and what the server found out.
func answeredData(asked, found map[string]json.RawMessage) map[string]json.RawMessage {
	data := maps.Clone(found)
	for key, value := range asked {
		if strings.HasPrefix(key, reserved) {
			continue
		}
		if data == nil {
			data = map[string]json.RawMessage{}
		}
		data[key] = value
	}
	return data
}

// granted returns the ending that lets the parked turn go on.
func granted(i policypart.Issuance, d deed, from string, now time.Time) Ending {
	code := codeGranted
	if d.outcome == policypart.OutcomePaid {
		code = codePaid
	}
	return Ending{
		Issuance: ended(i, d, now), From: []string{from}, Resume: true,
		Audit: []exchange.AuditRecord{auditRow(i, code, i.Kind+" "+d.outcome, now)},
	}
}

// denied returns the ending of the parked turn with a plain sentence.
func denied(i policypart.Issuance, by *policypart.Resolver, from, sentence string, now time.Time) Ending {
	ending := Ending{
		Issuance: ended(i, deed{outcome: policypart.OutcomeDenied, by: by}, now), From: []string{from},
		Response: refused(i, codeDenied, sentence), State: exchange.StateRefused,
		Audit: []exchange.AuditRecord{auditRow(i, codeDenied, i.Kind+" was denied", now)},
	}
	if i.Kind == policypart.PaymentRequired {
		ending.Response.Metadata = map[string]string{PaymentStatusKey: statusRejected}
	}
	return ending
}

// expired returns the ending of the parked turn of a demand that was not decided in time.
func expired(i policypart.Issuance, now time.Time) Ending {
	if i.Purpose == policypart.PurposeApproval {
		return expiredApproval(i, now)
	}
	sentence := fmt.Sprintf("This request was not answered in time, so nothing was done: %s Send your message again to start over.", quoted(i))
	ending := Ending{
		Issuance: ended(i, deed{outcome: policypart.OutcomeExpired}, now),
		From:     []string{policypart.StatusIssued, policypart.StatusClaimed},
		Response: refused(i, codeExpired, sentence), State: exchange.StateRefused,
	}
	if i.Kind == policypart.PaymentRequired {
		ending.Response.Metadata = map[string]string{PaymentStatusKey: statusFailed, PaymentErrorKey: errorExpired}
	}
	return ending
}

// refused is the final notice to the asker of a demand that was not met: for them alone, like the demand.
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

// Reminder returns what the asker is told whose next message is a bare yes or no; open is false when no demand of theirs waits. The
// address of the demand is not in it: the message that asked has it, and went to them alone.
func Reminder(i policypart.Issuance, now time.Time) (sentence string, open bool) {
	if i.Purpose == policypart.PurposeApproval || i.CheckOpen(now) != nil {
		return "", false
	}
	return fmt.Sprintf(
		"This request is still open, and a reply does not answer it: %s Open the link in the message that asked you, and decide there. It is open until %s UTC.",
		quoted(i), i.ExpiresAt.UTC().Format(time.DateTime),
	), true
}

// asker is the identity that the holder of the state is taken for; nil when the asker has none.
func asker(i policypart.Issuance) *policypart.Resolver {
	if len(i.Asker) == 0 {
		return nil
	}
	by := i.Asker[0]
	return &by
}

// sweepBatch and sweepRounds bound what one look ends.
const (
	sweepBatch  = 100
	sweepRounds = 100
)

// expiry ends demands that were not decided in time.
type expiry struct {
	store   Store
	demands *registry
	every   time.Duration
	log     *slog.Logger
	now     func() time.Time
}

// Run ends demands that were not decided in time, until ctx is done. Any number of nodes may run it: each demand ends
// once, by a conditional update.
func (e *expiry) Run(ctx context.Context) error {
	ticker := time.NewTicker(e.every)
	defer ticker.Stop()
	for {
		if err := e.sweep(ctx); err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "expired demands cannot be ended", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// sweep ends what is due now. A demand that cannot be ended is left for the next time and does not keep later ones.
func (e *expiry) sweep(ctx context.Context) error {
	now := e.now()
	var last policypart.Issuance
	for range sweepRounds {
		due, err := e.store.DueDemands(ctx, now, last, sweepBatch)
		if err != nil {
			return err
		}

		for _, issuance := range due {
			err := e.end(ctx, issuance)
			if fault.Is(err, fault.Unavailable) { // the database is the cause, not the demand
				return err
			}
			if err != nil {
				e.log.WarnContext(ctx, "expired demand cannot be ended", "demand", issuance.ID, "error", err)
			}
		}

		if len(due) < sweepBatch {
			return ctx.Err()
		}
		last = due[len(due)-1]
	}
	return nil
}

// end tells the asker once that the time is over. When the turn does not wait any more (cancelled, or taken up by a new
// message) only the row changes; when another node was faster nothing does.
func (e *expiry) end(ctx context.Context, issuance policypart.Issuance) error {
	ending := expired(issuance, e.now())
	err := e.demands.turns.Settle(ctx, ending)
	if fault.Is(err, fault.Conflict) {
		ending.Issuance.Status, ending.Response, ending.State = policypart.StatusDropped, nil, ""
		return unlessConflict(e.demands.turns.Settle(ctx, ending))
	}

	if err == nil {
		demands.WithLabelValues(issuance.Kind, policypart.OutcomeExpired).Inc()
	}
	return err
}

// unlessConflict takes another node's success for our own.
func unlessConflict(err error) error {
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}
