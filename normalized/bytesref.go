package normalized

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"

	"inbox/internal/fault"
)

// AlgoSHA256 is the only digest algorithm of a BytesRef.
const AlgoSHA256 = "sha256"

// Digest returns the digest of content as a BytesRef writes it: lower-case hex SHA-256.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Inline makes a reference that carries its bytes; at most MaxInlineBytes, see Stored for more.
func Inline(content []byte) *BytesRef {
	return &BytesRef{Kind: BytesInline, DataBase64: base64.StdEncoding.EncodeToString(content)}
}

// Stored makes a reference to bytes in the blob store by their digest, lower-case hex SHA-256.
func Stored(digest string) *BytesRef {
	return &BytesRef{Kind: BytesContentAddressed, Algo: AlgoSHA256, Digest: digest}
}

// At makes a reference to bytes at an https address. Nothing is fetched until a reader asks for it.
func At(address string) *BytesRef { return &BytesRef{Kind: BytesURL, URL: address} }

// Bytes decodes inline bytes; a fault of kind Malformed when there are none.
func (b *BytesRef) Bytes() ([]byte, error) {
	if b.Kind != BytesInline {
		return nil, fault.InField("kind", "the bytes are not inline")
	}
	content, err := base64.StdEncoding.Strict().DecodeString(b.DataBase64)
	if err != nil {
		return nil, fault.InField("data_base64", "must be base64 (RFC 4648, section 4)")
	}
	return content, nil
}

// Matches reports whether content is what the reference's digest promises; true when it promises nothing.
func (b *BytesRef) Matches(content []byte) bool {
	return b.Digest == "" || b.Algo == AlgoSHA256 && Digest(content) == b.Digest
}

// Check returns the first rule that the reference breaks (message contract, section 3): *fault.Fault, kind TooLarge for
// inline bytes over the limit and Malformed else, Field relative to the reference. A digest beside inline bytes is
// compared with them. An expires_at in the past is no fault of the message: the bytes are gone.
func (b *BytesRef) Check(limits Limits) error {
	if f := b.check(limits); f != nil {
		return f
	}
	return nil
}

func (b *BytesRef) check(limits Limits) *fault.Fault {
	if b.Digest != "" || b.Algo != "" {
		if b.Algo != AlgoSHA256 {
			return fault.InField("algo", "must be sha256")
		}
		if !isDigest(b.Digest) {
			return fault.InField("digest", "must be 64 lower-case hexadecimal digits")
		}
	}

	switch b.Kind {
	case BytesInline:
		return b.checkInline(limits)
	case BytesURL:
		return checkBytesURL(b.URL, limits)
	case BytesContentAddressed:
		return b.checkStored(limits)
	}

	return fault.InField("kind", "must be inline, url or content_addressed")
}

func (b *BytesRef) checkInline(limits Limits) *fault.Fault {
	if b.URL != "" {
		return fault.InField("url", "does not go with inline bytes")
	}
	if len(b.DataBase64) > base64Size(limits.Inline) {
		return tooLarge("data_base64", limits.Inline)
	}

	content, err := b.Bytes()
	switch {
	case err != nil:
		return fault.Of(err)
	case len(content) > limits.Inline:
		return tooLarge("data_base64", limits.Inline)
	case !b.Matches(content):
		return fault.InField("digest", "is not the digest of the bytes")
	}

	return nil
}

func (b *BytesRef) checkStored(limits Limits) *fault.Fault {
	switch {
	case b.Digest == "":
		return fault.InField("digest", "is required")
	case b.DataBase64 != "":
		return fault.InField("data_base64", "goes with inline bytes only")
	case b.URL != "":
		return checkBytesURL(b.URL, limits)
	}
	return nil
}

func checkBytesURL(address string, limits Limits) *fault.Fault {
	u, err := url.Parse(address)
	https := err == nil && (u.Scheme == "https" || limits.AllowHTTP && u.Scheme == "http")
	if !https || u.Host == "" || u.User != nil || len(address) > limits.ID || hasControl(address) {
		return fault.InField("url", "must be an https address without user name")
	}
	return nil
}

func isDigest(text string) bool {
	if len(text) != hex.EncodedLen(sha256.Size) {
		return false
	}
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func tooLarge(field string, limit int) *fault.Fault {
	return &fault.Fault{Kind: fault.TooLarge, Field: field, Public: fmt.Sprintf("is over %d bytes", limit)}
}
