package activitypub

import (
	"slices"
	"time"

	"inbox/adapters/activitypub/notetext"
)

// Practice describes how the adapter deals with other servers, for the page that their administrators read.
type Practice struct {
	UserAgent string // of each request
	Signer    string // actor that signs requests for documents
	Agents    string // start of the ids of the actors that sign activities

	Keys, Accounts            time.Duration // how long keys are used without a new request, and profiles are kept
	Ancestors, AncestorsOfOne int           // notes fetched above one question: at most, and at most from one server
	Confirmations             int           // notes that one server can cause to be fetched in a minute
	NoBots                    []string      // words in a profile by which people ask programs not to write
}

// Practice returns the constants and names by which the adapter works.
func (s *site) Practice() Practice {
	return Practice{
		UserAgent: s.userAgent(), Signer: s.instanceIRI(), Agents: s.actorIRI(""), Keys: keyLife, Accounts: knownLife,
		Ancestors: maxAncestorFetches, AncestorsOfOne: maxAncestorsOfHost, Confirmations: maxConfirmations, NoBots: slices.Clone(notetext.Refusals),
	}
}
