package identity

import "time"

// KeyDocumentURL says where a canonical issuer publishes its keys: the Connector Card of a host, or did.json of a did:web.
// With allowHTTP a host with a port is a development server.
func KeyDocumentURL(issuer string, allowHTTP bool) (string, error) {
	return keyDocumentURL(issuer, allowHTTP)
}

// AssertionKeys reads the document of a canonical issuer (KeyDocumentURL) and returns the Ed25519 keys that are its own, for
// assertions and in rotation at a time. Kid is the name without the DID. The document must name its issuer.
func AssertionKeys(issuer string, body []byte, now time.Time) ([]PublicKey, error) {
	document, err := parseKeyDocument(issuer, body)
	if err != nil {
		return nil, err
	}
	if !sameIssuer(document.owner, issuer) {
		return nil, refuse(CodeControllerMismatch, document.owner)
	}
	var keys []PublicKey
	for kid, key := range document.keys {
		if key.key == nil || !key.asserts || !sameIssuer(key.controller, issuer) || !key.ends.IsZero() && !now.Before(key.ends) {
			continue
		}
		keys = append(keys, PublicKey{Kid: kid, Key: key.key, NotAfter: key.ends})
	}
	return keys, nil
}

// DIDOf returns the did:web of a domain.
func DIDOf(domain string) string { return didOf(domain) }
