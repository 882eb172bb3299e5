package email

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/emersion/go-smtp"

	"inbox/adapters/email/message"
	"inbox/internal/fault"
)

// clientSession is one open connection.
type clientSession struct {
	client *smtp.Client
	conn   net.Conn
	who    string // the server, as the operator reads it
	sent   int
	began  bool // the current mail's first command was answered
	ended  bool // the final dot was sent: without an answer nobody knows whether the mail arrived
	since  time.Time
}

// transact offers one mail and gives the session back to the pool while it is good for further ones.
func (s *clientSession) transact(ctx context.Context, mail outgoing, pool *sessionPool, most int) (outcome, error) {
	s.began, s.ended = false, false
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	result, err := s.offer(mail)
	alive := stop()
	if s.sent++; err != nil || !alive || s.sent >= most {
		s.end(alive && !dead(err))
		return result, err
	}
	pool.give(s)
	return result, nil
}

func (s *clientSession) end(polite bool) {
	if polite {
		_ = s.conn.SetDeadline(time.Now().Add(time.Second))
		_ = s.client.Quit()
	}
	_ = s.client.Close()
}

func (s *clientSession) offer(mail outgoing) (outcome, error) {
	if limit, ok := s.client.MaxMessageSize(); ok && limit > 0 && len(mail.data) > limit {
		return outcome{}, fault.GiveUp(fmt.Sprintf("the mail has %d bytes, the smarthost or the recipient's server takes %d (5.3.4)", len(mail.data), limit), nil)
	}
	options := &smtp.MailOptions{Size: int64(len(mail.data)), UTF8: needsUTF8(mail.recipients), EnvelopeID: mail.envelopeID}
	able, _ := s.client.Extension("SMTPUTF8")
	if options.UTF8 && !able {
		return outcome{}, fault.GiveUp("the recipient's server does not take internationalized addresses (5.6.7)", nil)
	}
	// Somebody elsewhere may have such an address, which then stands in the header (RFC 6531, section 3.4). Servers that do
	// not know them take 8-bit headers all the same, and the recipients here are not to be punished for it.
	options.UTF8 = options.UTF8 || able && headerNeedsUTF8(mail.data)
	if err := s.client.Mail(mail.from, options); err != nil {
		return outcome{}, err
	}
	s.began = true
	result, err := s.recipients(mail.recipients)
	if err != nil {
		return result, err
	}
	data, err := s.client.Data()
	if err != nil {
		return result, err
	}
	if _, err := data.Write(mail.data); err != nil {
		return result, err
	}
	s.ended = true
	answer, err := data.CloseWithResponse()
	if err != nil {
		return result, err
	}
	result.text = answer.StatusText
	return result, nil
}

// recipients offers all addresses. Those who are refused for good, and those who are put off while others are taken, are
// left out of this mail. The error is set when nobody is left.
func (s *clientSession) recipients(addresses []string) (result outcome, err error) {
	full := false // the server takes no more recipients with this mail
	for _, address := range addresses {
		if full {
			result.later = append(result.later, refusal{address, &smtp.SMTPError{Code: 452, EnhancedCode: smtp.EnhancedCode{4, 5, 3}, Message: "Too many recipients"}})
			continue
		}
		err := s.client.Rcpt(address, nil)
		var answer *smtp.SMTPError
		switch {
		case err == nil:
		case !errors.As(err, &answer) || answer.Code == 421:
			return outcome{}, err
		case answer.Code/100 == 5 && !manyRecipients(answer) && !aboutLogin(answer.Code):
			result.refused = append(result.refused, refusal{address, answer})
		default:
			result.later = append(result.later, refusal{address, answer})
			full = manyRecipients(answer) || answer.EnhancedCode == (smtp.EnhancedCode{4, 5, 3})
		}
	}
	switch taken := len(addresses) - len(result.refused) - len(result.later); {
	case taken > 0:
		return result, nil
	case len(result.later) > 0:
		return result, result.later[len(result.later)-1].answer
	}
	return result, result.refused[len(result.refused)-1].answer
}

func headerNeedsUTF8(mail []byte) bool {
	top, _, _ := bytes.Cut(mail, []byte("\r\n\r\n"))
	return !message.IsASCII(string(top))
}

func needsUTF8(addresses []string) bool {
	for _, address := range addresses {
		if !message.IsASCII(address) {
			return true
		}
	}
	return false
}
