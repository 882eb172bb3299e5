package email

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"inbox/adapters/email/message"
	"inbox/adapters/email/report"
	"inbox/adapters/email/text"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// Mailbox keeps mail for the operator.
type Mailbox interface {
	// Keep keeps a mail: when it returns nil, the mail is durable, or a repeat of one that is. The error is fault.RateLimited where its
	// sender, or all, have too much there.
	Keep(ctx context.Context, mail exchange.IncomingMail) error
}

// Role addresses of the domain (RFC 2142). Those of the first list are the operator's alone, whatever agents there are; one of the second is
// an agent's where one has that name.
var (
	rolesKept   = []string{"postmaster", "abuse"}
	rolesCommon = []string{"hostmaster", "webmaster", "noc", "security"}
)

// operatorsOwn reports whether mail to a local part is the operator's, whatever agents there are: among them that to which reports go.
func (r *recipients) operatorsOwn(name string) bool {
	local, domain, _ := strings.Cut(strings.ToLower(r.options.Reports), "@")
	local, _, _ = strings.Cut(local, "+")
	return slices.Contains(rolesKept, name) || name == local && domain == r.domain
}

// shownFields are what a kept mail shows of its header.
var shownFields = []string{"From", "Sender", "Reply-To", "To", "Cc", "Date", "Subject", "Message-ID", "In-Reply-To", "Auto-Submitted", "List-Id", "Content-Type"}

// keepForOperator keeps a mail to a role address (RFC 5321, section 4.5.1; RFC 2142): it is never given to an agent.
func (i *inbox) keepForOperator(ctx context.Context, mail *arrival, said text.Content, to recipient) error {
	kept := exchange.IncomingMail{
		Mail: shownMail(mail.fields, said), Raw: i.original(mail), Client: mail.env.client(), Answers: i.mayBeSentOn(mail),
		Key: strings.Join([]string{to.local, mail.sender.from.Key(), message.ID(mail.fields), digestOf(mail.body)}, "\n"),
	}
	kept.Kind, kept.Mailbox, kept.To = exchange.MailOrdinary, to.local, []string{to.envelope}
	kept.From, kept.FromName, kept.EnvelopeFrom = mail.sender.from.Address(), message.DisplayName(mail.sender.from.Name), mail.env.from
	kept.ReceivedAt, kept.Proof, kept.Evidence = mail.env.received.UTC(), mail.sender.method, mail.sender.claims(mail.env, i.named(mail, to, "To", "Cc"))
	if mail.sender.disowned != "" {
		kept.Note = message.Clip("its author is proven, but anyone who has the mail could send it here: "+mail.sender.addressing.why, 300)
	}

	found, err := report.Read(mail.fields, mail.body)
	switch {
	case err != nil:
		kept.Note = message.Clip("a report that cannot be read: "+err.Error(), 300)
	case found.Kind != "":
		if kept.Kind = found.Kind; found.Domain == i.domain || strings.HasSuffix(found.Domain, "."+i.domain) {
			kept.Report = &found
		} else {
			kept.Note = message.Clip("a report about "+found.Domain+", which is not a domain of this server: it is not counted", 300)
		}
	}

	return i.options.Mailbox.Keep(ctx, kept)
}

// mayBeSentOn reports whether a mail may leave again without being asked for: a program that wrote it could answer, and so on for ever.
func (i *inbox) mayBeSentOn(mail *arrival) bool {
	return len(marksOf(mail, false)) == 0 && i.ownMail(mail) == ""
}

// shownMail is what a kept mail shows of what its sender wrote.
func shownMail(fields message.Header, said text.Content) exchange.Mail {
	shown := exchange.Mail{Subject: fields.Decoded("Subject"), MessageID: message.ID(fields)}
	for _, name := range shownFields {
		if value := fields.Decoded(name); value != "" {
			shown.Headers = append(shown.Headers, exchange.MailHeader{Name: name, Value: value})
		}
	}

	shown.Text = strings.TrimSpace(strings.Join(append([]string{said.Text}, said.Forwarded...), "\n\n"))
	if len(shown.Text) > exchange.MaxMailText {
		shown.Text, shown.Cut = strings.ToValidUTF8(shown.Text[:exchange.MaxMailText], ""), true
	}
	for _, file := range said.Files {
		shown.Files = append(shown.Files, exchange.MailFile{Name: file.Name, MIME: file.MIME, Size: file.Size})
	}
	return shown
}

// capturedMail is an answer that is kept instead of being sent. A repeat of its delivery is a repeat of it.
func (o *outbox) capturedMail(ctx context.Context, delivery exchange.Delivery, from, domain string, to []string, data []byte) (exchange.IncomingMail, error) {
	fields, body, err := message.Split(data)
	if err != nil {
		return exchange.IncomingMail{}, fault.GiveUp("the mail cannot be read", err)
	}
	said, err := text.Read(ctx, fields, body, len(data), exchange.Contents{}) // the files are in the mail
	if err != nil {
		return exchange.IncomingMail{}, err
	}

	kept := exchange.IncomingMail{Mail: shownMail(fields, said), Raw: data, Key: "captured/" + delivery.Reply.ID + "/" + domain}
	if author, err := message.ParseFrom(fields); err == nil {
		kept.From, kept.FromName = author.Address(), message.DisplayName(author.Name)
	}
	kept.Kind, kept.Mailbox, kept.To, kept.EnvelopeFrom, kept.ReplyID = exchange.MailCaptured, delivery.Reply.Agent, to, from, delivery.Reply.ID
	kept.ReceivedAt, kept.Proof = o.now().UTC(), normalized.AuthNone
	return kept, nil
}

func readBlob(ctx context.Context, blobs exchange.Blobs, digest string, limit int64) ([]byte, error) {
	r, err := blobs.Open(ctx, digest)
	if err != nil {
		return nil, fmt.Errorf("open blob: %w", err)
	}

	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(io.LimitReader(r, limit))
	if err != nil {
		return nil, fmt.Errorf("read blob: %w", err)
	}

	return data, nil
}
