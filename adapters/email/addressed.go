package email

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"inbox/adapters/email/authentication"
	"inbox/adapters/email/message"
	"inbox/identity"
	"inbox/normalized"
)

// A signed mail proves who wrote it, to everyone who ever sees it, and each of them can send it on. It counts as a request to a
// recipient only if something says that its author meant this recipient: the To and Cc fields under the signature that proves From, or
// the envelope, sent by a server of the author's domain (decision 0130). A field of the header that decides something counts only under the
// same proof (decision 0150): the signature covers it, or the whole mail came from that server.

// Bounds of the age of a signature. A mail may wait for days in queues; the clock of a mail program, and a draft in an outbox, may be
// further off than the clock of the server that signs.
const (
	maxSignatureAge = 7 * 24 * time.Hour
	maxDateAge      = 30 * 24 * time.Hour // of a signed Date beside a signature that states its own time
	maxDateLead     = 24 * time.Hour
)

// addressing is what proves that a mail was meant for one recipient.
type addressing struct {
	by        string                    // AddressedRecipient or AddressedEnvelope; empty = nothing proves it
	signature *authentication.Signature // the aligned signature that counts for the recipient; nil = none does
	direct    bool                      // a server of the author's domain sent the mail here, so all of its header is the author's
	why       string                    // why nothing proves it
}

// covers reports whether what proves the mail protects every instance of a field; name is in lower case.
func (a addressing) covers(name string) bool {
	return a.direct || a.signature != nil && a.signature.Covers(name)
}

// counts reports whether a field of the mail may decide something: it is the author's, or nothing of the mail is proven. Name is in lower
// case.
func (a *arrival) counts(name string) bool {
	return !a.sender.verified() || a.sender.addressing.covers(name)
}

// subject returns the Subject if its author vouches for it. It reads the lowest instance, so that adding one on top has no effect.
func (a *arrival) subject() string {
	signature := a.sender.addressing.signature
	if !a.counts("subject") && (signature == nil || !signature.CoversLowest("subject")) {
		return ""
	}
	return a.fields.Decoded("Subject")
}

// forRecipient returns the mail as it counts for one recipient: a sender who did not write to it is unproven there.
func (i *inbox) forRecipient(ctx context.Context, mail *arrival, to recipient) (*arrival, error) {
	if !mail.sender.verified() {
		return mail, nil
	}

	found := i.addressing(mail, to)
	if found.by != "" {
		again, err := i.sentAgain(ctx, mail, to, found.signature)
		if err != nil {
			return nil, err
		}
		if again && !found.direct { // a domain's own server does send the same words twice in a second
			found.by, found.why = "", "its signature does not cover Message-ID, and it was received before under another one"
		}
	}

	seen := *mail
	if seen.sender.addressing = found; found.by == "" {
		seen.sender.disowned = mail.sender.method
		seen.sender.method, seen.sender.keyID = normalized.AuthNone, ""
	} else if found.signature != nil {
		seen.sender.keyID = found.signature.KeyID()
	}
	return &seen, nil
}

// meantForAny reports whether the mail was meant for one of its recipients, as far as it says itself.
func (i *inbox) meantForAny(mail *arrival) bool {
	return slices.ContainsFunc(mail.env.recipients, func(to recipient) bool { return i.addressing(mail, to).by != "" })
}

// hiddenByTrouble reports whether a lookup that failed may hide what proves that the mail was meant for one of its recipients.
func (i *inbox) hiddenByTrouble(mail *arrival) bool {
	found := mail.sender.DMARC
	return (found.Trouble || found.Envelope == authentication.TempError) &&
		slices.ContainsFunc(mail.env.recipients, func(to recipient) bool { return to.bounce == nil && i.addressing(mail, to).by == "" })
}

func (i *inbox) addressing(mail *arrival, to recipient) addressing {
	found := addressing{
		direct: i.sentByAuthor(mail, to),
		why:    "no signature of the author's domain covers To and Cc, and no server of it sent the mail here",
	}
	for _, signature := range mail.sender.DMARC.Signatures {
		named, why := i.signedFor(mail, to, signature), cmp.Or(freshlySigned(mail, signature), openReading(mail.fields, signature))
		switch {
		case named && why == "":
			found.by, found.signature, found.why = identity.AddressedRecipient, signature, ""
			return found
		case named:
			found.why = why
		case signature.Covers("to") && signature.Covers("cc"):
			found.why = "its signed To and Cc name others"
		}
	}

	if found.direct {
		found.by, found.why = identity.AddressedEnvelope, ""
		if len(mail.sender.DMARC.Signatures) > 0 {
			found.signature = mail.sender.DMARC.Signatures[0]
		}
	}
	return found
}

// signedFor reports whether fields that the signature covers name the recipient. Resent fields name whom the resender meant, who must
// be the author (RFC 5322, section 3.6.6).
func (i *inbox) signedFor(mail *arrival, to recipient, signature *authentication.Signature) bool {
	if !signature.Covers("to") || !signature.Covers("cc") {
		return false
	}
	if i.named(mail, to, "To", "Cc") {
		return true
	}

	covered := signature.Covers("resent-to") && signature.Covers("resent-cc") && signature.Covers("resent-from")
	return covered && !resentByOther(mail) && i.named(mail, to, "Resent-To", "Resent-Cc")
}

// openReading returns the first MIME field that decides how the body is decoded and that the signature does not cover; empty = there is none.
// A field that only states the default, plain text (RFC 2045, section 5.2), needs no signature: removing it has the same effect.
func openReading(fields message.Header, signature *authentication.Signature) string {
	for _, field := range []struct {
		name  string
		plain func(string) bool
	}{{"Content-Type", plainType}, {"Content-Transfer-Encoding", plainEncoding}, {"Content-Disposition", plainDisposition}} {
		changes := func(f message.Field) bool { return !field.plain(f.Text()) }
		if !signature.Covers(strings.ToLower(field.name)) && slices.ContainsFunc(fields.All(field.name), changes) {
			return "its signature does not cover " + field.name + ", so anyone who has the mail can make another text of its body"
		}
	}
	return ""
}

// plainType reports whether a Content-Type is that of a text of which all is shown as it stands.
func plainType(value string) bool {
	media, parameters := message.MediaType(value, "text/plain")
	for name, value := range parameters {
		switch value = strings.ToLower(value); {
		case name == "format":
		case name == "charset" && (value == "utf-8" || value == "us-ascii" || strings.HasPrefix(value, "iso-8859-") || strings.HasPrefix(value, "windows-125")):
		default:
			return false
		}
	}
	return media == "text/plain"
}

func plainEncoding(value string) bool {
	return slices.Contains([]string{"7bit", "8bit", "binary"}, strings.ToLower(value))
}

func plainDisposition(value string) bool {
	disposition, parameters := message.MediaType(value, "inline")
	return disposition == "inline" && len(parameters) == 0
}

// sentByAuthor reports whether a server of the author's domain sent the mail here (RFC 7208) and not for another mailbox of that domain,
// whose owner forwards mail: large domains have many. To and Cc of a signed mail say nothing here: the owner of a forwarding mailbox may have
// written the agent there, and the signature is what a domain believes of mail in its own name that comes from elsewhere.
func (i *inbox) sentByAuthor(mail *arrival, to recipient) bool {
	if mail.sender.DMARC.Envelope != authentication.Pass || resentByOther(mail) || i.redirected(mail) {
		return false
	}
	if message.AddressKey(mail.env.from) == mail.sender.from.Key() {
		return true
	}
	return len(mail.sender.DMARC.Signatures) == 0 && i.named(mail, to, "To", "Cc")
}

// deliveredFields have the mailbox to which a server delivered a mail.
var deliveredFields = []string{"Delivered-To", "X-Original-To", "Envelope-To", "X-Sieve-Redirected-From"}

// redirected reports whether a mail was delivered to the mailbox of another person before it came here. Servers that redirect a mail may keep the
// author in the envelope, so that a mail to a colleague looks as one in Bcc does.
func (i *inbox) redirected(mail *arrival) bool {
	for _, name := range deliveredFields {
		for _, box := range mail.addresses(name) {
			if box.Domain != i.domain && box.Key() != mail.sender.from.Key() && i.aliasOf(box) == "" {
				return true
			}
		}
	}
	return false
}

// resentByOther reports whether someone else than the author sent the mail on (RFC 5322, section 3.6.6).
func resentByOther(mail *arrival) bool {
	for _, name := range []string{"Resent-From", "Resent-Sender"} {
		boxes := mail.addresses(name)
		if mail.fields.Has(name) && len(boxes) == 0 { // it cannot be read
			return true
		}
		if slices.ContainsFunc(boxes, func(box message.Mailbox) bool { return box.Key() != mail.sender.from.Key() }) {
			return true
		}
	}
	return false
}

// freshlySigned returns why a signature may be one of long ago; empty = it is not.
func freshlySigned(mail *arrival, signature *authentication.Signature) string {
	now := mail.env.received
	made, most := signature.Made, maxSignatureAge
	if !made.IsZero() {
		if now.Sub(made) > maxSignatureAge {
			return "it was signed at " + made.UTC().Format(time.RFC3339) + ", which is too long ago"
		}
		most = maxDateAge
	}

	dates := signedDates(mail.fields, signature)
	if made.IsZero() && len(dates) == 0 {
		return "its signature does not say when it was made"
	}
	for _, date := range dates {
		if now.Sub(date) > most || date.Sub(now) > maxDateLead {
			return "its signed Date is " + date.UTC().Format(time.RFC3339) + ", which is too far from now"
		}
	}
	return ""
}

// signedDates returns what the Date fields say that a signature covers.
func signedDates(fields message.Header, signature *authentication.Signature) (dates []time.Time) {
	if !signature.Covers("date") {
		return nil
	}
	for _, one := range fields.All("Date") {
		if date, err := message.Date(one.Text()); err == nil {
			dates = append(dates, date)
		}
	}
	return dates
}

// replayNamespace has what was received whose Message-ID is not signed.
const replayNamespace = "email/received"

// sentAgain reports whether what a signature covers was received before under another Message-ID. A repeat is known by its Message-ID; where the
// signature does not cover that, anyone who has the mail can write a new one and have it read again. All aligned signatures are remembered,
// because a mail can be handed on with one of them alone, and without the fields for which that one did not count.
func (i *inbox) sentAgain(ctx context.Context, mail *arrival, to recipient, counts *authentication.Signature) (again bool, err error) {
	own, known := i.ownID(mail), map[string]bool{}
	for _, signature := range mail.sender.DMARC.Signatures {
		if signature.Covers("message-id") && message.ID(mail.fields) != "" {
			continue
		}

		key := receivedKey(mail, to, signature)
		differs, done := known[key]
		if !done {
			first, _, err := i.options.State.PutIfAbsent(ctx, replayNamespace, key, []byte(own), mail.env.received.Add(maxDateAge+maxDateLead))
			if err != nil {
				return false, fmt.Errorf("remember a mail whose Message-ID is not signed: %w", err)
			}
			differs = string(first) != own
			known[key] = differs
		}
		again = again || signature == counts && differs
	}
	return again, nil
}

// receivedKey names what a signature covers beside the Message-ID, whatever white space a relaxed one passes over.
func receivedKey(mail *arrival, to recipient, signature *authentication.Signature) string {
	when := signature.Tags["t"]
	if signature.Covers("date") && mail.fields.Has("Date") {
		when = strings.Join(strings.Fields(mail.fields.Get("Date")), " ")
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{to.address, mail.sender.from.Key(), when, mail.bodyDigest()}, "\n")))
	return hex.EncodeToString(sum[:])
}
