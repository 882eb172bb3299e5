package peer

import (
	"bytes"
	"context"
	"crypto"
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/textproto"
	"strings"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/emersion/go-smtp"

	"inbox/identity"
)

// letter is a mail before it is signed.
type letter struct {
	id         string // Message-ID without angle brackets
	to         string // user@domain
	subject    string
	text       string
	inReplyTo  string // without angle brackets; empty = a new thread
	references string // as written in the field
	byPerson   bool   // also where it answers another mail
	language   string // BCP 47; empty = not said
	files      []File
}

// Ask mails the address (@user@domain or user@domain) through the SMTP server at smtpAddr and waits until ctx ends
// for an answer that verifies.
func (m *Mail) Ask(ctx context.Context, smtpAddr, address, subject, text string) (Conversation, error) {
	question, err := m.inquire(ctx, smtpAddr, address, subject, text)
	if err != nil {
		return Conversation{}, err
	}
	defer question.forget()

	got, err := question.next(ctx)
	if err != nil {
		return Conversation{}, err
	}
	return question.finish(got), nil
}

// AskWithConsent is Ask to an agent that asks back first: the demand must come as a mail to us alone, its page is
// opened without effect, then agreed to, and the answer arrives in the same thread without another question.
func (m *Mail) AskWithConsent(ctx context.Context, smtpAddr, address, subject, text string) (Demand, Conversation, error) {
	question, err := m.inquire(ctx, smtpAddr, address, subject, text)
	if err != nil {
		return Demand{}, Conversation{}, err
	}
	defer question.forget()
	return question.consent(ctx)
}

// inquire sends a mail that opens a thread.
func (m *Mail) inquire(ctx context.Context, smtpAddr, address, subject, text string) (*inquiry, error) {
	question := &inquiry{waiting: m.waiting, started: time.Now()}
	to, err := identity.ParseAddress(address)
	if err != nil {
		return nil, err
	}

	first := letter{id: newID() + "@" + m.domain, to: to.Mail(), subject: subject, text: text}
	question.author, question.replyTo = first.to, first.id
	question.conversation = Conversation{Network: "email", From: m.Address(), To: first.to, MessageID: first.id, Question: text}
	question.arrival, question.forget = m.waiting.expect(first.id)

	if err := m.send(ctx, smtpAddr, first); err != nil {
		question.forget()
		return nil, fmt.Errorf("mail %s through %s: %w", first.to, smtpAddr, err)
	}

	return question, nil
}

func (m *Mail) send(ctx context.Context, smtpAddr string, message letter) error {
	signed, err := m.sign(m.compose(message))
	if err != nil {
		return err
	}
	return m.submit(ctx, smtpAddr, message.to, signed)
}

// submit hands finished bytes to an SMTP server.
func (m *Mail) submit(ctx context.Context, smtpAddr, to string, raw []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", smtpAddr)
	if err != nil {
		return err
	}

	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	client := smtp.NewClient(conn)
	defer client.Close() //nolint:errcheck // after Quit it is closed already

	if err := client.Hello("mail." + m.domain); err != nil {
		return err
	}
	if err := client.SendMail(m.Address(), []string{to}, bytes.NewReader(raw)); err != nil {
		return err
	}

	return client.Quit()
}

// compose writes the message of RFC 5322 with CRLF line ends.
func (m *Mail) compose(message letter) []byte {
	var b bytes.Buffer
	field := func(name, value string) { fmt.Fprintf(&b, "%s: %s\r\n", name, value) }
	field("From", (&mail.Address{Name: m.name, Address: m.Address()}).String())
	field("To", "<"+message.to+">")
	field("Subject", mime.QEncoding.Encode("utf-8", message.subject))
	field("Date", time.Now().Format(time.RFC1123Z))
	field("Message-ID", "<"+message.id+">")

	if message.inReplyTo != "" {
		field("In-Reply-To", "<"+message.inReplyTo+">")
		field("References", strings.TrimSpace(message.references+" <"+message.inReplyTo+">"))
	}
	if message.inReplyTo != "" && !message.byPerson {
		field("Auto-Submitted", "auto-replied")
	}
	if message.language != "" {
		field("Content-Language", message.language)
	}

	field("MIME-Version", "1.0")
	text := func(w io.Writer) {
		body := quotedprintable.NewWriter(w)
		_, _ = body.Write([]byte(message.text + "\n")) // a bytes.Buffer takes everything
		_ = body.Close()
	}
	if len(message.files) == 0 {
		field("Content-Type", plainText)
		field("Content-Transfer-Encoding", "quoted-printable")
		b.WriteString("\r\n")
		text(&b)
		return b.Bytes()
	}

	parts := multipart.NewWriter(&b)
	field("Content-Type", "multipart/mixed; boundary="+parts.Boundary())
	b.WriteString("\r\n")
	body, _ := parts.CreatePart(textproto.MIMEHeader{"Content-Type": {plainText}, "Content-Transfer-Encoding": {"quoted-printable"}})
	text(body)
	for _, file := range message.files {
		body, _ := parts.CreatePart(textproto.MIMEHeader{
			"Content-Type": {file.MIME}, "Content-Transfer-Encoding": {"base64"},
			"Content-Disposition": {mime.FormatMediaType("attachment", map[string]string{"filename": file.Name})},
		})
		for rest := base64.StdEncoding.EncodeToString(file.Content); rest != ""; {
			line := rest[:min(len(rest), 76)]
			rest = rest[len(line):]
			fmt.Fprintf(body, "%s\r\n", line)
		}
	}
	_ = parts.Close()
	return b.Bytes()
}

const plainText = "text/plain; charset=utf-8"

func (m *Mail) sign(message []byte) ([]byte, error) { return m.signUntil(message, time.Time{}) }

// signUntil makes a signature that ends; zero = it does not.
func (m *Mail) signUntil(message []byte, end time.Time) ([]byte, error) {
	var signed bytes.Buffer
	err := dkim.Sign(&signed, bytes.NewReader(message), &dkim.SignOptions{
		Expiration: end,
		Domain:     m.domain, Selector: m.selector, Signer: m.key, Hash: crypto.SHA256,
		HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
		HeaderKeys: []string{
			"From", "From", "To", "Subject", "Date", "Message-ID", "In-Reply-To", "References", "Reply-To",
			"Auto-Submitted", "MIME-Version", "Content-Type", "Content-Transfer-Encoding",
		},
	})
	if err != nil {
		return nil, fmt.Errorf("sign mail: %w", err)
	}
	return signed.Bytes(), nil
}
