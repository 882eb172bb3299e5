package demand

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// Service makes, shows and decides demands. It is safe for concurrent use.
type Service struct {
	options Options
	turns   Turns
}

// New makes a Service; Bind must follow before anything is decided.
func New(options Options) *Service {
	options.Consent = cmp.Or(options.Consent, 24*time.Hour)
	options.Payment = cmp.Or(options.Payment, 10*time.Minute)
	options.Auth = cmp.Or(options.Auth, 15*time.Minute)
	options.Sweep = cmp.Or(options.Sweep, 30*time.Second)
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	return &Service{options: options}
}

// Bind names the pipeline, which itself needs the Service.
func (s *Service) Bind(turns Turns) { s.turns = turns }

var errLater = fault.New(fault.Unsupported, "not built yet")

// Issue makes the demand of a turn that is about to be parked.
func (s *Service) Issue(turn exchange.TurnRecord, part policypart.Part) (policypart.Issuance, error) {
	return policypart.Issuance{}, errLater
}

// Present gives a part as it may be rendered.
func (s *Service) Present(part policypart.Part) policypart.Part { return part.Confine(s.options.BaseURL) }

// Challenge says whether the message answers a link challenge from the other side.
func (s *Service) Challenge(ctx context.Context, turn exchange.TurnRecord) (part policypart.Part, answers bool, err error) {
	return policypart.Part{}, false, nil
}

// Offer holds a settlement that came with a message against the eight checks.
func (s *Service) Offer(ctx context.Context, in exchange.Inbound, parked exchange.TurnRecord) (Ending, error) {
	return Ending{}, errLater
}

// Capture takes the money for a completed answer.
func (s *Service) Capture(ctx context.Context, turn exchange.TurnRecord, response normalized.Response) (normalized.Response, error) {
	return response, nil
}

// Show gives the page of a demand and changes nothing.
func (s *Service) Show(ctx context.Context, token string) (View, error) { return View{}, errLater }

// Decide grants or denies.
func (s *Service) Decide(ctx context.Context, token string, grant bool) (View, error) {
	return View{}, errLater
}

// BeginLogin starts a login.
func (s *Service) BeginLogin(ctx context.Context, token, login string) (redirect, binding string, err error) {
	return "", "", errLater
}

// FinishLogin ends a login.
func (s *Service) FinishLogin(ctx context.Context, state, code, binding string) (View, error) {
	return View{}, errLater
}

// Pay offers a payment.
func (s *Service) Pay(ctx context.Context, token string, payment json.RawMessage) (View, error) {
	return View{}, errLater
}

// Run ends demands that expired, until ctx is done.
func (s *Service) Run(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
