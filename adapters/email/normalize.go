package email

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-msgauth/authres"

	"inbox/adapters/email/authentication"
	"inbox/adapters/email/message"
	"inbox/adapters/email/text"
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

// capabilities is what a mail can carry back; only To and Cc reach others (message contract, section 6).
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
func (i *inbox) normalize(ctx context.Context, mail *arrival, shared text.Content, to recipient) (exchange.Inbound, error) {
	own := i.ownID(mail)
	named := i.named(mail, to, "To", "Cc", "Resent-To", "Resent-Cc")
	claims := mail.sender.claims(mail.env, named)
	sender := i.senderOf(mail, to, claims)
	parents := i.parentsOf(mail)
	answered := parents.parent
	thread, err := i.thread(ctx, mail, to, parents, sender, own)
	if err != nil {
		return exchange.Inbound{}, err
	}

	thread.chain = countedChain(mail, thread.chain)
	if thread.answers != "" {
		answered = thread.answers
	}
	if to.answered != "" {
		to.tag = thread.parent.Tag // the thread tag is in its place
	}
	if thread.parent.Version == 0 {
		to.answered = "" // the tag is someone else's: it opens nothing
	}

	if thread.known {
		if shared, err = i.withPasted(ctx, shared, to, thread.id); err != nil {
			return exchange.Inbound{}, err
		}
	}

	parts, err := messageParts(shared, mail.subject(), thread.parent.Subject)
	if err != nil {
		return exchange.Inbound{}, err
	}

	kept := i.route(mail, to, parents, message.ID(mail.fields), named)
	kept.Marks, kept.Chain = i.habits(mail, to), thread.chain
	notes, err := json.Marshal(kept)
	if err != nil {
		return exchange.Inbound{}, fmt.Errorf("encode route: %w", err)
	}

	answerOf := i.answeredAt(answered)
	reason, weak := i.automatic(mail, to, named, thread.parent, !answerOf.IsZero() || thread.parent.Version != 0)
	in := exchange.Inbound{
		Message: normalized.Message{
			ID: own, ThreadID: thread.id, InReplyTo: answered,
			Sender: sender, Recipient: to.address, Parts: parts,
			RecipientCapabilities: capabilities(), ReceivedVia: normalized.ViaEmail,
			ReceivedAt: identity.At(mail.env.received), Raw: normalized.Raw{MediaType: "message/rfc822"},
			Surface: surfaceOf(mail, to),
		},
		Audience: i.audience(sender, kept), Original: i.original(mail), Files: mail.files, Channel: ChannelName, Route: notes, Repeats: true, NoReply: reason, Doubted: weak,
		AnswerOf: answerOf, Opens: thread.begins, Chain: thread.chain, Astray: thread.astray, Client: mail.env.client(),
		FromAgent: mail.fields.Has(chainField) || autoSubmitted(mail.fields) != "",
		Rejected:  i.verifier.rejected(mail.sender),
	}

	chain, err := readChain(mail.fields)
	if err != nil {
		refuseChain(&in, mail.fields, err)
	}

	in.Message.RecipientCapabilities.AgentChain = chain
	return in, nil
}

// withPasted returns a content of which nothing is old where what looks like the mail that is answered repeats nothing of the conversation: people
// write such lines, too, and ask for an answer to them. A header that names a mailbox of this server is the answered mail's.
func (i *inbox) withPasted(ctx context.Context, shared text.Content, to recipient, thread string) (text.Content, error) {
	if shared.Unmarked == "" || i.options.Said == nil || shared.Names("@"+i.domain) {
		return shared, nil
	}

	said, err := i.options.Said(ctx, to.agent, thread)
	if err != nil {
		return shared, fmt.Errorf("read what was said in a conversation: %w", err)
	}
	if len(said) > 0 && !text.Repeats(shared.Unmarked, said) {
		shared.Fresh = ""
	}
	return shared, nil
}

// ownID returns the id of the message: its Message-ID, or without one that of its bytes.
func (i *inbox) ownID(mail *arrival) string {
	if id := message.ID(mail.fields); id != "" {
		return id
	}
	return digestOf(mail.mail) + "@" + i.domain
}

// receive hands a message over. A mail that has the id of another mail of its sender gets an id of its own: senders choose
// their ids, and broken ones choose the same again. A repeat has the same body, whatever was written on top on its way; white space that a
// relaxed signature passes over makes it no other mail.
func (i *inbox) receive(ctx context.Context, mail *arrival, to recipient, in exchange.Inbound) error {
	receipt, err := i.options.Receiver.Receive(ctx, in)
	if err != nil || receipt.New {
		return err
	}

	known, found, err := i.options.Threads.SentMessage(ctx, to.agent, in.Message.Sender.Principal(), in.Message.ID)
	if err != nil {
		return fmt.Errorf("find a mail of the same id: %w", err)
	}
	if !found || known.Message.ReceivedVia != normalized.ViaEmail {
		return nil
	}

	body := mail.bodyDigest()
	notes, ok := readRoute(known.Route)
	if !ok || notes.Body == "" || notes.Body == body[:32] || notes.Body == digestOf(mail.body)[:32] { // the last is how older versions wrote it
		return nil
	}

	own := body + "@" + i.domain
	if root := exchange.ConversationID(ChannelName, to.agent, in.Message.Sender.Principal(), in.Message.ID); in.Message.ThreadID == root {
		in.Message.ThreadID = exchange.ConversationID(ChannelName, to.agent, in.Message.Sender.Principal(), own)
	}

	in.Message.ID = own
	_, err = i.options.Receiver.Receive(ctx, in)
	return err
}

// messageParts puts the text first. The contract has no place for a subject, and many mails say what they want
// only there: it leads the text when the mail opens a conversation or changes its subject.
func messageParts(shared text.Content, subject, parentSubject string) ([]normalized.Part, error) {
	var parts []normalized.Part
	mime := shared.MIME
	if mime == "" {
		mime = normalized.MIMEPlain
	}

	said, own := shared.Text, shared.Fresh
	switch base := message.BaseSubject(subject); {
	case said == "":
		said = base
	case base != "" && !strings.EqualFold(base, message.BaseSubject(parentSubject)):
		said = "Subject: " + base + "\n\n" + said
		if own != "" {
			own = "Subject: " + base + "\n\n" + own
		}
	}

	if said != "" {
		parts = append(parts, normalized.Part{Kind: normalized.PartText, MIME: mime, Content: said, New: own})
	}

	if len(shared.Forwarded) > 0 {
		parts = append(parts, normalized.Text(text.Truncate(strings.Join(shared.Forwarded, "\n\n"))))
	}

	room := normalized.DefaultLimits().Parts - len(parts) - len(shared.Files) - 1 // for the note below
	parts = append(append(parts, shared.Links[:min(len(shared.Links), room)]...), shared.Files...)
	if shared.Left > 0 {
		parts = append(parts, normalized.Text(fmt.Sprintf("[%d more files were left out; the original mail is kept.]", shared.Left)))
	}

	if len(parts) == 0 {
		return nil, fault.InField("body", "the mail has no subject, no text and no file")
	}

	return parts, nil
}

func (i *inbox) senderOf(mail *arrival, to recipient, claims json.RawMessage) normalized.Sender {
	from := mail.sender.from
	sender := normalized.Sender{
		Address: identity.Stated(from.Canonical()), DisplayName: from.Name, AuthMethod: mail.sender.method, Verified: mail.sender.verified(),
		KeyID: mail.sender.keyID, Identities: i.verifier.evidence(mail.sender, mail.env, to, claims),
	}

	sender.Profile = &normalized.SenderProfile{
		DisplayName: from.Name, Username: from.Local, Locale: text.Locale(mail.fields), Provider: normalized.ViaEmail,
	}

	if claims != nil {
		// Unverified mail has no evidence, but an agent may still want to know what was found.
		sender.Profile.Extensions = map[string]json.RawMessage{normalized.ViaEmail: claims}
	}

	return sender
}

// named reports whether one of the fields names the recipient, with any tag.
func (i *inbox) named(mail *arrival, to recipient, names ...string) bool {
	for _, name := range names {
		for _, box := range mail.addresses(name) {
			local, _ := splitTag(box.Local)
			if box.Domain == i.domain && (local == to.local || local == to.called) || to.agent != "" && strings.EqualFold(i.aliasOf(box), to.agent) {
				return true
			}
		}
	}
	return false
}

func (i *inbox) route(mail *arrival, to recipient, parents parentage, id string, named bool) route {
	references := parents.references
	if len(references) == 0 && parents.parent != "" {
		references = []string{parents.parent}
	}

	replyTo, replySigned, unfollowed := i.safeReplyTo(mail, to)
	var lists []string
	if listMail(mail.fields) {
		// Many lists write themselves there.
		lists, replyTo, replySigned, unfollowed = listAddresses(mail.fields), nil, false, ""
	}

	return route{
		Version: 1, Lists: lists, Local: to.local, Tag: to.tag, From: mail.sender.from, ReplyTo: replyTo, ReplySigned: replySigned, Unfollowed: unfollowed,
		To: i.others(mail.addresses("To")), Cc: i.others(mail.addresses("Cc")),
		Subject: mail.subject(), MessageID: id, References: references,
		Body: mail.bodyDigest()[:32], Topic: mail.fields.Decoded("Thread-Topic"), Index: threadIndexOf(mail.fields), Verified: mail.sender.verified(),
		// An agent that is in neither field was told in secret: an answer to all would show it.
		ReplyAll: named && lists == nil && mail.sender.verified() && i.options.RepliesToAll != nil && i.options.RepliesToAll(to.agent),
	}
}

func (i *inbox) others(boxes []message.Mailbox) []message.Mailbox {
	var kept []message.Mailbox
	for _, box := range boxes {
		if box.Domain != i.domain && len(kept) < maxListedInRoute && i.aliasOf(box) == "" {
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

// safeReplyTo returns the Reply-To address if following it cannot turn the agent into a reflector. The address must belong to the sender's
// organization, because a signer can name any address. The sender must also vouch for the field, because strangers at a large provider
// share an organization. signed reports whether the aligned signature covers the field; unfollowed is the address that is ignored.
func (i *inbox) safeReplyTo(mail *arrival, to recipient) (safe *message.Mailbox, signed bool, unfollowed string) {
	boxes := mail.addresses("Reply-To")
	if len(boxes) == 0 || len(boxes) == 1 && boxes[0].Key() == mail.sender.from.Key() {
		return nil, false, ""
	}

	refused := boxes[0].Address()
	if len(mail.fields.All("Reply-To")) != 1 || len(boxes) != 1 || boxes[0].Domain == i.domain || i.aliasOf(boxes[0]) != "" || !mail.sender.verified() || !mail.counts("reply-to") {
		return nil, false, refused
	}

	policy := ReplyToOrganization
	if i.options.ReplyTo != nil {
		policy = i.options.ReplyTo(to.agent)
	}

	signature := mail.sender.addressing.signature
	signed = signature != nil && signature.Covers("reply-to")
	switch {
	case policy == ReplyToNever:
	case policy == ReplyToSigned && signed, authentication.SameRegistered(boxes[0].Domain, mail.sender.from.Domain):
		return &boxes[0], signed, ""
	}

	return nil, false, refused
}

// original is the mail as it is kept: our trace fields on top, and without results that claim to be ours.
func (i *inbox) original(mail *arrival) []byte {
	body := mail.mail
	if slices.ContainsFunc(mail.fields, i.claimsOurResults) {
		body = mail.fields.Without(mail.mail, i.claimsOurResults)
	}

	var out bytes.Buffer
	out.Grow(len(body) + 1024)
	fmt.Fprintf(&out, "Return-Path: <%s>\r\n", mail.env.from)
	fmt.Fprintf(&out, "Authentication-Results: %s\r\n", strings.ReplaceAll(authres.Format(i.options.Hostname, results(mail.sender, mail.env)), "; ", ";\r\n\t"))
	i.writeReceived(&out, mail.env)
	out.Write(body)
	return out.Bytes()
}

// claimsOurResults finds Authentication-Results with our own name (RFC 8601, section 5). authres reads neither comments nor
// quoted names (TestForgedResultsAreRemoved).
func (i *inbox) claimsOurResults(f message.Field) bool {
	if !strings.EqualFold(strings.TrimRight(f.Name, " \t"), "Authentication-Results") {
		return false
	}
	id := strings.TrimSuffix(message.FirstToken(f.Text()), ".")
	return strings.EqualFold(id, i.options.Hostname) || strings.EqualFold(id, i.domain)
}

func results(found verdict, env envelope) []authres.Result {
	var list []authres.Result
	for _, one := range found.DKIM {
		list = append(list, &authres.DKIMResult{Value: authres.ResultValue(one.Result), Domain: message.Clean(one.Domain, 255), Reason: one.Reason})
	}

	if len(found.DKIM) == 0 {
		list = append(list, &authres.DKIMResult{Value: authres.ResultNone})
	}

	envelope := &authres.SPFResult{Value: authres.ResultValue(found.SPF.Result), From: env.from}
	if env.from == "" {
		envelope.Helo = message.Clean(env.helo, 255)
	}

	return append(list, envelope, &authres.DMARCResult{Value: authres.ResultValue(found.DMARC.Result), From: found.from.Domain})
}

func (i *inbox) writeReceived(out *bytes.Buffer, env envelope) {
	protocol := "ESMTP"
	if env.utf8 {
		protocol = "UTF8SMTP" // RFC 6531, section 4.3
	}

	if env.tls != "" {
		protocol += "S"
	}

	helo := message.Clean(strings.Map(atomRune, env.helo), 255)
	fmt.Fprintf(out, "Received: from %s (%s)\r\n\tby %s with %s id %s", helo, addressLiteral(env.ip), i.options.Hostname, protocol, env.id)
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

func digestOf(mail []byte) string {
	sum := sha256.Sum256(mail)
	return hex.EncodeToString(sum[:])
}

// surfaceOf is what the header says beyond the contract: what the sender wrote, for the agent to read. Who was only in the
// envelope (Bcc) appears nowhere.
func surfaceOf(mail *arrival, to recipient) *normalized.Surface {
	fields := mail.fields
	surface := &normalized.Surface{
		Channel: normalized.ViaEmail, Subject: mail.subject(), Date: dateOf(fields), Tag: to.tag,
		ListID: listID(fields), Language: text.BestLanguage(fields.Get("Content-Language")),
	}
	surface.AddRecipients(&surface.To, surfaceRecipients(mail.addresses("To"))...)
	surface.AddRecipients(&surface.Cc, surfaceRecipients(mail.addresses("Cc"))...)
	return surface
}

func surfaceRecipients(boxes []message.Mailbox) []normalized.SurfaceRecipient {
	list := make([]normalized.SurfaceRecipient, 0, len(boxes))
	for _, box := range boxes {
		list = append(list, normalized.SurfaceRecipient{Address: box.Canonical(), Name: box.Name})
	}
	return list
}

// dateOf reads Date; nil = there is none that can be read, or one that no clock of a mail program shows.
func dateOf(fields message.Header) *identity.Time {
	parsed, err := message.Date(fields.Get("Date"))
	if err != nil || parsed.Before(time.Unix(0, 0)) || parsed.Year() > 9998 {
		return nil
	}

	at := identity.At(parsed)
	return &at
}

// listID reads the identifier of a mailing list (RFC 2919, section 3).
func listID(fields message.Header) string {
	value := fields.Get("List-Id")
	start := strings.LastIndexByte(value, '<')
	if start < 0 {
		return ""
	}

	id, _, closed := strings.Cut(value[start+1:], ">")
	if id = message.Clean(id, 255); !closed || strings.ContainsAny(id, " <") {
		return ""
	}

	return id
}
