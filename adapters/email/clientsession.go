package email

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/emersion/go-smtp"

	"inbox/internal/fault"
)

// clientSession is one open connection.
type clientSession struct {
	client *smtp.Client
	conn   net.Conn
	sent   int
	began  bool // the current mail's first command was answered
	since  time.Time
}

func (h *smarthost) transact(ctx context.Context, session *clientSession, mail outgoing) (string, error) {
	session.began = false
	stop := context.AfterFunc(ctx, func() { _ = session.conn.Close() })
	text, err := session.transact(mail)
	alive := stop()
	if session.sent++; err != nil || !alive || session.sent >= maxPerSession {
		session.end(err == nil && alive)
		return text, err
	}
	h.pool.give(session)
	return text, nil
}

func (s *clientSession) end(polite bool) {
	if polite {
		_ = s.conn.SetDeadline(time.Now().Add(time.Second))
		_ = s.client.Quit()
	}
	_ = s.client.Close()
}

func (s *clientSession) transact(mail outgoing) (string, error) {
	if limit, ok := s.client.MaxMessageSize(); ok && limit > 0 && len(mail.data) > limit {
		return "", fault.GiveUp(fmt.Sprintf("the mail has %d bytes, the smarthost takes %d", len(mail.data), limit), nil)
	}
	if err := s.client.Mail(mail.from, &smtp.MailOptions{Size: int64(len(mail.data)), UTF8: needsUTF8(mail.recipients)}); err != nil {
		return "", err
	}
	s.began = true
	refused, err := s.recipients(mail.recipients)
	if err != nil {
		return "", err
	}
	data, err := s.client.Data()
	if err != nil {
		return "", err
	}
	if _, err := data.Write(mail.data); err != nil {
		return "", err
	}
	answer, err := data.CloseWithResponse()
	if err != nil {
		return "", err
	}
	text := answer.StatusText
	if len(refused) > 0 {
		text += "; refused: " + strings.Join(refused, "; ")
	}
	return text, nil
}

// recipients offers all addresses. Final refusals leave their address out; a temporary one puts off the whole mail
// before a byte of it was sent, so that the repeat doubles nothing.
func (s *clientSession) recipients(addresses []string) (refused []string, err error) {
	var last error
	for _, address := range addresses {
		err := s.client.Rcpt(address, nil)
		var answer *smtp.SMTPError
		switch {
		case err == nil:
		case errors.As(err, &answer) && answer.Code/100 == 5 && answer.Code != 552:
			refused, last = append(refused, address+" ("+clip(answer.Message, 100)+")"), err
		default:
			return nil, err
		}
	}
	if len(refused) == len(addresses) {
		return nil, last
	}
	return refused, nil
}

func needsUTF8(addresses []string) bool {
	for _, address := range addresses {
		if !isASCII(address) {
			return true
		}
	}
	return false
}
