package exchange

import "time"

// PersonIdentity is one verified identity of a person who proved that several identities are theirs. Names never link:
// only consent that was given on both sides does.
type PersonIdentity struct {
	PersonID  string    `json:"person_id"` // UUIDv7, the same for all identities of the person
	Principal string    `json:"principal"` // normalized.Sender.Principal
	Issuer    string    `json:"issuer"`
	Subject   string    `json:"subject"`
	Method    string    `json:"method"`  // by which it was proven when it was linked
	Address   string    `json:"address"` // as last seen, for display
	LinkedAt  time.Time `json:"linked_at"`
}
