package webhook

import (
	"strings"

	"inbox/internal/webhooksignature"
)

// SignatureHeader carries the signature of the raw body: "sha256=" and the hexadecimal HMAC-SHA256 under the secret.
// While a secret is being changed it lists two, with a comma between them, the one under the new secret first (RFC
// 9110, section 5.6.1).
const SignatureHeader = "X-Inbox-Signature"

// signatures is what SignatureHeader says of a body.
func (o Options) signatures(body []byte) string {
	list := []string{webhooksignature.Sign(o.Secret, body)}
	if o.rotates() {
		list = append(list, webhooksignature.Sign(o.PreviousSecret, body))
	}
	return strings.Join(list, ", ")
}

// rotates reports whether a secret is being changed.
func (o Options) rotates() bool { return o.PreviousSecret != "" }
