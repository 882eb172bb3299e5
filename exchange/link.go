package exchange

import (
	"cmp"
	"time"

	"inbox/identity"
	"inbox/policypart"
)

// PersonLink is the grant of two principals that one agent may treat them as one person. Names never link: only consent of both
// sides does. A link is about its two principals alone: who is linked with one of them is not linked with the other.
type PersonLink struct {
	ID       string // UUIDv7
	Agent    string // the only agent for which it counts: the one that asked
	Sides    [2]LinkSide
	Digest   string // policypart.Digest of what both sides were shown
	LinkedAt time.Time
	Until    time.Time // it counts before this instant; zero = until someone ends it
}

// LinkSide is one of the two principals of a link, as it was proven when it agreed.
type LinkSide struct {
	Principal string                 `json:"principal"` // normalized.Sender.Principal
	Issuer    string                 `json:"issuer"`
	Subject   string                 `json:"subject"`
	Method    string                 `json:"method"`
	Address   identity.ProvenAddress `json:"address"` // for which its evidence vouched; empty = for none
}

// Name returns what people recognise a side by and what is proven: its address, or its subject.
func (s LinkSide) Name() string { return cmp.Or(string(s.Address), s.Subject) }

// Grant returns the link as the grant of one side.
func (l *PersonLink) Grant(side int) policypart.Grant {
	return policypart.Grant{
		Purpose: policypart.PurposeLink, Subject: l.Sides[side].Principal, Agent: l.Agent, Digest: l.Digest,
		By: l.Sides[1-side].Principal, Until: l.Until,
	}
}

// With returns the principal's own side and the other one, if the link counts for the agent at the time.
func (l *PersonLink) With(agent, principal string, at time.Time) (own, other LinkSide, counts bool) {
	use := policypart.Use{Purpose: policypart.PurposeLink, Subject: principal, Agent: agent, Digest: l.Digest, At: at}
	for side := range l.Sides {
		if l.Grant(side).Check(use) == nil {
			return l.Sides[side], l.Sides[1-side], true
		}
	}
	return LinkSide{}, LinkSide{}, false
}

// PersonIdentity is one side of a link, as lists show it; the two sides of a link have one PersonID.
type PersonIdentity struct {
	PersonID string `json:"person_id"` // PersonLink.ID
	Agent    string `json:"agent"`     // the only agent for which the link counts
	LinkSide
	LinkedAt time.Time `json:"linked_at"`
	Until    time.Time `json:"until,omitzero"`
	Shown    string    `json:"shown,omitempty"` // PersonLink.Digest
}

// Identities returns both sides.
func (l *PersonLink) Identities() []PersonIdentity {
	identities := make([]PersonIdentity, 0, len(l.Sides))
	for _, side := range l.Sides {
		identities = append(identities, PersonIdentity{
			PersonID: l.ID, Agent: l.Agent, LinkSide: side, LinkedAt: l.LinkedAt, Until: l.Until, Shown: l.Digest,
		})
	}
	return identities
}

// LinkFilter selects links. Empty fields do not restrict; the zero filter selects none where links are ended.
type LinkFilter struct {
	ID        string
	Agent     string
	Principal string                 // of a side
	Subject   string                 // of a side
	Address   identity.ProvenAddress // of a side
}

// LinkEnd says who or what ended a link, for the record.
type LinkEnd struct {
	By     string // principal, or what the server noticed
	Reason string
}

// AuditUnlinked is the code of the audit row of a link that ended.
const AuditUnlinked = "identity:unlinked"
