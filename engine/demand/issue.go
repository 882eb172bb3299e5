package demand

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/markup"
	"inbox/normalized"
	"inbox/policypart"
)

// issuer makes demands and freezes what they ask for.
type issuer struct {
	secrets   *secrets
	providers providers
	links     *links
	payments  *payments
	lives     map[string]time.Duration // of a demand by its kind
	approval  time.Duration            // of a demand that an approver decides
	now       func() time.Time
}

// Issue makes the demand of a turn that is about to be parked; the caller stores it together with the parked turn.
// Issuance.Part is what the asker gets, its url being the page of the demand. Amount, payee, scopes and challenges are
// frozen. Errors are final faults with a public text: a part that asks for something that cannot be met here, the
// sixth demand of one turn, or one that expired already.
//
// A part that needs approval makes a demand that its asker gets nothing of: its Part has no url.
func (s *issuer) Issue(turn exchange.TurnRecord, part policypart.Part) (policypart.Issuance, error) {
	if part.Code == policypart.CodeApprovalReply {
		return policypart.Issuance{}, unmeetable(errors.New(part.Code + " is asked by the server alone"))
	}
	return s.issue(turn, part, nil)
}

func (s *issuer) issue(turn exchange.TurnRecord, part policypart.Part, held *draft) (policypart.Issuance, error) {
	now := s.now()
	kept, err := counted(progressOf(turn), part)
	if err != nil {
		return policypart.Issuance{}, err
	}

	if kept.State, err = ownState(part); err != nil {
		return policypart.Issuance{}, err
	}
	kept.Address, kept.AgentAddress, kept.Draft = turn.Message.Sender.Address, turn.Message.Recipient, held
	kept.Proven, kept.Personal = provenOf(turn.Message.Sender), personalAddresses(turn.Message.Sender)
	if profile := turn.Message.Sender.Profile; profile != nil {
		kept.Locale = profile.Locale
	}

	issuance := policypart.Issuance{
		ID: exchange.DerivedID(turn.ID, "demand", strconv.Itoa(turn.Attempt)), TurnID: turn.ID, Agent: turn.Agent, ThreadID: turn.ThreadID, MessageID: turn.Message.ID,
		Via: turn.Message.ReceivedVia, Principal: turn.Message.Sender.Principal(), Asker: resolvers(turn.Message.Sender),
		Kind: part.Kind, IssuedAt: now, UpdatedAt: now, Status: policypart.StatusIssued,
	}

	issuance.StateHash = policypart.HashState(s.secrets.token(issuance.ID))
	if approves(part) {
		approval(&issuance, &kept, turn)
	}
	if part.Kind == policypart.Unauthorized {
		kept.Question = beginning(markup.PlainText(turn.Message.Parts), maxQuestion)
		kept.Message = digestOfMessage(turn.Message)
	}
	if err := s.freeze(&issuance, &kept, part); err != nil {
		return policypart.Issuance{}, err
	}

	if approves(part) {
		noteTelling(issuance, &kept)
	}
	issuance.Notes = kept.raw()
	demands.WithLabelValues(issuance.Kind, "issued").Inc()
	return issuance, nil
}

// ownState returns the state that the agent issued with its demand (message contract, section 9), empty when it issued none. The asker
// never sees it: the state of the demand's address is another one, which the server made.
func ownState(part policypart.Part) (state string, err error) {
	written, has := part.Data[StateKey]
	if !has {
		return "", nil
	}
	if err := json.Unmarshal(written, &state); err != nil || len(state) > maxOwnState {
		return "", unmeetable(fmt.Errorf("data %q must be a text of at most %d bytes", StateKey, maxOwnState))
	}
	return state, nil
}

// maxOwnState bounds the state that an agent issues itself, in bytes: as long as an address may be.
const maxOwnState = 2 << 10

// Hold creates the demand for a finished answer that an approver has to release. Combined means that it already contains the answers of other
// agents. left counts what was cut. It fails, finally, when too many answers are held.
func (s *issuer) Hold(turn exchange.TurnRecord, response normalized.Response, combined bool) (issuance policypart.Issuance, left normalized.Left, err error) {
	response.Left = normalized.Left{}
	held := &draft{Response: response.FitBytes(normalized.DefaultLimits(), normalized.Left{}, maxDraft), Combined: combined}
	issuance, err = s.issue(turn, policypart.Part{
		Kind: policypart.ConsentRequired, Code: policypart.CodeApprovalReply,
		Title: "An answer waits for approval", Message: "The answer is sent once an approver approves it.",
	}, held)
	return issuance, held.Response.Left, err
}

// counted begins the notes of a turn's next demand.
func counted(before progress, part policypart.Part) (notes, error) {
	kept := notes{Number: before.Number + 1, Paid: before.Paid, Approvals: before.Approvals}
	limit, count := MaxDemands, kept.Number
	if part.Code == CodeLinkComplete { // the server's question, and no more of them than sides
		kept.Number = before.Number
		return kept, nil
	}
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
func (s *issuer) freeze(issuance *policypart.Issuance, kept *notes, part policypart.Part) error {
	part.URL = ""
	if issuance.Purpose != policypart.PurposeApproval {
		part.URL = s.secrets.page(issuance.ID).String()
	}

	part.Data = maps.Clone(part.Data)
	delete(part.Data, StateKey)
	var err error
	switch part.Kind {
	case policypart.ConsentRequired:
		err = s.links.freeze(issuance, kept, &part)
	case policypart.Unauthorized:
		err = s.providers.freeze(&part)
	case policypart.PaymentRequired:
		err = s.payments.freeze(*kept, part)
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

	if shape := part.CheckWithin(s.secrets.base); shape != nil {
		return unmeetable(shape)
	}
	if issuance.Action, err = part.Terms(); err != nil {
		return unmeetable(err)
	}

	issuance.Part = part.Confine(s.secrets.base)
	return nil
}

// expiry returns the end of the demand: the agent may set an earlier one than ours.
func (s *issuer) expiry(part policypart.Part, now time.Time) (time.Time, error) {
	life := s.lives[part.Kind]
	if approves(part) {
		life = s.approval
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

func unmeetable(cause error) error {
	return fault.GiveUp("the agent asked for something that cannot be given here", cause)
}

// personalAddresses are those that prove a person: what a program signed with a key of its host says that the host has such an address,
// and not that its owner wrote. What a caller proves about itself says nothing of the person whose message it brings.
func personalAddresses(sender normalized.Sender) []identity.ProvenAddress {
	var proven []identity.ProvenAddress
	own := sender.Own()
	for i := range own {
		if address := own[i].Proven(); address != "" && own[i].Assurance != identity.AssuranceAgent {
			proven = append(proven, address)
		}
	}
	return proven
}

// resolvers returns the identities of a sender: the one that says who speaks, then the others. A sender of whom nothing says who
// speaks has none, be it proven who brought the message.
func resolvers(sender normalized.Sender) []policypart.Resolver {
	speaker := sender.Speaker()
	if speaker == nil {
		return nil
	}

	found := make([]policypart.Resolver, 1, len(sender.Identities))
	found[0] = resolver(*speaker)
	for i := range sender.Identities {
		if speaker != &sender.Identities[i] {
			found = append(found, resolver(sender.Identities[i]))
		}
	}
	return found
}

func resolver(e identity.Evidence) policypart.Resolver {
	return policypart.Resolver{Issuer: e.Issuer, Subject: e.Subject, Method: e.Method}
}
