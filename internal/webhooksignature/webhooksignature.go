// Package webhooksignature signs the body of an HTTP request under a shared secret, and checks such a signature, in the form
// sha256=<hex> that most senders of webhooks use (agent runtime contract, section 6.3).
package webhooksignature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Header is the name of the header that carries the signature of the raw body.
const Header = "X-Inbox-Signature"

// Prefix stands before the digest unless a sender uses another one.
const Prefix = "sha256="

// maxSignatures bounds how many signatures of one header are tried.
const maxSignatures = 4

// Form is how a sender writes its signature. The zero value is ours.
type Form struct {
	Prefix      string // instead of the constant; case counts
	NoPrefix    bool   // the sender has none at all; only with AllowRawHex does anything verify then
	AllowRawHex bool   // the digest may also come without the prefix
}

// Sign returns Prefix and the lower-case hexadecimal HMAC-SHA256 of the body under the secret.
func Sign(secret string, body []byte) string {
	return Prefix + hex.EncodeToString(digest(secret, body))
}

// SignRotating is Sign while a secret is being changed: the signatures under the new secret and under the one before it, with a
// comma between them. An empty previous secret adds nothing.
func SignRotating(secret, previous string, body []byte) string {
	signatures := Sign(secret, body)
	if previous != "" {
		signatures += ", " + Sign(previous, body)
	}
	return signatures
}

// Verify reports whether the header is the one signature of the raw body under the secret, in constant time. An
// empty secret verifies nothing: anyone could have signed with it (agent runtime contract, section 6.3).
func Verify(secret string, body []byte, header string, form Form) bool {
	if secret == "" {
		return false
	}
	given, is := form.read(header)
	return is && hmac.Equal(given, digest(secret, body))
}

// VerifyRotating is Verify while a secret is being changed: the header may list several signatures with commas
// between them, and any of them under any of the secrets will do. Empty secrets are passed over; signatures after the
// fourth are not read.
func VerifyRotating(secrets []string, body []byte, header string, form Form) bool {
	verified := false
	for index, one := range strings.SplitN(header, ",", maxSignatures+1) {
		for _, secret := range secrets {
			verified = index < maxSignatures && Verify(secret, body, one, form) || verified
		}
	}
	return verified
}

// read returns the digest of a header.
func (f Form) read(header string) ([]byte, bool) {
	prefix := f.Prefix
	if prefix == "" && !f.NoPrefix {
		prefix = Prefix
	}

	text := trim(header)
	digest, prefixed := strings.CutPrefix(text, prefix)
	if (!prefixed || prefix == "") && !f.AllowRawHex {
		return nil, false
	}

	digest = trim(digest)
	if len(digest) != hex.EncodedLen(sha256.Size) {
		return nil, false
	}

	given, err := hex.DecodeString(digest)
	return given, err == nil
}

// trim cuts what the reference runtime cuts from both ends of a header.
func trim(text string) string { return strings.Trim(text, " \t\n\r\x00\v") }

func digest(secret string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return mac.Sum(nil)
}
