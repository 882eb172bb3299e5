package bounce

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/google/uuid"
)

// returnLocal is the local part of the addresses to which reports come back: bounce+<token>@domain.
const returnLocal = "bounce"

// Lengths of a token: an id and the first 80 bits of its MAC, in base32.
const (
	tokenMACBytes = 10
	tokenIDLength = 26
	tokenLength   = tokenIDLength + 16
)

var tokenCode = base32.StdEncoding.WithPadding(base32.NoPadding)

// Tokens signs the ids that travel in addresses, so that no one else can make such an address. All nodes share the key.
type Tokens struct {
	key    []byte
	domain string
}

// NewTokens returns the tokens of a mail domain.
func NewTokens(key []byte, domain string) *Tokens { return &Tokens{key, domain} }

// Sign returns the token of an id for a purpose; a token for one purpose is none for another.
func (t *Tokens) Sign(purpose string, id uuid.UUID) string {
	return strings.ToLower(tokenCode.EncodeToString(id[:]) + tokenCode.EncodeToString(t.mac(purpose, id)))
}

// Verify returns the id of a token that was signed here for the purpose.
func (t *Tokens) Verify(purpose, token string) (id string, valid bool) {
	if len(token) != tokenLength {
		return "", false
	}

	token = strings.ToUpper(token)
	raw, err := tokenCode.DecodeString(token[:tokenIDLength])
	if err != nil {
		return "", false
	}

	mac, err := tokenCode.DecodeString(token[tokenIDLength:])
	if err != nil {
		return "", false
	}

	parsed, err := uuid.FromBytes(raw)
	if err != nil || !hmac.Equal(mac, t.mac(purpose, parsed)) {
		return "", false
	}

	return parsed.String(), true
}

func (t *Tokens) mac(purpose string, id uuid.UUID) []byte {
	mac := hmac.New(sha256.New, t.key)
	_, _ = mac.Write([]byte(purpose))
	_, _ = mac.Write(id[:])
	return mac.Sum(nil)[:tokenMACBytes]
}

// purposeReturn is that of return paths.
const purposeReturn = ""

// ReturnPath returns the token and the envelope sender of a delivery (VERP). One whose id is no UUID has no token, and its
// reports come back to local.
func (t *Tokens) ReturnPath(deliveryID, local string) (token, from string) {
	id, err := uuid.Parse(deliveryID)
	if err != nil {
		return "", local + "@" + t.domain
	}
	token = t.Sign(purposeReturn, id)
	return token, returnLocal + "+" + token + "@" + t.domain
}

// Delivery returns the delivery of the tagged local part of an address, bounce+<token>.
func (t *Tokens) Delivery(local string) (deliveryID string, valid bool) {
	name, tag, _ := strings.Cut(local, "+")
	if !strings.EqualFold(name, returnLocal) {
		return "", false
	}
	return t.Verify(purposeReturn, tag)
}

// Named returns the id that a return path of ours carries, signed or not: for operators, who may look at every delivery.
func Named(address string) (deliveryID string, found bool) {
	local, _, _ := strings.Cut(strings.Trim(address, "<> "), "@")
	name, token, _ := strings.Cut(local, "+")
	if !strings.EqualFold(name, returnLocal) || len(token) != tokenLength {
		return "", false
	}

	raw, err := tokenCode.DecodeString(strings.ToUpper(token[:tokenIDLength]))
	if err != nil {
		return "", false
	}
	parsed, err := uuid.FromBytes(raw)
	return parsed.String(), err == nil
}

// DeliveryOf looks for a token in the fields of a report that carry our envelope back.
func (t *Tokens) DeliveryOf(report Report) (deliveryID string, found bool) {
	if id, valid := t.Verify(purposeReturn, report.EnvelopeID); valid {
		return id, true
	}

	for _, address := range []string{report.MailFrom, report.Returned.Get("Return-Path")} {
		local, _, _ := strings.Cut(strings.Trim(address, "<> "), "@")
		if id, valid := t.Delivery(local); valid {
			return id, true
		}
	}

	return "", false
}
