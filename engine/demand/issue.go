package demand

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/facilitator"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// Issue makes the demand of a turn that is about to be parked; the caller stores it together with the parked turn.
// Issuance.Part is what the asker gets, its url being the page of the demand. Amount, payee, scopes and challenges are
// frozen. Errors are final faults with a public text: a part that asks for something that nobody could give here, the
// sixth demand of one turn, or one that expired already.
//
// A part that needs approval makes a demand that its asker gets nothing of: its Part has no url.
func (s *Service) Issue(turn exchange.TurnRecord, part policypart.Part) (policypart.Issuance, error) {
	if part.Code == policypart.CodeApprovalReply {
		return policypart.Issuance{}, unmeetable(errors.New(part.Code + " is asked by the server alone"))
	}
	return s.issue(turn, part, nil)
}

func (s *Service) issue(turn exchange.TurnRecord, part policypart.Part, held *draft) (policypart.Issuance, error) {
	now := s.now()
	kept, err := counted(progressOf(turn), part)
	if err != nil {
		return policypart.Issuance{}, err
	}
	kept.Address, kept.AgentAddress, kept.Draft = turn.Message.Sender.Address, turn.Message.Recipient, held
	if profile := turn.Message.Sender.Profile; profile != nil {
		kept.Locale = profile.Locale
	}
	issuance := policypart.Issuance{
		ID: uuid.Must(uuid.NewV7()).String(), TurnID: turn.ID, Agent: turn.Agent, ThreadID: turn.ThreadID, MessageID: turn.Message.ID,
		Via: turn.Message.ReceivedVia, Principal: turn.Message.Sender.Principal(), Asker: resolvers(turn.Message.Sender),
		Kind: part.Kind, IssuedAt: now, UpdatedAt: now, Status: policypart.StatusIssued,
	}
	issuance.StateHash = policypart.HashState(s.token(issuance.ID))
	if approves(part) {
		approval(&issuance, &kept, turn)
	}
	if err := s.freeze(&issuance, &kept, part); err != nil {
		return policypart.Issuance{}, err
	}
	issuance.Notes = kept.raw()
	demands.WithLabelValues(issuance.Kind, "issued").Inc()
	return issuance, nil
}

// counted begins the notes of a turn's next demand.
func counted(before progress, part policypart.Part) (notes, error) {
	kept := notes{Number: before.Number + 1, Paid: before.Paid, Approvals: before.Approvals}
	limit, count := MaxDemands, kept.Number
	if approves(part) {
		kept.Number, kept.Approvals = before.Number, before.Approvals+1
		limit, count = MaxApprovals, kept.Approvals
	}
	if count > limit {
		return kept, fault.GiveUp(fmt.Sprintf("the agent asked back more than %d times", limit), nil)
	}
	return kept, nil
}

// freeze completes the part and makes it final. What others decide carries no address: it is for them alone.
func (s *Service) freeze(issuance *policypart.Issuance, kept *notes, part policypart.Part) error {
	part.URL = ""
	if issuance.Purpose != policypart.PurposeApproval {
		part.URL = s.page(issuance.ID).String()
	}
	part.Data = maps.Clone(part.Data)
	delete(part.Data, StateKey)
	var err error
	switch part.Kind {
	case policypart.ConsentRequired:
		err = s.freezeLink(issuance, kept, &part)
	case policypart.Unauthorized:
		err = s.freezeLogins(&part)
	case policypart.PaymentRequired:
		err = s.freezePayment(*kept, part)
	default:
		err = unmeetable(fmt.Errorf("a demand of kind %q cannot be waited for", part.Kind))
	}
	if err != nil {
		return err
	}
	if issuance.ExpiresAt, err = s.expiry(part, issuance.IssuedAt); err != nil {
		return err
	}
	expires := identity.At(issuance.ExpiresAt)
	part.ExpiresAt = &expires
	if shape := part.CheckWithin(s.options.BaseURL); shape != nil {
		return unmeetable(shape)
	}
	if issuance.Action, err = part.Terms(); err != nil {
		return unmeetable(err)
	}
	issuance.Part = part.Confine(s.options.BaseURL)
	return nil
}

// expiry returns the end of the demand: the agent may set an earlier one than ours.
func (s *Service) expiry(part policypart.Part, now time.Time) (time.Time, error) {
	life := map[string]time.Duration{
		policypart.ConsentRequired: s.options.Consent, policypart.PaymentRequired: s.options.Payment, policypart.Unauthorized: s.options.Auth,
	}[part.Kind]
	if approves(part) {
		life = s.options.Approval
	}
	end := now.Add(life)
	if part.ExpiresAt == nil || !part.ExpiresAt.Before(end) {
		return end, nil
	}
	if !part.ExpiresAt.After(now) {
		return end, unmeetable(fmt.Errorf("expires_at %s is over already", part.ExpiresAt))
	}
	return part.ExpiresAt.Time, nil
}

// freezeLogins names the logins that our page offers: those that the agent names in a challenge's "login", else all.
func (s *Service) freezeLogins(part *policypart.Part) error {
	part.AuthChallenges = slices.Clone(part.AuthChallenges)
	named := false
	for i, challenge := range part.AuthChallenges {
		login, ok := challenge.Params[loginParam]
		if !ok {
			continue
		}
		if s.login(login) == nil {
			return unmeetable(fmt.Errorf("login %q is not configured", login))
		}
		named = true
		part.AuthChallenges[i].Params = maps.Clone(challenge.Params)
		part.AuthChallenges[i].Params["realm"] = part.URL
	}
	if named {
		return nil
	}
	for _, login := range s.options.Logins {
		part.AuthChallenges = append(part.AuthChallenges, policypart.Challenge{
			Scheme: "Bearer", Params: map[string]string{"realm": part.URL, loginParam: login.Name()},
		})
	}
	return nil
}

// freezePayment refuses terms that nobody could meet, before anybody is asked for money.
func (s *Service) freezePayment(kept notes, part policypart.Part) error {
	switch {
	case s.options.Facilitator == nil:
		return unmeetable(fmt.Errorf("no payment facilitator is configured (payments.facilitator_url)"))
	case kept.Paid != "":
		return unmeetable(fmt.Errorf("the turn was paid for already"))
	case len(part.Accepts) == 0:
		return unmeetable(fmt.Errorf("accepts is empty: nobody could pay"))
	}
	for n, accept := range part.Accepts {
		if _, err := facilitator.ReadRequirements(accept); err != nil {
			return unmeetable(fmt.Errorf("accepts[%d]: %w", n, err))
		}
	}
	return nil
}

func unmeetable(cause error) error {
	return fault.GiveUp("the agent asked for something that cannot be given here", cause)
}

// resolvers returns the identities of a sender.
func resolvers(sender normalized.Sender) []policypart.Resolver {
	found := make([]policypart.Resolver, 0, len(sender.Identities))
	for i := range sender.Identities {
		found = append(found, resolver(sender.Identities[i]))
	}
	return found
}

func resolver(e identity.Evidence) policypart.Resolver {
	return policypart.Resolver{Issuer: e.Issuer, Subject: e.Subject, Method: e.Method}
}
