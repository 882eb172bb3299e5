package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/emersion/go-smtp"

	"inbox/identity"
)

// Post mails an address through the SMTP server at smtpAddr and does not wait for the answer. The peer must have been started with the
// fault of the message. An error says that the mail could not be offered; what the server says against it is in Sent.
func (m *Mail) Post(ctx context.Context, smtpAddr string, message Message) (Sent, error) {
	if err := checkFault(message.Fault, MailFaults()); err != nil {
		return Sent{}, err
	}
	to, err := identity.ParseAddress(message.To)
	if err != nil {
		return Sent{}, err
	}

	mail := letter{
		id: newID() + "@" + m.domain, to: to.Mail(), subject: message.Subject, text: message.Text, language: message.Language,
		files: message.Files, inReplyTo: message.Follows, byPerson: true,
	}
	if message.Thread != "" && message.Thread != message.Follows {
		mail.references = "<" + message.Thread + ">"
	}
	raw, err := m.finished(mail, message)
	if err != nil {
		return Sent{}, err
	}

	sent := Sent{ID: mail.id, Object: mail.id, Thread: orDefault(message.Thread, mail.id)}
	sent.arrival, sent.forget = m.waiting.expect(mail.id)
	err = m.submit(ctx, smtpAddr, mail.to, raw)
	refused, isRefusal := errors.AsType[*smtp.SMTPError](err)
	switch {
	case isRefusal:
		sent.Said = fmt.Sprintf("SMTP %d %d.%d.%d %s", refused.Code, refused.EnhancedCode[0], refused.EnhancedCode[1], refused.EnhancedCode[2], refused.Message)
	case err != nil:
		sent.Close()
		return Sent{}, fmt.Errorf("mail %s through %s: %w", mail.to, smtpAddr, err)
	default:
		sent.Taken, sent.Said = true, "SMTP 250"
	}
	return sent, nil
}

// finished is the mail as it leaves.
func (m *Mail) finished(mail letter, message Message) ([]byte, error) {
	raw := m.compose(mail)
	switch message.Fault {
	case FaultUnsigned, FaultSPFFail, FaultDMARCReject:
		return raw, nil
	case FaultDKIMBroken:
		signed, err := m.sign(raw)
		return append(signed, "P.S. This line came after the signature.\r\n"...), err
	case FaultExpired:
		return m.signUntil(raw, time.Now().Add(-longAgo))
	case FaultMalformed: // a mail without an author
		_, raw, _ = bytes.Cut(raw, []byte("\r\n"))
		return raw, nil
	case FaultOversize:
		raw = append(raw, padding(message.Bytes)...)
	}
	return m.sign(raw)
}
