package demand

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/policypart"
)

// offered is what one message offers for a demand, whichever way it was written.
type offered struct {
	state    string
	kind     string
	outcome  string
	receipt  string
	resolver *policypart.Resolver // of a signed envelope; nil = the sender speaks for themselves
	scopes   []string             // that the envelope grants; nil = those that were asked for
	payment  json.RawMessage
}

// claims is what a Connector writes into the envelope of a resumption.
type claims struct {
	State   string   `json:"in_reply_to_state"`
	Kind    string   `json:"kind"`
	Outcome string   `json:"outcome"`
	Receipt string   `json:"receipt"`
	Scopes  []string `json:"scopes"`
}

// offers meets demands by message: with words, a signed envelope or a payment.
type offers struct {
	store    Store
	payments *payments
	secrets  *secrets
	audit    *auditTrail
	now      func() time.Time
}

// Offer checks what a message offers for an open demand: all eight checks. Parked is the turn that the message
// continues; its zero value when it names none, then the state has to find the demand. The ending is for the caller to
// store together with the message's own turn: on Resume that turn runs with Issuance.Resolution (it takes the place of
// the parked one, which is dropped), otherwise the asker gets Response. A payment was claimed and verified before Offer
// returns. On refusal (fault.Forbidden, Code tells the check) Ending.Audit is the row to store, nothing else is set.
func (o *offers) Offer(ctx context.Context, in exchange.Inbound, parked exchange.TurnRecord) (Ending, error) {
	what, ok := read(in.Settlement)
	if !ok {
		return Ending{}, fault.InField("policy_resolution", "must name the demand that it resolves")
	}

	issuance, err := o.demanded(ctx, &what, parked)
	if err != nil {
		return Ending{}, fault.Wrap(fault.Unavailable, "the request cannot be read now; try again", err)
	}

	refusal := issuance.Check(o.attempt(what, in, parked, issuance))
	if refusal == nil {
		refusal = checkScopes(what, issuance)
	}
	if refusal != nil {
		return o.declined(in, issuance, refusal)
	}

	ending, err := o.accept(ctx, what, in, issuance)
	if refusal, ok := errors.AsType[*policypart.Refusal](err); ok {
		return o.declined(in, issuance, refusal)
	}

	return ending, err
}

// read finds the one thing that is offered. An envelope is a proof and comes first.
func read(settlement *exchange.Settlement) (offered, bool) {
	if settlement == nil {
		return offered{}, false
	}

	what := offered{payment: settlement.Payment}
	if r := settlement.Resolution; r != nil {
		what.state, what.kind, what.outcome, what.receipt = r.InReplyToState, r.Kind, r.Outcome, r.Receipt
	}

	for i := range settlement.Envelopes {
		envelope, ok := readEnvelope(settlement.Envelopes[i])
		if ok && (what.state == "" || what.state == envelope.state) {
			envelope.payment = what.payment
			what = envelope
			break
		}
	}

	if what.payment != nil && what.outcome == "" {
		what.kind, what.outcome = policypart.PaymentRequired, policypart.OutcomePaid
	}

	// Declining needs no state: the turn that the message continues has one open demand.
	return what, what.state != "" || what.payment != nil || what.outcome == policypart.OutcomeDenied
}

// readEnvelope reads validated evidence that resolves a demand. Its id makes it good once.
func readEnvelope(e identity.Evidence) (offered, bool) {
	var c claims
	if e.Proof.Type != identity.ProofSignedAttestation || e.ID == "" || json.Unmarshal(e.Claims, &c) != nil || c.State == "" || c.Outcome == "" {
		return offered{}, false
	}
	by := resolver(e)
	return offered{state: c.State, kind: c.Kind, outcome: c.Outcome, receipt: c.Receipt, resolver: &by, scopes: c.Scopes}, true
}

// demanded finds the demand, by its state or by the turn that waits for it. A demand that is not there is the zero one.
func (o *offers) demanded(ctx context.Context, what *offered, parked exchange.TurnRecord) (policypart.Issuance, error) {
	if what.state != "" {
		issuance, _, err := o.store.DemandByState(ctx, policypart.HashState(what.state))
		return issuance, err
	}
	if parked.ID == "" {
		return policypart.Issuance{}, nil
	}

	issuance, found, err := o.store.DemandOfTurn(ctx, parked.ID)
	if found {
		what.state = o.secrets.token(issuance.ID)
	}
	return issuance, err
}

func (o *offers) attempt(what offered, in exchange.Inbound, parked exchange.TurnRecord, i policypart.Issuance) policypart.Attempt {
	agent := ""
	if address, err := identity.ParseAddress(in.Message.Recipient); err == nil {
		agent = address.Local
	}
	return policypart.Attempt{
		State: what.state, Agent: agent, ThreadID: in.Message.ThreadID, TurnID: parked.ID, Principal: in.Message.Sender.Principal(),
		Resolvers: resolvers(in.Message.Sender), Resolver: what.resolver, Kind: what.kind, Unproven: unproven(what, i), At: o.now(),
	}
}

// unproven returns why a granting message needs more than its words: a login and a payment are proven by their service, a
// link by its own page. To decline needs no proof, and consent is the word of the asker.
func unproven(what offered, i policypart.Issuance) string {
	switch {
	case i.Purpose == policypart.PurposeApproval:
		return "an approval is given by those whom the operator named"
	case what.outcome == policypart.OutcomeDenied:
		return ""
	case what.outcome != policypart.OutcomeGranted && what.outcome != policypart.OutcomePaid:
		return "the outcome cannot be " + what.outcome
	case (what.outcome == policypart.OutcomePaid) != (i.Kind == policypart.PaymentRequired):
		return "the outcome does not fit the kind"
	case i.Purpose != "":
		return "addresses are linked on their pages"
	case i.Kind == policypart.PaymentRequired && what.payment == nil:
		return "no payment was offered"
	case i.Kind == policypart.Unauthorized && what.resolver == nil:
		return "a login is proven by its provider or by a signed envelope"
	}
	return ""
}

// checkScopes compares granted scopes with the frozen ones, in any order.
func checkScopes(what offered, i policypart.Issuance) *policypart.Refusal {
	if what.scopes == nil || what.outcome == policypart.OutcomeDenied || sameSet(what.scopes, i.Part.Scopes) {
		return nil
	}
	return &policypart.Refusal{Code: policypart.CodeTerms, Reason: "the scopes are not those that were asked for"}
}

func sameSet(a, b []string) bool {
	seen := make(map[string]bool, len(a))
	for _, text := range a {
		seen[text] = true
	}

	wanted := make(map[string]bool, len(b))
	for _, text := range b {
		if wanted[text] = true; !seen[text] {
			return false
		}
	}
	return len(seen) == len(wanted)
}

// accept makes the ending of an offer that passed its checks; a payment is claimed and verified here.
func (o *offers) accept(ctx context.Context, what offered, in exchange.Inbound, i policypart.Issuance) (Ending, error) {
	by := what.resolver
	if by == nil {
		by = asker(i)
	}

	same := true // check 4 held: the sender, or an envelope about one of the sender's identities
	var ending Ending
	switch {
	case what.outcome == policypart.OutcomeDenied:
		ending = denied(i, by, policypart.StatusIssued, "You declined, so nothing was done: "+quoted(i), o.now())
		ending.Response.InReplyTo = in.Message.ID
	case i.Kind == policypart.PaymentRequired:
		paid, err := o.payments.pay(ctx, i, what.payment, by)
		if err != nil {
			return Ending{}, err
		}
		ending = paid
	default:
		ending = granted(i, deed{outcome: what.outcome, by: by, receipt: what.receipt, same: &same}, policypart.StatusIssued, o.now())
	}

	demands.WithLabelValues(i.Kind, ending.Issuance.Resolution.Outcome).Inc()
	return ending, nil
}

func (o *offers) declined(in exchange.Inbound, i policypart.Issuance, refusal *policypart.Refusal) (Ending, error) {
	principal := in.Message.Sender.Principal()
	return Ending{Audit: o.audit.refusal(i, refusal, principal)}, fault.Wrap(fault.Forbidden, fault.Of(asFault(refusal)).Public, refusal)
}
