package normalized

import (
	"slices"
	"strings"

	"inbox/identity"
)

// Unproven begins the principal of a sender that no evidence is about.
const Unproven = "unverified "

// Principal is the key under which a speaker's rights, message ids, history, links and words are kept: the issuer and subject of
// the evidence about who speaks, or the bare address marked as unproven, so that a stranger can never take a verified sender's id.
func (s Sender) Principal() string {
	if speaker := s.Speaker(); speaker != nil {
		return principalOf(speaker)
	}
	return Unproven + s.Address.String()
}

// Names are the principals under which messages may be meant for the speaker: its own first and, for a mailbox that was proven by mail and
// is written with capitals, that of its small letters. A person's programs write the case of an address as they like.
func (s Sender) Names() []string {
	names := []string{s.Principal()}
	if e := s.Speaker(); e != nil && (e.Method == identity.MethodEmailDMARC || e.Method == identity.MethodEmailDKIM) {
		if folded := e.Issuer + " " + strings.ToLower(e.Subject); folded != names[0] {
			names = append(names, folded)
		}
	}
	return names
}

// Proves reports whether evidence of the sender vouches for an address.
func (s Sender) Proves(address string) bool {
	return slices.ContainsFunc(s.Identities, func(e identity.Evidence) bool { return e.Vouches(address) })
}

// Carrier is the principal of the caller that brought the message. Limits and fair shares are counted by it, and tasks of A2A are polled by
// it. It is the principal itself, unless a caller brought the message of someone else.
func (s Sender) Carrier() string {
	if s.Carried() {
		return principalOf(&s.Identities[0])
	}
	return s.Principal()
}

// Carried reports whether a caller brought the message of someone else. The first evidence is then the caller's.
func (s Sender) Carried() bool {
	return len(s.Identities) > 0 && s.Speaker() != &s.Identities[0]
}

// Own returns the evidence without that of a caller that only brought the message.
func (s Sender) Own() []identity.Evidence {
	if s.Carried() {
		return s.Identities[1:]
	}
	return s.Identities
}

// Speaker returns the evidence about who speaks; nil = nothing proves it. That is the first evidence, except where it is the
// credential of a caller and trusted issuers attest someone else: the caller is then the carrier. Programs that call for people
// attest themselves as well, and speak themselves. Attestations of several people do not say who of them speaks. On_behalf_of has
// no part in it.
func (s Sender) Speaker() *identity.Evidence {
	if len(s.Identities) == 0 {
		return nil
	}

	caller := &s.Identities[0]
	agent := caller.Method == identity.MethodA2AJWT && caller.Proof.Type == identity.ProofTransport // it signed for itself
	if !agent && caller.Proof.Type != identity.ProofBearerToken {
		return caller
	}

	var agents, people []*identity.Evidence
	for i := range s.Identities[1:] {
		switch attested := &s.Identities[i+1]; {
		case attested.Proof.Type != identity.ProofSignedAttestation, attested.Subject == caller.Subject:
		case attested.Assurance == identity.AssuranceAgent:
			agents = withSubject(agents, attested)
		default:
			people = withSubject(people, attested)
		}
	}

	switch {
	case len(agents) > 0 && agent: // what it is called elsewhere
		return caller
	case len(agents) > 0:
		return only(agents)
	case len(people) > 0:
		return only(people)
	case !s.CarriedBy.IsZero():
		return nil
	}
	return caller
}

// withSubject adds evidence about a subject that is not in the list. Of several issuers that attest one subject the first in
// order counts, so that the order of the evidence does not change who speaks.
func withSubject(list []*identity.Evidence, added *identity.Evidence) []*identity.Evidence {
	for i, known := range list {
		if known.Subject == added.Subject {
			if added.Issuer < known.Issuer {
				list[i] = added
			}
			return list
		}
	}
	return append(list, added)
}

func only(list []*identity.Evidence) *identity.Evidence {
	if len(list) == 1 {
		return list[0]
	}
	return nil
}

func principalOf(e *identity.Evidence) string { return e.Issuer + " " + e.Subject }
