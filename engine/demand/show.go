package demand

import (
	"context"
	"maps"
	"slices"

	"inbox/policypart"
)

// Show returns the page of a demand. It changes nothing, not even an audit row: mail scanners follow links.
// fault.NotFound when no demand has the token.
func (s *Service) Show(ctx context.Context, token string) (View, error) {
	issuance, refusal, err := s.byToken(ctx, token)
	switch {
	case err != nil:
		return View{}, err
	case refusal != nil:
		return View{}, asFault(refusal)
	}
	return s.view(issuance), nil
}

// refreshed returns the page after something was decided; what was stored meanwhile is what is shown.
func (s *Service) refreshed(ctx context.Context, issuance policypart.Issuance) View {
	if current, err := s.options.Store.Demand(ctx, issuance.ID); err == nil {
		issuance = current
	}
	return s.view(issuance)
}

func (s *Service) view(i policypart.Issuance) View {
	if i.ID == "" {
		return View{}
	}
	kept := notesOf(i)
	refusal := i.CheckOpen(s.now())
	view := View{
		ID: i.ID, Token: s.token(i.ID), Agent: i.Agent, AgentAddress: kept.AgentAddress, Kind: i.Kind, Purpose: i.Purpose, Status: i.Status,
		Open: refusal == nil, Part: bare(i.Part), Asker: kept.Address, Locale: kept.Locale, IssuedAt: i.IssuedAt, ExpiresAt: i.ExpiresAt,
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
		s.choices(&view, i, kept)
	}
	return view
}

// choices fills in what can be done on the page.
func (s *Service) choices(view *View, i policypart.Issuance, kept notes) {
	switch {
	case i.Kind == policypart.PaymentRequired:
		view.Accepts = i.Part.Accepts
	case i.Kind == policypart.Unauthorized:
		view.Logins = s.logins(i.Part)
	case i.Purpose == policypart.PurposeLink && kept.Agreed:
		view.Word = s.word(i.ID)
	}
}

// logins returns the names of the logins that a frozen demand offers and that are still configured.
func (s *Service) logins(part policypart.Part) []string {
	var names []string
	for _, challenge := range part.AuthChallenges {
		if name := challenge.Params[loginParam]; name != "" && s.login(name) != nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// bare leaves out of a part what its own page needs not show.
func bare(part policypart.Part) policypart.Part {
	part.URL = ""
	part.Data = maps.Clone(part.Data)
	delete(part.Data, StateKey)
	delete(part.Data, LinkKey)
	return part
}
