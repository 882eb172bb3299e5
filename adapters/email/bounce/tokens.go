package bounce

import (
	"encoding/base32"
	"strings"

	"github.com/google/uuid"

	"inbox/internal/capability"
)

// returnLocal is the local part of the addresses to which reports come back: bounce+<token>@domain.
const returnLocal = "bounce"

// Lengths of a token: an id in base32, and what proves that it was signed here.
const (
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

// Sign returns the token of an id for a purpose at a mailbox: for another purpose or mailbox it is none.
func (t *Tokens) Sign(purpose, mailbox string, id uuid.UUID) string {
	return encoded(id) + capability.Mint(t.key, signed(purpose, mailbox, id))
}

// Verify returns the id of a token that was signed here for the purpose and the mailbox. Tokens of versions before decision 0137
// had no mailbox; they count as long as the row of their id lives.
func (t *Tokens) Verify(purpose, mailbox, token string) (id string, valid bool) {
	parsed, mac, is := t.split(token)
	if !is || !capability.Valid(t.key, signed(purpose, mailbox, parsed), mac) && !capability.Valid(t.key, former(purpose, parsed), mac) {
		return "", false
	}
	return parsed.String(), true
}

// split reads a token of Sign.
func (t *Tokens) split(token string) (id uuid.UUID, mac string, is bool) {
	if len(token) != tokenLength {
		return id, "", false
	}
	raw, err := tokenCode.DecodeString(strings.ToUpper(token[:tokenIDLength]))
	if err != nil {
		return id, "", false
	}
	id, err = uuid.FromBytes(raw)
	return id, strings.ToLower(token[tokenIDLength:]), err == nil
}

func encoded(id uuid.UUID) string { return strings.ToLower(tokenCode.EncodeToString(id[:])) }

func signed(purpose, mailbox string, id uuid.UUID) capability.Claim {
	return capability.Claim{Purpose: purpose, Who: strings.ToLower(mailbox), What: id.String(), Form: capability.Short}
}

// former is the claim of tokens that were signed before decision 0137.
func former(purpose string, id uuid.UUID) capability.Claim {
	return capability.Claim{Purpose: purpose, What: string(id[:]), Form: capability.Short, Former: true}
}

// purposeReturn is that of return paths that were made before they had a recipient (decision 0130).
const purposeReturn = ""

// purposeBounce is that of the token of one recipient.
const purposeBounce = "bounce"

// passLength is that of what a return path carries: a delivery and the token of one of its recipients.
const passLength = tokenIDLength + capabilityLength

// capabilityLength is that of a token of the package capability.
const capabilityLength = 26

// Pass is what a return path carries. Its token is good for a report about one recipient of the delivery, and for no other.
type Pass struct {
	DeliveryID string
	Old        bool // it was made before return paths had a recipient
	token      string
}

// ReturnPath returns the token and the envelope sender of a delivery to one of its recipients, whose address is in lower case (VERP). A
// delivery whose id is no UUID has none.
func (t *Tokens) ReturnPath(deliveryID, recipient string) (token, from string) {
	id, err := uuid.Parse(deliveryID)
	if err != nil {
		return "", ""
	}
	token = encoded(id) + capability.Mint(t.key, bounceClaim(id.String(), recipient))
	return token, returnLocal + "+" + token + "@" + t.domain
}

func bounceClaim(deliveryID, recipient string) capability.Claim {
	return capability.Claim{Purpose: purposeBounce, Who: recipient, What: deliveryID}
}

// Pass reads the tagged local part of an address, bounce+<token>. Whether the token is good says RecipientOf.
func (t *Tokens) Pass(local string) (pass Pass, is bool) {
	name, token, _ := strings.Cut(local, "+")
	if !strings.EqualFold(name, returnLocal) {
		return Pass{}, false
	}
	return t.read(token)
}

func (t *Tokens) read(token string) (pass Pass, is bool) {
	if id, mac, is := t.split(token); is {
		return Pass{DeliveryID: id.String(), Old: true}, capability.Valid(t.key, former(purposeReturn, id), mac)
	}
	if len(token) != passLength {
		return Pass{}, false
	}
	id, is := deliveryIn(token)
	return Pass{DeliveryID: id, token: strings.ToLower(token[tokenIDLength:])}, is
}

// RecipientOf returns the recipient whom the pass was given to; empty = none of them, or it is an old one.
func (t *Tokens) RecipientOf(pass Pass, recipients []string) string {
	for _, recipient := range recipients {
		if capability.Valid(t.key, bounceClaim(pass.DeliveryID, recipient), pass.token) {
			return recipient
		}
	}
	return ""
}

// deliveryIn reads the id at the start of a token.
func deliveryIn(token string) (deliveryID string, is bool) {
	raw, err := tokenCode.DecodeString(strings.ToUpper(token[:tokenIDLength]))
	if err != nil {
		return "", false
	}
	id, err := uuid.FromBytes(raw)
	return id.String(), err == nil
}

// Named returns the id that a return path of ours carries, signed or not: for operators, who may look at every delivery.
func Named(address string) (deliveryID string, found bool) {
	local, _, _ := strings.Cut(strings.Trim(address, "<> "), "@")
	name, token, _ := strings.Cut(local, "+")
	if !strings.EqualFold(name, returnLocal) || len(token) != tokenLength && len(token) != passLength {
		return "", false
	}
	return deliveryIn(token)
}

// PassIn looks for a pass in the fields of a report that carry our envelope back.
func (t *Tokens) PassIn(report Report) (pass Pass, found bool) {
	if pass, is := t.read(report.EnvelopeID); is {
		return pass, true
	}

	for _, address := range []string{report.MailFrom, report.Returned.Get("Return-Path")} {
		local, _, _ := strings.Cut(strings.Trim(address, "<> "), "@")
		if pass, is := t.Pass(local); is {
			return pass, true
		}
	}

	return Pass{}, false
}
