package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-message/mail"
	"github.com/emersion/go-msgauth/dkim"
	"github.com/emersion/go-smtp"
)

const maxMailBytes = 25 << 20

func (m *Mail) serve() {
	m.server = smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &sinkSession{mail: m}, nil }))
	m.server.Domain = "mail." + m.domain
	m.server.MaxMessageBytes = maxMailBytes
	m.server.ReadTimeout, m.server.WriteTimeout = time.Minute, time.Minute
	m.work.Go(func() { _ = m.server.Serve(m.sink) }) // ends with Close
}

// sinkSession takes any sender and recipient; what counts is the message.
type sinkSession struct{ mail *Mail }

func (s *sinkSession) Mail(string, *smtp.MailOptions) error { return nil }
func (s *sinkSession) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (s *sinkSession) Reset()                               {}
func (s *sinkSession) Logout() error                        { return nil }

// Data refuses what does not verify with the code that large providers use (RFC 7372, section 3.1).
func (s *sinkSession) Data(body io.Reader) error {
	raw, err := io.ReadAll(body)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(s.mail.life, requestTimeout)
	defer cancel()

	if err := s.mail.receive(ctx, raw); err != nil {
		s.mail.waiting.refuse(err)
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 7, 20}, Message: err.Error()}
	}
	return nil
}

// received is a mail as read.
type received struct {
	from, to, cc, inReplyTo, references []string
	subject, id, text                   string
	autoSubmitted                       string
}

func (m *Mail) receive(ctx context.Context, raw []byte) error {
	arrived, err := readMail(raw)
	if err != nil {
		return err
	}
	if len(arrived.from) != 1 {
		return fmt.Errorf("want one author, got %d", len(arrived.from))
	}

	proof, err := m.verify(ctx, raw, arrived.from[0])
	if err != nil {
		return err
	}
	if len(arrived.inReplyTo) == 1 && m.waiting.deliver(arrived.inReplyTo[0], m.judge(arrived, proof)) {
		return nil
	}

	m.maybeReply(arrived)
	return nil
}

// verify finds a DKIM signature that holds and whose domain is the one in From, as strict DMARC alignment asks.
func (m *Mail) verify(ctx context.Context, raw []byte, from string) (string, error) {
	verifications, err := dkim.VerifyWithOptions(bytes.NewReader(raw), &dkim.VerifyOptions{
		LookupTXT:        func(name string) ([]string, error) { return m.lookup.LookupTXT(ctx, name) },
		MaxVerifications: 5,
	})
	if err != nil && !errors.Is(err, dkim.ErrTooManySignatures) {
		return "", fmt.Errorf("read DKIM signatures: %w", err)
	}

	reason := errors.New("the mail has no DKIM signature")
	for _, one := range verifications {
		aligned := strings.EqualFold(one.Domain, from[strings.LastIndexByte(from, '@')+1:])
		switch {
		case one.Err != nil:
			reason = fmt.Errorf("the DKIM signature of %s fails: %w", one.Domain, one.Err)
		case !aligned:
			reason = fmt.Errorf("the DKIM signature is that of %s, the author is %s", one.Domain, from)
		default:
			return "DKIM signature of " + one.Domain + " verifies with the key in DNS", nil
		}
	}

	return "", reason
}

// judge turns an answer to one of our mails into the answer or into what is wrong with it.
func (m *Mail) judge(arrived received, proof string) answer {
	switch {
	case !slices.Contains(arrived.references, arrived.inReplyTo[0]):
		return answer{err: fmt.Errorf("the answer has no reference to <%s>", arrived.inReplyTo[0])}
	case !slices.ContainsFunc(arrived.to, func(to string) bool { return strings.EqualFold(to, m.Address()) }):
		return answer{err: fmt.Errorf("the answer is addressed to %q", arrived.to)}
	case !strings.HasPrefix(strings.ToLower(arrived.subject), "re: "):
		return answer{err: fmt.Errorf("the subject %q is not that of an answer", arrived.subject)}
	case !strings.HasPrefix(strings.ToLower(arrived.autoSubmitted), "auto-"):
		return answer{err: errors.New("the answer does not say Auto-Submitted: two robots could answer each other forever")}
	case arrived.id == "" || arrived.text == "":
		return answer{err: errors.New("the answer has no Message-ID or no text")}
	}
	return answer{id: arrived.id, from: arrived.from[0], others: m.others(arrived), text: arrived.text, evidence: []string{
		proof,
		"author " + arrived.from[0] + " is of that domain",
		"In-Reply-To and References name our mail",
		"Auto-Submitted: " + arrived.autoSubmitted,
	}}
}

// others returns to whom else the mail went.
func (m *Mail) others(arrived received) string {
	addressed := slices.DeleteFunc(slices.Concat(arrived.to, arrived.cc), func(one string) bool {
		return strings.EqualFold(one, m.Address())
	})
	return strings.Join(addressed, ", ")
}

func (m *Mail) maybeReply(arrived received) {
	if m.reply == nil || arrived.autoSubmitted != "" {
		return
	}

	message := letter{
		id: newID() + "@" + m.domain, to: arrived.from[0], subject: "Re: " + arrived.subject,
		text: m.reply(arrived.text), inReplyTo: arrived.id,
	}

	m.work.Go(func() {
		if err := m.send(m.life, m.replyVia, message); err != nil {
			m.waiting.refuse(err)
		}
	})
}

// readMail returns the fields that matter and the first text part.
func readMail(raw []byte) (received, error) {
	reader, err := mail.CreateReader(bytes.NewReader(raw))
	if err != nil {
		return received{}, fmt.Errorf("read mail: %w", err)
	}
	defer reader.Close() //nolint:errcheck // only read from

	var arrived received
	header := reader.Header
	arrived.from, arrived.to, arrived.cc = addresses(header, "From"), addresses(header, "To"), addresses(header, "Cc")
	arrived.inReplyTo, _ = header.MsgIDList("In-Reply-To")
	arrived.references, _ = header.MsgIDList("References")
	arrived.subject, _ = header.Subject()
	arrived.id, _ = header.MessageID()
	arrived.autoSubmitted = header.Get("Auto-Submitted")

	for {
		part, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return arrived, nil
		}
		if err != nil {
			return received{}, fmt.Errorf("read mail part: %w", err)
		}

		inline, ok := part.Header.(*mail.InlineHeader)
		if !ok || arrived.text != "" {
			continue
		}

		if kind, _, _ := inline.ContentType(); kind == "text/plain" {
			content, err := io.ReadAll(part.Body)
			if err != nil {
				return received{}, fmt.Errorf("read mail text: %w", err)
			}
			arrived.text = strings.TrimSpace(strings.ReplaceAll(string(content), "\r\n", "\n"))
		}
	}
}

func addresses(header mail.Header, field string) []string {
	list, err := header.AddressList(field)
	if err != nil {
		return nil
	}
	found := make([]string, len(list))
	for i, address := range list {
		found[i] = address.Address
	}
	return found
}
