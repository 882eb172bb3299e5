package demand

import (
	"context"
	"maps"
	"time"

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
		Open: refusal == nil, Part: bare(i.Part), Asker: kept.Address, Address: kept.Address, Proven: kept.proves(kept.Address), Via: i.Via,
		Locale: kept.Locale, IssuedAt: i.IssuedAt, ExpiresAt: i.ExpiresAt,
	}

	if len(i.Asker) > 0 {
		view.Asker = i.Asker[0].Subject
	}
	if i.Resolution != nil {
		view.Outcome = i.Resolution.Outcome
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

// Decide is the POST of a demand's page. Grant consents; for a link demand it makes the code word visible instead, and
// a demand for a login or a payment is not granted by a click (state:proof). Not grant denies any demand. Decide
// returns the page afterwards, also beside an error about a demand that exists. Errors: fault.NotFound, Gone, Conflict
// or Forbidden for a failed check (Code tells which), Unavailable when it could not be stored.
func (p *pages) Decide(ctx context.Context, token string, grant bool) (View, error) {
	issuance, err := p.demands.open(ctx, token)
	if err != nil {
		return p.view(issuance), err
	}

	switch {
	case issuance.Purpose == policypart.PurposeApproval:
		err = p.demands.settle(ctx, p.approvals.verdict(issuance, grant, Decider{Name: deciderPage}, ""))
	case !grant:
		err = p.demands.settle(ctx, denied(issuance, asker(issuance), policypart.StatusIssued, "You declined, so nothing was done: "+quoted(issuance), p.now()))
	case issuance.Kind != policypart.ConsentRequired:
		err = p.audit.refuse(ctx, issuance, &policypart.Refusal{Code: policypart.CodeProof, Reason: issuance.Kind + " is not met by consent"})
	case issuance.Purpose == policypart.PurposeLink:
		err = p.links.agree(ctx, issuance)
	case issuance.Purpose == policypart.PurposeLinkConfirm:
		err = p.links.confirm(ctx, issuance)
	default:
		err = p.demands.settle(ctx, granted(issuance, deed{outcome: policypart.OutcomeGranted, by: asker(issuance)}, policypart.StatusIssued, p.now()))
	}

	return p.refreshed(ctx, issuance), err
}
