package demand

import (
	"cmp"
	"log/slog"
	"time"

	"inbox/policypart"
)

// Service makes, shows and decides demands. It is safe for concurrent use. Each of its roles owns what it needs and names
// the roles that it calls.
type Service struct {
	*secrets   // Present
	*registry  // Bind
	*issuer    // Issue, Hold
	*pages     // Show, Decide, DecideApproval
	*logins    // BeginLogin, FinishLogin, ConfirmLogin
	*payments  // Pay, Capture, Captured
	*links     // Challenge
	*offers    // Offer
	*approvals // Approvals, Approval, Approve, Deny, EditReply, Released, Granted, LastWord, Told, Question, Answer, Guide
	*expiry    // Run
	*operators // Withdraw
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
	store, log := options.Store, options.Logger
	now := func() time.Time { return options.Now().UTC().Truncate(time.Millisecond) }

	// What every role stands on.
	own := &secrets{key: options.Secret, base: options.BaseURL}
	audit := &auditTrail{store: store, log: log, now: now, unknown: &rowLimit{rows: unknownRows}, known: &rowLimit{rows: knownRows}}
	demands := &registry{store: store, audit: audit, now: now}

	// What becomes of a demand, by what it asks for.
	offered := providers(options.Logins)
	link := &links{store: store, demands: demands, secrets: own, audit: audit, now: now}
	approval := &approvals{store: store, demands: demands, secrets: own, audit: audit, now: now}
	page := &pages{store: store, demands: demands, secrets: own, audit: audit, providers: offered, links: link, approvals: approval, tries: new(tries), now: now}
	login := &logins{demands: demands, pages: page, secrets: own, audit: audit, providers: offered, now: now}
	payment := &payments{
		store: store, demands: demands, pages: page, audit: audit, facilitator: options.Facilitator, log: log, now: now,
	}

	return &Service{
		secrets: own, registry: demands, pages: page, logins: login, payments: payment, links: link, approvals: approval,
		issuer: &issuer{
			secrets: own, providers: offered, links: link, payments: payment, now: now, approval: options.Approval,
			lives: map[string]time.Duration{
				policypart.ConsentRequired: options.Consent, policypart.PaymentRequired: options.Payment, policypart.Unauthorized: options.Auth,
			},
		},
		offers:    &offers{store: store, payments: payment, secrets: own, audit: audit, now: now},
		expiry:    &expiry{store: store, demands: demands, every: options.Sweep, log: log, now: now},
		operators: &operators{store: store, demands: demands, secrets: own, now: now},
	}
}
