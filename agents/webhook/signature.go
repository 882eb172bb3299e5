package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// SignatureHeader carries the signature of the raw body in the form that Sign gives.
const SignatureHeader = "X-Inbox-Signature"

// SignaturePrefix stands before the hexadecimal digest in SignatureHeader.
const SignaturePrefix = "sha256="

// Sign gives "sha256=" and the lower-case hexadecimal HMAC-SHA256 of the body under the secret.
func Sign(secret string, body []byte) string {
	return SignaturePrefix + hex.EncodeToString(digest(secret, body))
}

// VerifyOptions loosen Verify for senders with another form of the header.
type VerifyOptions struct {
	Prefix      string // instead of SignaturePrefix
	AllowRawHex bool   // the digest may also come without any prefix
}

// Verify says whether header is the signature of body, in constant time. An empty secret verifies nothing: anybody
// could have signed with it.
func Verify(secret string, body []byte, header string, options VerifyOptions) bool {
	if options.Prefix == "" {
		options.Prefix = SignaturePrefix
	}
	text, prefixed := strings.CutPrefix(header, options.Prefix)
	if secret == "" || (!prefixed && !options.AllowRawHex) {
		return false
	}
	given, err := hex.DecodeString(text)
	return err == nil && hmac.Equal(given, digest(secret, body))
}

func digest(secret string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return mac.Sum(nil)
}
