package webhook

import "inbox/internal/webhooksignature"

// SignatureHeader carries the signature of the raw body: "sha256=" and the hexadecimal HMAC-SHA256 under the secret.
// While a secret is being changed it lists two, with a comma between them, the one under the new secret first (RFC
// 9110, section 5.6.1).
const SignatureHeader = webhooksignature.Header

// signatures is what SignatureHeader says of a body.
func (o Options) signatures(body []byte) string {
	return webhooksignature.SignRotating(o.Secret, o.PreviousSecret, body)
}

// rotates reports whether a secret is being changed.
func (o Options) rotates() bool { return o.PreviousSecret != "" }
