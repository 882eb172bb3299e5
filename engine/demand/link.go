package demand

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/capability"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// A word is wordPrefix and 16 characters of Crockford's base32. People type it from one device into another, so case
// and the letters that base32 leaves out are forgiven.
const (
	wordPrefix = "link-"
	maxWords   = 3        // looked up in one message
	maxScanned = 64 << 10 // bytes of one text part that are searched
)

var (
	wordPattern = regexp.MustCompile(`(?i)\blink-[0-9a-z]{16}\b`)
	wordLetters = strings.NewReplacer("o", "0", "i", "1", "l", "1")
)

// partner is the value of LinkKey in the part of Challenge. The proof shows that Challenge wrote it for this very turn:
// an agent cannot bind two people's demands to each other.
type partner struct {
	Demand string `json:"demand"`
	Proof  string `json:"proof"`
}

// links makes one person of two addresses, for one agent: the asker of the first demand gets a code word, the other address
// sends it and confirms a second demand.
type links struct {
	store   Store
	demands *registry
	secrets *secrets
	audit   *auditTrail
	now     func() time.Time
}

// freeze sets the purpose of link demands. Both sides need a verified identity.
func (l *links) freeze(issuance *policypart.Issuance, kept *notes, part *policypart.Part) error {
	var bound partner
	_ = json.Unmarshal(part.Data[LinkKey], &bound) // absent or not ours: proves nothing
	delete(part.Data, LinkKey)

	switch {
	case part.Code != CodeLink && part.Code != CodeLinkConfirm:
		return nil
	case len(issuance.Asker) == 0:
		return fault.GiveUp("only a verified address can be linked with another one", nil)
	case part.Code == CodeLink:
		issuance.Purpose = policypart.PurposeLink
		issuance.CodeHash = policypart.HashState(l.secrets.word(issuance.ID))
		return nil
	case !capability.Valid(l.secrets.key, partnerClaim(bound.Demand, issuance.TurnID), bound.Proof):
		return unmeetable(errors.New(CodeLinkConfirm + " is asked by the server alone"))
	}

	issuance.Purpose, kept.Partner = policypart.PurposeLinkConfirm, bound.Demand
	return nil
}

// Challenge reports whether a message, before its agent runs, answers a link challenge from the other side: it carries the
// code word that the page of an open link demand of the same agent showed. Then part is the demand that the sender has
// to agree to; the turn is parked with it (Issue) instead of running the agent. A message without such a word costs no
// query. fault.Forbidden means that the word is right and the sender cannot be linked by it; its text is for the sender.
func (l *links) Challenge(ctx context.Context, turn exchange.TurnRecord) (part policypart.Part, answers bool, err error) {
	for _, word := range words(turn.Message) {
		first, found, err := l.store.DemandByCode(ctx, policypart.HashState(word))
		if err != nil {
			return policypart.Part{}, false, fault.Wrap(fault.Unavailable, "the link cannot be read now", err)
		}
		if !found || first.Purpose != policypart.PurposeLink || first.Agent != turn.Agent || first.CheckOpen(l.now()) != nil {
			continue
		}
		if err := l.linkable(ctx, first, turn); err != nil {
			return policypart.Part{}, false, err
		}
		part, err := l.confirmation(ctx, first, turn)
		return part, err == nil, err
	}
	return policypart.Part{}, false, nil
}

// linkable wants two verified senders that are not one already.
func (l *links) linkable(ctx context.Context, first policypart.Issuance, turn exchange.TurnRecord) error {
	var refusal *policypart.Refusal
	var public string
	switch {
	case turn.Message.Sender.Speaker() == nil:
		refusal = &policypart.Refusal{Code: policypart.CodeProof, Reason: "the code word came from an address that is not verified"}
		public = "Your address could not be verified, so it cannot be linked."
	case first.Principal == turn.Message.Sender.Principal():
		refusal = &policypart.Refusal{Code: policypart.CodePrincipal, Reason: "the code word came from the address that asked for it"}
		public = "Send the code word from your other address, the one that you want to link with this one."
	default:
		return nil
	}

	if err := l.audit.refuse(ctx, first, refusal); err != nil {
		return fault.Wrap(fault.Forbidden, public, refusal)
	}

	return nil
}

func (l *links) confirmation(ctx context.Context, first policypart.Issuance, turn exchange.TurnRecord) (policypart.Part, error) {
	sender := turn.Message.Sender
	names, err := l.names(ctx, turn.Message.Recipient, sideOf(first), linkSide(sender.Principal(), resolvers(sender), provenOf(sender)))
	if err != nil {
		return policypart.Part{}, err
	}
	return policypart.Part{
		Kind: policypart.ConsentRequired, Code: CodeLinkConfirm, Title: "Is this also you?",
		Message: fmt.Sprintf("%s asks to be treated by %s as the same person as %s, so that it may use what both told it. "+
			"Agree only if you asked for this yourself and both addresses are yours. It counts for %[2]s alone, and for these two addresses alone. "+
			"Either of them ends it with a message that is only the word “unlink”.", names[0], turn.Message.Recipient, names[1]),
		ActionLabel: "Link the two addresses",
		Data:        withData(nil, LinkKey, partner{Demand: first.ID, Proof: l.secrets.mint(partnerClaim(first.ID, turn.ID))}),
	}, nil
}

// names are what people recognise sides of links by. A program that shows a token of ours is known by the label of the token, as everywhere: the token's
// id says nothing to a person. The names are usable even with an error.
func (l *links) names(ctx context.Context, agentAddress string, sides ...exchange.LinkSide) (names []string, err error) {
	var labels map[string]string // by id, once they are needed
	for _, side := range sides {
		id, is := strings.CutPrefix(side.Name(), "token:")
		if !is {
			names = append(names, side.Name())
			continue
		}

		label := ""
		if strings.HasSuffix(agentAddress, "@"+side.Issuer) { // else the id is another server's
			if labels == nil {
				labels, err = l.labels(ctx)
			}
			label = labels[id]
		}
		if label == "" {
			names = append(names, "a program of "+side.Issuer)
		} else {
			names = append(names, fmt.Sprintf("“%s” (a program with a token of %s)", label, side.Issuer))
		}
	}
	return names, err
}

// labels returns the names of all tokens by their ids.
func (l *links) labels(ctx context.Context) (map[string]string, error) {
	tokens, err := l.store.Tokens(ctx)
	labels := make(map[string]string, len(tokens))
	for _, token := range tokens {
		labels[token.ID] = token.Name
	}
	if err != nil {
		err = fault.Wrap(fault.Unavailable, "the tokens cannot be read now; try again", err)
	}
	return labels, err
}

// words returns the code words of a message as they were issued.
func words(message normalized.Message) (found []string) {
	for i := range message.Parts {
		text := message.Parts[i].Content
		if message.Parts[i].Kind != normalized.PartText || (!strings.Contains(text, "ink-") && !strings.Contains(text, "INK-")) {
			continue
		}
		for _, word := range wordPattern.FindAllString(text[:min(len(text), maxScanned)], maxWords) {
			_, random, _ := strings.Cut(strings.ToLower(word), "-")
			if found = append(found, wordPrefix+wordLetters.Replace(random)); len(found) == maxWords {
				return found
			}
		}
	}
	return found
}

// agree lets the asker of a link see the word that the other address has to send.
func (l *links) agree(ctx context.Context, issuance policypart.Issuance) error {
	kept := notesOf(issuance)
	if kept.Agreed {
		return nil
	}

	kept.Agreed = true
	noted, err := l.store.NoteDemand(ctx, issuance.ID, policypart.StatusIssued, kept.raw())
	switch {
	case err != nil:
		return fault.Wrap(fault.Unavailable, "the answer cannot be stored now; try again", err)
	case !noted:
		return l.audit.refuse(ctx, issuance, l.demands.lost(ctx, issuance))
	}
	return nil
}

// confirm makes one person of the askers of both demands: the second turn ends with a sentence, the first one goes on.
func (l *links) confirm(ctx context.Context, second policypart.Issuance) error {
	first, err := l.store.Demand(ctx, notesOf(second).Partner)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return fault.Wrap(fault.Unavailable, "the request cannot be read now; try again", err)
	}

	refusal := first.CheckOpen(l.now())
	switch {
	case err != nil || first.Purpose != policypart.PurposeLink || first.Agent != second.Agent:
		refusal = &policypart.Refusal{Code: policypart.CodeUnknown, Reason: "the other side's demand is gone"}
	case refusal == nil && (first.Principal == second.Principal || len(first.Asker) == 0 || len(second.Asker) == 0):
		refusal = &policypart.Refusal{Code: policypart.CodePrincipal, Reason: "both sides are the same, or one is not verified"}
	}

	if refusal != nil {
		return l.audit.refuse(ctx, second, refusal)
	}

	names, err := l.names(ctx, notesOf(second).AgentAddress, sideOf(first), sideOf(second))
	if err != nil {
		return err
	}
	return l.demands.settle(ctx, l.linking(first, second, names)...)
}

func (l *links) linking(first, second policypart.Issuance, names []string) []Ending {
	now := l.now()
	link := &exchange.PersonLink{
		ID: exchange.DerivedID(second.ID, "link"), Agent: first.Agent, Sides: [2]exchange.LinkSide{sideOf(first), sideOf(second)}, LinkedAt: now,
		Digest: policypart.Digest(first.Part.Title, first.Part.Message, second.Part.Title, second.Part.Message),
	}
	asked, other := link.Sides[0], link.Sides[1]

	confirm := Ending{
		Issuance: ended(second, deed{outcome: policypart.OutcomeGranted, by: asker(second)}, now), From: []string{policypart.StatusIssued},
		Response: told(second, fmt.Sprintf("Done: %s now treats %s and %s as the same person. To end that, send it a message that is only the word “unlink”, "+
			"from either of them.", notesOf(second).AgentAddress, names[0], names[1])),
		State: exchange.StateAnswered, Link: link,
		Audit: []exchange.AuditRecord{auditRow(second, codeLinked, asked.Principal+" and "+other.Principal, now)},
	}

	resume := granted(first, deed{
		outcome: policypart.OutcomeGranted, by: asker(first), data: withData(nil, LinkKey, map[string]any{
			"address": other.Address, "identity": policypart.Resolver{Issuer: other.Issuer, Subject: other.Subject, Method: other.Method},
		}),
	}, policypart.StatusIssued, now)

	return []Ending{confirm, resume}
}

// sideOf returns what the asker of a demand proved.
func sideOf(i policypart.Issuance) exchange.LinkSide {
	return linkSide(i.Principal, i.Asker, notesOf(i).Proven)
}

// linkSide takes the identity that the principal is made of. The address is the one that it vouches for.
func linkSide(principal string, identities []policypart.Resolver, proven identity.ProvenAddress) exchange.LinkSide {
	by := identities[max(slices.IndexFunc(identities, func(r policypart.Resolver) bool { return r.Issuer+" "+r.Subject == principal }), 0)]
	return exchange.LinkSide{Principal: principal, Issuer: by.Issuer, Subject: by.Subject, Method: by.Method, Address: proven}
}

// provenOf returns the address for which the evidence vouches that the sender's principal is made of; empty = for none.
func provenOf(sender normalized.Sender) identity.ProvenAddress {
	for i := range sender.Identities {
		if e := &sender.Identities[i]; e.Issuer+" "+e.Subject == sender.Principal() {
			return e.Proven()
		}
	}
	return ""
}

// Unlink ends the links of the turn's sender with its agent. The sentence is for the sender; ended is false if there were no links.
func (l *links) Unlink(ctx context.Context, turn exchange.TurnRecord) (sentence string, ended bool, err error) {
	sender := turn.Message.Sender
	if len(sender.Identities) == 0 || turn.Principal != sender.Principal() {
		return "", false, nil
	}

	links, err := l.store.EndLinks(ctx, exchange.LinkFilter{Agent: turn.Agent, Principal: turn.Principal}, exchange.LinkEnd{By: turn.Principal, Reason: "a side asked for it"})
	if err != nil {
		return "", false, fault.Wrap(fault.Unavailable, "the link cannot be ended now", err)
	}

	var others []exchange.LinkSide
	for i := range links {
		for _, side := range links[i].Sides {
			if side.Principal != turn.Principal {
				others = append(others, side)
			}
		}
	}
	if len(others) == 0 {
		return "", false, nil
	}
	names, _ := l.names(ctx, turn.Message.Recipient, others...) // the links have ended in any case
	return fmt.Sprintf("Done: %s no longer treats this address and %s as the same person.", turn.Message.Recipient, strings.Join(names, ", ")), true, nil
}
