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

// partner is the value of LinkKey in the part of Challenge, where the proof shows that Challenge wrote it for this very turn: an agent
// cannot bind two people's demands to each other. A resolution has it between two questions to the asker.
type partner struct {
	Demand string     `json:"demand"`          // the link demand whose page showed the word
	Sides  []linkWith `json:"sides,omitempty"` // that the asker is still to be asked about
	Proof  string     `json:"proof,omitempty"`

	Refused []string `json:"refused,omitempty"` // principals to which the asker said no
}

// linkWith is an address that sent the word and agreed.
type linkWith struct {
	Demand    string `json:"demand"` // by which it agreed
	Principal string `json:"principal"`
}

// maxSides bounds the addresses that agree to one link before its asker has decided. A person who got hold of the word could send it from many.
const maxSides = 3

// links makes one person of two addresses, for one agent: the asker of the first demand gets a code word, the other address sends it
// and confirms a second demand, and the asker confirms a third one, which names that address.
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
	case part.Code != CodeLink && part.Code != CodeLinkConfirm && part.Code != CodeLinkComplete:
		return nil
	case len(issuance.Asker) == 0:
		return fault.GiveUp("only a verified address can be linked with another one", nil)
	case part.Code == CodeLink:
		issuance.Purpose = policypart.PurposeLink
		issuance.CodeHash = policypart.HashState(l.secrets.word(issuance.ID))
		return nil
	case !capability.Valid(l.secrets.key, partnerClaim(part.Code, issuance.TurnID, bound), bound.Proof):
		return unmeetable(errors.New(part.Code + " is asked by the server alone"))
	}

	issuance.Purpose, kept.Partner = policypart.PurposeLinkConfirm, bound.Demand
	if part.Code == CodeLinkComplete { // the word stays good: the address that sent it first may be a wrong one
		issuance.Purpose, kept.Sides = policypart.PurposeLinkComplete, bound.Sides
		kept.Refused = bound.Refused
		issuance.CodeHash = policypart.HashState(l.secrets.word(bound.Demand))
	}
	return nil
}

// partnerClaim is for the turn that is asked by a demand with the code.
func partnerClaim(code, turnID string, bound partner) capability.Claim {
	what := []string{code, bound.Demand}
	for _, one := range bound.Sides {
		what = append(what, one.Demand, one.Principal)
	}
	if len(bound.Refused) > 0 {
		what = append(append(what, "refused"), bound.Refused...)
	}
	return capability.Claim{Purpose: purposePartner, Who: turnID, What: policypart.Digest(what...)}
}

// bind returns the data of a part that Challenge writes.
func (l *links) bind(code string, turn exchange.TurnRecord, bound partner) map[string]json.RawMessage {
	bound.Proof = l.secrets.mint(partnerClaim(code, turn.ID, bound))
	return withData(nil, LinkKey, bound)
}

// Challenge reports whether a turn, before its agent runs, goes on with a link: its message carries the code word that the page of an open
// link demand of the same agent showed, or its asker has to be asked about the address that sent the word. Then part is the demand that
// the sender of the turn has to agree to; the turn is parked with it (Issue) instead of running the agent. A message without such a word
// costs no query. fault.Forbidden means that the sender cannot be linked; its text is for the sender.
func (l *links) Challenge(ctx context.Context, turn exchange.TurnRecord) (part policypart.Part, answers bool, err error) {
	if resolution := turn.Message.PolicyResolution; resolution != nil {
		return l.completion(ctx, turn, undecided(resolution))
	}

	for _, word := range words(turn.Message) {
		first, found, err := l.store.DemandByCode(ctx, policypart.HashState(word))
		if err != nil {
			return policypart.Part{}, false, fault.Wrap(fault.Unavailable, "the link cannot be read now", err)
		}
		if !found || !l.takes(first, turn.Agent) {
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

// takes reports whether a demand is of a link that its asker has not decided.
func (l *links) takes(first policypart.Issuance, agent string) bool {
	return isLink(first) && first.Agent == agent && first.CheckOpen(l.now()) == nil
}

func isLink(i policypart.Issuance) bool {
	return i.Purpose == policypart.PurposeLink || i.Purpose == policypart.PurposeLinkComplete
}

// linkable wants two verified senders that are not one already, and a word that no one else has read.
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
	case turn.OthersRead():
		refusal = &policypart.Refusal{Code: policypart.CodeProof, Reason: "the code word came in a message that other people read"}
		public = "Other people can read your message, so its code word was not used. Send the word in a private message to this address alone."
	case slices.Contains(notesOf(first).Refused, turn.Message.Sender.Principal()):
		refusal = refusedByAsker()
		public = "The other side said that this address is not theirs. To link the two, they have to ask for a new code word."
	case len(notesOf(first).Sides) >= maxSides:
		refusal = &policypart.Refusal{Code: policypart.CodeUsed, Reason: "too many addresses sent the code word"}
		public = "Too many addresses sent this code word. Answer the question in the conversation that showed it, or ask there for a new word."
	default:
		return nil
	}

	if err := l.audit.refuse(ctx, first, refusal); err != nil {
		return fault.Wrap(fault.Forbidden, public, refusal)
	}

	return nil
}

// refusedByAsker refuses an address about which the asker was asked before: who has the word must not be able to ask until the answer is yes.
func refusedByAsker() *policypart.Refusal {
	return &policypart.Refusal{Code: policypart.CodePrincipal, Reason: "the asker said no to this address"}
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
			"Agree only if you asked for this yourself and both addresses are yours. It counts for %[2]s alone, and for these two addresses alone, "+
			"once the other one has agreed to this one, too. Either of them ends it with a message that is only the word “unlink”.",
			names[0], turn.Message.Recipient, names[1]),
		ActionLabel: "Link the two addresses",
		Data:        l.bind(CodeLinkConfirm, turn, partner{Demand: l.showed(first)}),
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

// showed returns the id of the demand whose page showed the word of a link.
func (l *links) showed(first policypart.Issuance) string {
	if first.Purpose == policypart.PurposeLink {
		return first.ID
	}
	return notesOf(first).Partner
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

// Unlink ends the links of the turn's sender with its agent, and takes back the sender's consent to one that the other side has not agreed to. The
// sentence is for the sender; ended is false if there was neither.
func (l *links) Unlink(ctx context.Context, turn exchange.TurnRecord) (sentence string, ended bool, err error) {
	sender := turn.Message.Sender
	if len(sender.Identities) == 0 || turn.Principal != sender.Principal() {
		return "", false, nil
	}

	withdrawn, err := l.withdraw(ctx, turn) // first: what the other side agrees to meanwhile is ended below
	if err != nil {
		return "", false, err
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
	switch {
	case len(others) == 0 && withdrawn:
		return fmt.Sprintf("Done: you took back your consent, so %s does not link this address with another one.", turn.Message.Recipient), true, nil
	case len(others) == 0:
		return "", false, nil
	}
	names, _ := l.names(ctx, turn.Message.Recipient, others...) // the links have ended in any case
	return fmt.Sprintf("Done: %s no longer treats this address and %s as the same person.", turn.Message.Recipient, strings.Join(names, ", ")), true, nil
}
