package identity

import (
	"net/url"
	"strings"
)

// Vouches says whether the evidence proves an address (in canonical form): its subject is the acct: or mailto: form of that very
// address, or our own ActivityPub transport saw an actor on the very host of the address. It must be believed evidence.
func (e *Evidence) Vouches(address string) bool {
	stated, err := ParseAddress(address)
	if err != nil {
		return false
	}
	if proven, ok := e.provenAddress(); ok {
		return proven == stated
	}
	return e.fromActivityPub() && hostOfIRI(e.Subject) == stated.Domain
}

// provenAddress reads a subject that is an address.
func (e *Evidence) provenAddress() (Address, bool) {
	text, ok := strings.CutPrefix(e.Subject, "acct:")
	if !ok {
		text, ok = strings.CutPrefix(e.Subject, "mailto:")
	}
	if !ok || strings.HasPrefix(text, "@") || strings.HasPrefix(text, "acct:") {
		return Address{}, false
	}
	address, err := ParseAddress(text)
	return address, err == nil
}

func (e *Evidence) fromActivityPub() bool {
	return e.Proof.Type == ProofTransport && (e.Method == MethodActivityPubSignature || e.Method == MethodActivityPubProof)
}

// hostOfIRI gives the domain of an actor as addresses have it.
func hostOfIRI(subject string) string {
	parsed, err := url.Parse(subject)
	if err != nil || parsed.User != nil || parsed.Scheme != "https" && parsed.Scheme != "http" {
		return ""
	}
	domain, err := ParseDomain(parsed.Host)
	if err != nil {
		return ""
	}
	return trimPort(domain)
}
