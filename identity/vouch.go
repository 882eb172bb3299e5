package identity

import (
	"encoding/json"
	"net/url"
	"strings"
)

// Vouches reports whether the evidence proves an address (in canonical form): its subject is the acct: or mailto: form of
// that very address, or our own ActivityPub transport saw an actor whom WebFinger of that address names (the claim
// account). The user name that an actor gives itself proves nothing: anybody on its host may take any name that is free
// there. It must be believed evidence.
func (e *Evidence) Vouches(address string) bool {
	stated, err := ParseAddress(address)
	if err != nil {
		return false
	}

	if proven, ok := e.provenAddress(); ok {
		return proven == stated
	}
	if !e.fromActivityPub() {
		return false
	}
	var claims struct {
		Account string `json:"account"`
	}
	if json.Unmarshal(e.Claims, &claims) != nil {
		return false
	}
	account, err := ParseAddress(claims.Account)
	return err == nil && account == stated
}

// VouchesDomain reports whether our own ActivityPub transport saw an actor on that very host, whatever its name there.
func (e *Evidence) VouchesDomain(domain string) bool {
	return e.fromActivityPub() && hostOfIRI(e.Subject) == domain
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

// hostOfIRI returns the domain of an actor as addresses have it.
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
