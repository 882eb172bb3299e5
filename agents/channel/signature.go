package channel

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"inbox/agents/runtime/envelope"
)

// SignaturePrefix stands before the digest unless a sender uses another one.
const SignaturePrefix = "sha256="

// maxSignatures bounds how many signatures of one header are tried.
const maxSignatures = 4

// SignatureForm is how a sender writes its signature. The zero value is ours.
type SignatureForm struct {
	Prefix      string // instead of SignaturePrefix; case counts
	NoPrefix    bool   // the sender has none at all; only with AllowRawHex does anything verify then
	AllowRawHex bool   // the digest may also come without the prefix
}

// ReadSignatureForm reads the options of the contract, expected_prefix and allow_raw_hex. A member of another type than
// text or flag counts as absent (agent runtime contract, section 6.3).
func ReadSignatureForm(options map[string]any) SignatureForm {
	prefix, given := options["expected_prefix"].(string)
	return SignatureForm{Prefix: prefix, NoPrefix: given && prefix == "", AllowRawHex: envelope.Flag(options["allow_raw_hex"])}
}

// Sign gives SignaturePrefix and the lower-case hexadecimal HMAC-SHA256 of the body under the secret.
func Sign(secret string, body []byte) string {
	return SignaturePrefix + hex.EncodeToString(digest(secret, body))
}

// VerifySignature says whether the header is the one signature of the raw body under the secret, in constant time. An
// empty secret verifies nothing: anybody could have signed with it (agent runtime contract, section 6.3).
func VerifySignature(secret string, body []byte, header string, form SignatureForm) bool {
	if secret == "" {
		return false
	}
	given, is := form.read(header)
	return is && hmac.Equal(given, digest(secret, body))
}

// VerifyRotating is VerifySignature while a secret is being changed: the header may list several signatures with commas
// between them, and any of them under any of the secrets will do. Empty secrets are passed over; signatures after the
// fourth are not read.
func VerifyRotating(secrets []string, body []byte, header string, form SignatureForm) bool {
	verified := false
	for index, one := range strings.SplitN(header, ",", maxSignatures+1) {
		for _, secret := range secrets {
			verified = index < maxSignatures && VerifySignature(secret, body, one, form) || verified
		}
	}
	return verified
}

// read gives the digest of a header.
func (f SignatureForm) read(header string) ([]byte, bool) {
	prefix := f.Prefix
	if prefix == "" && !f.NoPrefix {
		prefix = SignaturePrefix
	}
	text := envelope.Trim(header)
	digest, prefixed := strings.CutPrefix(text, prefix)
	if (!prefixed || prefix == "") && !f.AllowRawHex {
		return nil, false
	}
	digest = envelope.Trim(digest)
	if len(digest) != hex.EncodedLen(sha256.Size) {
		return nil, false
	}
	given, err := hex.DecodeString(digest)
	return given, err == nil
}

func digest(secret string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return mac.Sum(nil)
}
