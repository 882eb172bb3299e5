package demand

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"inbox/internal/fault"
	"inbox/policypart"
)

// pages shows demands to their asker or approver, and takes the decision of a click.
type pages struct {
	store     Store
	demands   *registry
	secrets   *secrets
	audit     *auditTrail
	providers providers
	links     *links
	approvals *approvals
	tries     *tries
	now       func() time.Time
}

// Show returns the page of a demand. It changes nothing, not even an audit row: mail scanners follow links.
// fault.NotFound when no demand has the token.
func (p *pages) Show(ctx context.Context, token string) (View, error) {
	issuance, refusal, err := p.demands.byToken(ctx, token)
	switch {
	case err != nil:
		return View{}, err
	case refusal != nil:
		return View{}, asFault(refusal)
	}
	return p.view(issuance), nil
}

// refreshed returns the page after something was decided; what was stored meanwhile is what is shown.
func (p *pages) refreshed(ctx context.Context, issuance policypart.Issuance) View {
	if current, err := p.store.Demand(ctx, issuance.ID); err == nil {
		issuance = current
	}
	return p.view(issuance)
}

func (p *pages) view(i policypart.Issuance) View {
	if i.ID == "" {
		return View{}
	}

	kept := notesOf(i)
	refusal := i.CheckOpen(p.now())
	view := View{
		ID: i.ID, Token: p.secrets.token(i.ID), Agent: i.Agent, AgentAddress: kept.AgentAddress, Kind: i.Kind, Purpose: i.Purpose, Status: i.Status,
		Open: refusal == nil, Part: bare(i.Part), Asker: kept.Address.String(), Address: kept.Address.String(), Proven: kept.proves(kept.Address.String()), Via: i.Via,
		Locale: kept.Locale, IssuedAt: i.IssuedAt, ExpiresAt: i.ExpiresAt,
	}

	if len(i.Asker) > 0 {
		view.Asker = i.Asker[0].Subject
	}
	if i.Resolution != nil {
		view.Outcome = i.Resolution.Outcome
	}
	if i.Purpose == policypart.PurposeLinkComplete && len(undecided(i.Resolution).Sides) > 0 { // no to this address, and another one is asked about
		view.Outcome = policypart.OutcomeDenied
	}
	if refusal != nil && refusal.Withdrawn {
		view.Status, view.Outcome = policypart.StatusDropped, ""
	}
	if i.Purpose == policypart.PurposeApproval {
		showApproval(&view, i, kept)
	}
	if !view.Open && i.Status == policypart.StatusIssued {
		view.Status = policypart.StatusExpired
	}
	if view.Open {
		p.choices(&view, i, kept)
	}

	return view
}

// choices fills in what can be done on the page.
func (p *pages) choices(view *View, i policypart.Issuance, kept notes) {
	switch {
	case i.Kind == policypart.PaymentRequired:
		view.Accepts = i.Part.Accepts
	case i.Kind == policypart.Unauthorized:
		view.Logins = p.providers.offered(i.Part)
	case i.Purpose == policypart.PurposeLink && kept.Agreed:
		view.Word = p.secrets.word(i.ID)
	}
}

// bare leaves out of a part what its own page needs not show.
func bare(part policypart.Part) policypart.Part {
	part.URL = ""
	part.Data = maps.Clone(part.Data)
	delete(part.Data, StateKey)
	delete(part.Data, LinkKey)
	return part
}

// DecideApproval is the POST of an approver's page. The link can get to the agent, which must not decide about itself, so the
// code of the approval proves that the reader has the message to the approvers; codes from before an edit prove it, too. A
// grant is about what the page showed: fault.Conflict when that was changed. Errors else are those of Decide.
func (p *pages) DecideApproval(ctx context.Context, token string, grant bool, code, shown string) (View, error) {
	issuance, err := p.demands.open(ctx, token)
	if err != nil {
		return p.view(issuance), err
	}

	switch {
	case issuance.Purpose != policypart.PurposeApproval:
		err = fault.InField("code", "is not asked for here")
	case !p.tries.take(issuance.ID, p.now()):
		err = fault.New(fault.RateLimited, "too many codes were tried; wait a minute and try again")
	case !hasCode(issuance, code):
		err = p.audit.refuse(ctx, issuance, &policypart.Refusal{Code: policypart.CodeProof, Reason: "a wrong code on the page"})
	case grant && shown != shownOf(issuance):
		err = p.audit.refuse(ctx, issuance, changedSince(deciderPage))
	default:
		err = p.demands.settle(ctx, p.approvals.verdict(issuance, grant, Decider{Name: deciderPage}, ""))
	}

	return p.refreshed(ctx, issuance), err
}

// hasCode reports whether a text is a code of the approval.
func hasCode(i policypart.Issuance, text string) bool {
	words := strings.Fields(text)
	if len(words) == 2 && strings.EqualFold(words[0], "approve") { // the whole line of the message was pasted
		words = words[1:]
	}
	hash := hashCode(plainCode(strings.TrimPrefix(strings.Join(words, " "), "#")))
	return hash == i.CodeHash || slices.Contains(notesOf(i).Earlier, hash)
}

// Bounds of guesses: this many per approval and minute on one node, for this many approvals at once.
const (
	triesPerMinute = 10
	triesKept      = 10_000
)

// tries counts the codes that were tried on pages.
type tries struct {
	mutex  sync.Mutex
	minute time.Time
	counts map[string]int
}

// take reports whether one more may be tried for an approval.
func (t *tries) take(id string, now time.Time) bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()

	if minute := now.Truncate(time.Minute); !minute.Equal(t.minute) || t.counts == nil {
		t.minute, t.counts = minute, map[string]int{}
	}
	if t.counts[id] >= triesPerMinute || len(t.counts) >= triesKept && t.counts[id] == 0 {
		return false
	}
	t.counts[id]++
	return true
}

// sayDeclined begins what the asker is told who declined.
const sayDeclined = "You declined, so nothing was done: "

// Decide is the POST of a demand's page. Grant consents; for a link demand it makes the code word visible instead, and
// a demand for a login or a payment is not granted by a click (state:proof), and an approval only by DecideApproval. Not grant denies any demand. Decide
// returns the page afterwards, also beside an error about a demand that exists. Errors: fault.NotFound, Gone, Conflict
// or Forbidden for a failed check (Code tells which), Unavailable when it could not be stored.
func (p *pages) Decide(ctx context.Context, token string, grant bool) (View, error) {
	issuance, err := p.demands.open(ctx, token)
	if err != nil {
		return p.view(issuance), err
	}

	switch {
	case issuance.Purpose == policypart.PurposeApproval:
		err = fault.InField("code", "is missing: it is in the message that has the link to this page")
	case !grant && issuance.Purpose == policypart.PurposeLinkComplete:
		err = p.links.decline(ctx, issuance)
	case !grant:
		err = p.demands.settle(ctx, denied(issuance, asker(issuance), policypart.StatusIssued, sayDeclined+quoted(issuance), p.now()))
	case issuance.Kind != policypart.ConsentRequired:
		err = p.audit.refuse(ctx, issuance, &policypart.Refusal{Code: policypart.CodeProof, Reason: issuance.Kind + " is not met by consent"})
	case issuance.Purpose == policypart.PurposeLink:
		err = p.links.agree(ctx, issuance)
	case issuance.Purpose == policypart.PurposeLinkConfirm:
		err = p.links.confirm(ctx, issuance)
	case issuance.Purpose == policypart.PurposeLinkComplete:
		err = p.links.complete(ctx, issuance)
	default:
		err = p.demands.settle(ctx, granted(issuance, deed{outcome: policypart.OutcomeGranted, by: asker(issuance)}, policypart.StatusIssued, p.now()))
	}

	return p.refreshed(ctx, issuance), err
}
