package demand

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"inbox/internal/fault"
	"inbox/policypart"
)

// Service makes, shows and decides demands. It is safe for concurrent use.
type Service struct {
	options        Options
	turns          Turns
	unknown, known *rows
}

// New makes a Service; Bind must follow before anything is decided.
func New(options Options) *Service {
	options.Consent = cmp.Or(options.Consent, 24*time.Hour)
	options.Approval = cmp.Or(options.Approval, 24*time.Hour)
	options.Payment = cmp.Or(options.Payment, 10*time.Minute)
	options.Auth = cmp.Or(options.Auth, 15*time.Minute)
	options.Sweep = cmp.Or(options.Sweep, 30*time.Second)
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	return &Service{options: options, unknown: &rows{limit: unknownRows}, known: &rows{limit: knownRows}}
}

// Bind names the pipeline, which itself needs the Service. It must be called once, before the first request.
func (s *Service) Bind(turns Turns) { s.turns = turns }

func (s *Service) now() time.Time { return s.options.Now().UTC().Truncate(time.Millisecond) }

// byToken finds the demand of a page. A token of another form is no demand and costs no query.
func (s *Service) byToken(ctx context.Context, token string) (policypart.Issuance, *policypart.Refusal, error) {
	unknown := &policypart.Refusal{Code: policypart.CodeUnknown, Reason: "no demand has this state"}
	if len(token) != tokenBytes {
		return policypart.Issuance{}, unknown, nil
	}
	issuance, found, err := s.options.Store.DemandByState(ctx, policypart.HashState(token))
	switch {
	case err != nil:
		return issuance, nil, fault.Wrap(fault.Unavailable, "the request cannot be read now; try again", err)
	case !found:
		return policypart.Issuance{}, unknown, nil
	}
	return issuance, nil, nil
}

// open finds the demand of a page for somebody who acts on it: all of the eight checks that need no proof.
func (s *Service) open(ctx context.Context, token string) (policypart.Issuance, error) {
	issuance, refusal, err := s.byToken(ctx, token)
	if err != nil {
		return issuance, err
	}
	if refusal == nil {
		refusal = issuance.Check(policypart.Attempt{State: token, Bearer: true, At: s.now()})
	}
	if refusal != nil {
		return issuance, s.refuse(ctx, issuance, refusal)
	}
	return issuance, nil
}

// settle stores endings of which the first is of the demand that somebody just decided.
func (s *Service) settle(ctx context.Context, endings ...Ending) error {
	err := s.turns.Settle(ctx, endings...)
	first := endings[0].Issuance
	switch {
	case fault.Is(err, fault.Conflict):
		return s.refuse(ctx, first, s.lost(ctx, first.ID))
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

// lost says why somebody who passed the checks could not act: another attempt was faster, or the turn is gone.
func (s *Service) lost(ctx context.Context, id string) *policypart.Refusal {
	if current, err := s.options.Store.Demand(ctx, id); err == nil {
		if refusal := current.CheckOpen(s.now()); refusal != nil {
			return refusal
		}
	}
	return &policypart.Refusal{Code: policypart.CodeUsed, Reason: "the turn does not wait for it any more"}
}
