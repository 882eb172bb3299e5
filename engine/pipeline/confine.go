package pipeline

import (
	"context"
	"slices"

	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

// auditURLRemoved is the code of a policy part whose address led away from this server.
const auditURLRemoved = "policy:url_removed"

// confined takes the address out of a policy part that leads off our origin, and records it: a link in a demand for
// money or consent is what a phisher would forge (message contract, section 8). Adapters check again when they render.
// A demand that a turn waits for gets the address of its own page in any case.
func (s *Service) confined(ctx context.Context, turn exchange.TurnRecord, response normalized.Response) (normalized.Response, error) {
	policy := response.Policy()
	if policy == nil || policy.URL == "" || s.options.BaseURL == nil {
		return response, nil
	}
	kept := policy.Confine(s.options.BaseURL)
	if kept.URL != "" {
		return response, nil
	}
	row := auditOf(turn, auditURLRemoved, "the agent's "+policy.Kind+" part pointed to another origin")
	if err := s.options.Store.InTx(ctx, func(tx Tx) error { return tx.Audit(ctx, row) }); err != nil {
		return response, err
	}
	if policypart.Resumable(policy.Kind) {
		return response, nil
	}
	response.Parts = slices.Clone(response.Parts)
	response.Parts[len(response.Parts)-1].Policy = &kept
	return response, nil
}
