package identity

import (
	"context"
	"crypto/ed25519"
)

// keyProblem says why a key cannot be used; evidence and credentials have their own codes for it.
type keyProblem int

const (
	keyGood keyProblem = iota
	keyNotFetched
	keyDocumentForeign
	keyUnknown
	keyForeign
	keyEnded
	keyWrongKind
	keyWrongPurpose
)

var evidenceKeyCodes = map[keyProblem]string{
	keyNotFetched:      CodeKeyFetchFailed,
	keyDocumentForeign: CodeControllerMismatch,
	keyUnknown:         CodeUnknownKey,
	keyForeign:         CodeControllerMismatch,
	keyEnded:           CodeKeyRetired,
	keyWrongKind:       CodeUnsupportedAlgorithm,
	keyWrongPurpose:    CodeWrongKeyPurpose,
}

var credentialKeyCodes = map[keyProblem]string{
	keyNotFetched:      CodeCredentialKeyFetchFailed,
	keyDocumentForeign: CodeCredentialControllerMismatch,
	keyUnknown:         CodeCredentialKeyFetchFailed,
	keyForeign:         CodeCredentialControllerMismatch,
	keyEnded:           CodeCredentialKeyFetchFailed,
	keyWrongKind:       CodeCredentialCryptosuite,
	keyWrongPurpose:    CodeCredentialControllerMismatch,
}

// keyOf returns the key with which a trusted issuer may have signed.
func (v *Validator) keyOf(ctx context.Context, issuer, kid string) (key ed25519.PublicKey, problem keyProblem, detail string) {
	published, owner, found, err := v.keys.find(ctx, issuer, kid)
	switch {
	case err != nil:
		return nil, keyNotFetched, err.Error()
	case !sameIssuer(owner, issuer):
		return nil, keyDocumentForeign, "the document is that of " + owner
	case !found:
		return nil, keyUnknown, kid
	case !sameIssuer(published.controller, issuer):
		return nil, keyForeign, "the key's controller is " + published.controller
	case !published.ends.IsZero() && !v.now().Before(published.ends):
		return nil, keyEnded, kid
	case published.key == nil:
		return nil, keyWrongKind, "the key is not Ed25519"
	case !published.asserts:
		return nil, keyWrongPurpose, kid
	}
	return published.key, keyGood, ""
}

func sameIssuer(text, canonical string) bool {
	issuer, err := CanonicalIssuer(text)
	return err == nil && issuer == canonical
}
