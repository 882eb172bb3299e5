package email

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/emersion/go-msgauth/authres"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

const (
	maxListedInRoute = 100
	maxAttachedBytes = 20 << 20
	maxAttachedFiles = 20
)

// capabilities is what a mail can carry back; only To and Cc wake anybody else (message contract, section 6).
func capabilities() normalized.RecipientCapabilities {
	threads, edits := true, false
	return normalized.RecipientCapabilities{
		MentionRelay: normalized.MentionRelay{Kind: normalized.RelayRecipientField, Fields: []string{"to", "cc"}},
		MaxTextBytes: 1 << 20,
		TextMIMEs:    []string{normalized.MIMEPlain, normalized.MIMEMarkdown, normalized.MIMEHTML},
		Attachments:  &normalized.AttachmentsCapability{MaxCount: maxAttachedFiles, MaxBytes: maxAttachedBytes},
		Threads:      &threads,
		Edits:        &edits,
	}
}

// normalize makes the message for one recipient.
func (a *Adapter) normalize(ctx context.Context, mail *arrival, shared content, to recipient) (exchange.Inbound, error) {
	id := messageID(mail.fields)
	own := id
	if own == "" {
		own = digestOf(mail.mail) + "@" + a.domain
	}
	threadID, parent, err := a.thread(ctx, mail, to, own)
	if err != nil {
		return exchange.Inbound{}, err
	}
	if to.answered != "" {
		to.tag = parent.Tag // the thread tag stands in its place
	}
	parts, err := messageParts(shared, mail.fields.decoded("Subject"), parent.Subject)
	if err != nil {
		return exchange.Inbound{}, err
	}
	addressed := a.addressed(mail.fields, to)
	claims := mail.sender.claims(mail.env, addressed)
	notes, err := json.Marshal(a.route(mail, to, id, addressed))
	if err != nil {
		return exchange.Inbound{}, fmt.Errorf("encode route: %w", err)
	}
	in := exchange.Inbound{
		Message: normalized.Message{
			ID: own, ThreadID: threadID, InReplyTo: parentsOf(mail.fields).parent,
			Sender: a.senderOf(mail, to, claims), Recipient: to.address, Parts: parts,
			RecipientCapabilities: capabilities(), ReceivedVia: normalized.ViaEmail,
			ReceivedAt: identity.At(mail.env.received), Raw: normalized.Raw{MediaType: "message/rfc822"},
			Surface: surfaceOf(mail.fields, to),
		},
		Original: a.original(mail), Channel: ChannelName, Route: notes, Repeats: true, NoReply: a.automatic(mail, to, addressed),
		AnswerOf: a.answerOf(mail.fields), Client: mail.env.client(),
		FromAgent: mail.fields.has(chainField) || autoSubmitted(mail.fields) != "",
	}
	chain, err := readChain(mail.fields)
	if err != nil {
		refuseChain(&in, mail.fields, err)
	}
	in.Message.RecipientCapabilities.AgentChain = chain
	return in, nil
}

// receive hands a message over. A mail that has the id of another mail of its sender gets an id of its own: senders choose
// their ids, and broken ones choose the same again. A repeat has the same body, whatever was written on top on its way.
func (a *Adapter) receive(ctx context.Context, mail *arrival, to recipient, in exchange.Inbound) error {
	receipt, err := a.options.Receiver.Receive(ctx, in)
	if err != nil || receipt.New {
		return err
	}
	known, found, err := a.options.Threads.FindMessage(ctx, to.agent, in.Message.ID)
	if err != nil {
		return fmt.Errorf("find a mail of the same id: %w", err)
	}
	if !found || known.Message.ID != in.Message.ID || known.Message.ReceivedVia != normalized.ViaEmail || known.Message.Sender.Principal() != in.Message.Sender.Principal() {
		return nil
	}
	body := digestOf(mail.body)
	notes, ok := readRoute(known.Route)
	if !ok || notes.Body == "" || notes.Body == body[:32] {
		return nil
	}
	own := body + "@" + a.domain
	if in.Message.ThreadID == in.Message.ID {
		in.Message.ThreadID = own
	}
	in.Message.ID = own
	_, err = a.options.Receiver.Receive(ctx, in)
	return err
}

// messageParts puts the text first. The contract has no place for a subject, and many mails say what they want
// only there: it leads the text when the mail opens a conversation or changes its subject.
func messageParts(shared content, subject, parentSubject string) ([]normalized.Part, error) {
	var parts []normalized.Part
	mime := shared.mime
	if mime == "" {
		mime = normalized.MIMEPlain
	}
	text, own := shared.text, shared.fresh
	switch base := baseSubject(subject); {
	case text == "":
		text = base
	case base != "" && !strings.EqualFold(base, baseSubject(parentSubject)):
		text = "Subject: " + base + "\n\n" + text
		if own != "" {
			own = "Subject: " + base + "\n\n" + own
		}
	}
	if text != "" {
		parts = append(parts, normalized.Part{Kind: normalized.PartText, MIME: mime, Content: text, New: own})
	}
	if len(shared.forwarded) > 0 {
		parts = append(parts, normalized.Text(truncate(strings.Join(shared.forwarded, "\n\n"))))
	}
	room := normalized.DefaultLimits().Parts - len(parts) - len(shared.files) - 1 // for the note below
	parts = append(append(parts, shared.links[:min(len(shared.links), room)]...), shared.files...)
	if shared.left > 0 {
		parts = append(parts, normalized.Text(fmt.Sprintf("[%d more files were left out; the original mail is kept.]", shared.left)))
	}
	if len(parts) == 0 {
		return nil, fault.InField("body", "the mail has no subject, no text and no file")
	}
	return parts, nil
}

func (a *Adapter) senderOf(mail *arrival, to recipient, claims json.RawMessage) normalized.Sender {
	from := mail.sender.from
	sender := normalized.Sender{
		Address: from.canonical(), DisplayName: from.Name, AuthMethod: mail.sender.method, Verified: mail.sender.verified(),
		KeyID: mail.sender.keyID, Identities: a.evidence(mail.sender, mail.env, to, claims),
	}
	sender.Profile = &normalized.SenderProfile{
		DisplayName: from.Name, Username: from.Local, Locale: mailLocale(mail.fields), Provider: normalized.ViaEmail,
	}
	if claims != nil {
		// Unverified mail has no evidence, but an agent may still want to know what was found.
		sender.Profile.Extensions = map[string]json.RawMessage{normalized.ViaEmail: claims}
	}
	return sender
}

// addressed says whether the agent stands in To or Cc, with any tag.
func (a *Adapter) addressed(fields header, to recipient) bool {
	return a.named(fields, to, "To", "Cc", "Resent-To", "Resent-Cc")
}

func (a *Adapter) named(fields header, to recipient, names ...string) bool {
	for _, name := range names {
		for _, box := range fields.addressList(name) {
			if local, _ := splitTag(box.Local); box.Domain == a.domain && local == to.local {
				return true
			}
		}
	}
	return false
}

func (a *Adapter) route(mail *arrival, to recipient, id string, addressed bool) route {
	parents := parentsOf(mail.fields)
	references := parents.references
	if len(references) == 0 && parents.parent != "" {
		references = []string{parents.parent}
	}
	replyTo, replySigned, unfollowed := a.safeReplyTo(mail, to)
	var lists []string
	if listMail(mail.fields) {
		// Many lists write themselves there.
		lists, replyTo, replySigned, unfollowed = listAddresses(mail.fields), nil, false, ""
	}
	return route{
		Version: 1, Lists: lists, Local: to.local, Tag: to.tag, From: mail.sender.from, ReplyTo: replyTo, ReplySigned: replySigned, Unfollowed: unfollowed,
		To: a.others(mail.fields.addressList("To")), Cc: a.others(mail.fields.addressList("Cc")),
		Subject: mail.fields.decoded("Subject"), MessageID: id, References: references,
		Body: digestOf(mail.body)[:32], Topic: mail.fields.decoded("Thread-Topic"), Index: threadIndexOf(mail.fields), Verified: mail.sender.verified(),
		// An agent that stands in neither field was told in secret: an answer to all would show it.
		ReplyAll: addressed && lists == nil && mail.sender.verified() && a.options.RepliesToAll != nil && a.options.RepliesToAll(to.agent),
	}
}

func (a *Adapter) others(boxes []mailbox) []mailbox {
	var kept []mailbox
	for _, box := range boxes {
		if box.Domain != a.domain && len(kept) < maxListedInRoute {
			kept = append(kept, box)
		}
	}
	return kept
}

// Values of Options.ReplyTo.
const (
	ReplyToOrganization = "organization" // followed inside of the organization of a proven sender
	ReplyToSigned       = "signed"       // also elsewhere, where the aligned signature of the mail covers it
	ReplyToNever        = "never"
)

// safeReplyTo returns the Reply-To address where it cannot turn the agent into a reflector: whoever signs mail may name
// anybody there, so the address must belong to the organization of the sender, who was proven. signed reports whether the
// aligned signature covers the field; unfollowed is the address that is not written to.
func (a *Adapter) safeReplyTo(mail *arrival, to recipient) (safe *mailbox, signed bool, unfollowed string) {
	boxes := mail.fields.addressList("Reply-To")
	if len(boxes) == 0 || len(boxes) == 1 && boxes[0].key() == mail.sender.from.key() {
		return nil, false, ""
	}
	refused := boxes[0].address()
	if len(mail.fields.all("Reply-To")) != 1 || len(boxes) != 1 || boxes[0].Domain == a.domain || !mail.sender.verified() {
		return nil, false, refused
	}
	policy := ReplyToOrganization
	if a.options.ReplyTo != nil {
		policy = a.options.ReplyTo(to.agent)
	}
	signature := mail.sender.dmarc.signature
	signed = signature != nil && !containsFold(signature.Uncovered, "reply-to")
	switch {
	case policy == ReplyToNever:
	case policy == ReplyToSigned && signed, sameRegistered(boxes[0].Domain, mail.sender.from.Domain):
		return &boxes[0], signed, ""
	}
	return nil, false, refused
}

func containsFold(list []string, text string) bool {
	for _, one := range list {
		if strings.EqualFold(one, text) {
			return true
		}
	}
	return false
}

// original is the mail as it is kept: our trace fields on top, and without results that claim to be ours.
func (a *Adapter) original(mail *arrival) []byte {
	body := mail.mail
	if forged := a.ownResults(mail.fields); forged > 0 {
		body = withoutFields(mail.fields, mail.mail, a.claimsOurResults)
	}
	var out bytes.Buffer
	out.Grow(len(body) + 1024)
	fmt.Fprintf(&out, "Return-Path: <%s>\r\n", mail.env.from)
	fmt.Fprintf(&out, "Authentication-Results: %s\r\n", strings.ReplaceAll(authres.Format(a.options.Hostname, results(mail.sender, mail.env)), "; ", ";\r\n\t"))
	a.writeReceived(&out, mail.env)
	out.Write(body)
	return out.Bytes()
}

func (a *Adapter) ownResults(fields header) int {
	count := 0
	for _, f := range fields {
		if a.claimsOurResults(f) {
			count++
		}
	}
	return count
}

// claimsOurResults finds Authentication-Results with our own name (RFC 8601, section 5).
func (a *Adapter) claimsOurResults(f field) bool {
	if !strings.EqualFold(strings.TrimRight(f.name, " \t"), "Authentication-Results") {
		return false
	}
	id := strings.TrimSuffix(firstToken(f.text()), ".")
	return strings.EqualFold(id, a.options.Hostname) || strings.EqualFold(id, a.domain)
}

func results(found verdict, env envelope) []authres.Result {
	var list []authres.Result
	for _, one := range found.signatures {
		list = append(list, &authres.DKIMResult{Value: authres.ResultValue(one.Result), Domain: cleanText(one.Domain, 255), Reason: one.Reason})
	}
	if len(found.signatures) == 0 {
		list = append(list, &authres.DKIMResult{Value: authres.ResultNone})
	}
	envelope := &authres.SPFResult{Value: authres.ResultValue(found.spf.Result), From: env.from}
	if env.from == "" {
		envelope.Helo = cleanText(env.helo, 255)
	}
	return append(list, envelope, &authres.DMARCResult{Value: authres.ResultValue(found.dmarc.Result), From: found.from.Domain})
}

func (a *Adapter) writeReceived(out *bytes.Buffer, env envelope) {
	protocol := "ESMTP"
	if env.utf8 {
		protocol = "UTF8SMTP" // RFC 6531, section 4.3
	}
	if env.tls != "" {
		protocol += "S"
	}
	helo := cleanText(strings.Map(atomRune, env.helo), 255)
	fmt.Fprintf(out, "Received: from %s (%s)\r\n\tby %s with %s id %s", helo, addressLiteral(env.ip), a.options.Hostname, protocol, env.id)
	if len(env.recipients) == 1 {
		fmt.Fprintf(out, "\r\n\tfor <%s>", env.recipients[0].envelope)
	}
	fmt.Fprintf(out, ";\r\n\t%s\r\n", env.received.UTC().Format(time.RFC1123Z))
}

// addressLiteral writes an address as SMTP does (RFC 5321, section 4.1.3).
func addressLiteral(ip string) string {
	if strings.Contains(ip, ":") {
		return "[IPv6:" + ip + "]"
	}
	return "[" + ip + "]"
}

// atomRune leaves in a name what cannot end it.
func atomRune(r rune) rune {
	if r > ' ' && r < 0x7f && !strings.ContainsRune("()<>;\\\"", r) {
		return r
	}
	return '?'
}
