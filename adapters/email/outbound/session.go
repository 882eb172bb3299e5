package outbound

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/emersion/go-smtp"

	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/internal/fault"
)

// clientSession is one open connection.
type clientSession struct {
	client *smtp.Client
	conn   net.Conn
	who    string // the server, as the operator reads it

	encrypted bool // set for sessions with a relay
	sent      int
	began     bool // the current mail's first command was answered
	ended     bool // the final dot was sent: without an answer it is unknown whether the mail arrived
	since     time.Time
}

// transact offers one mail and returns the session to the pool while it is good for further ones.
func (s *clientSession) transact(ctx context.Context, mail Mail, pool *sessionPool, most int) (Outcome, error) {
	s.began, s.ended = false, false
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	result, err := s.offer(mail)
	alive := stop()
	if s.sent++; err != nil || !alive || s.sent >= most {
		s.end(alive && !dead(err))
		return result, err
	}

	pool.put(s)
	return result, nil
}

func (s *clientSession) end(polite bool) {
	if polite {
		_ = s.conn.SetDeadline(time.Now().Add(time.Second))
		_ = s.client.Quit()
	}
	_ = s.client.Close()
}

func (s *clientSession) offer(mail Mail) (result Outcome, err error) {
	if limit, ok := s.client.MaxMessageSize(); ok && limit > 0 && len(mail.Data) > limit {
		return Outcome{}, fault.GiveUp(fmt.Sprintf("the mail has %d bytes, the smarthost or the recipient's server takes %d (5.3.4)", len(mail.Data), limit), nil)
	}

	options := &smtp.MailOptions{Size: int64(len(mail.Data)), UTF8: needsUTF8(mail.Recipients), EnvelopeID: mail.EnvelopeID}
	able, _ := s.client.Extension("SMTPUTF8")
	if options.UTF8 && !able {
		return Outcome{}, fault.GiveUp("the recipient's server does not take internationalized addresses (5.6.7)", nil)
	}

	// A recipient elsewhere may have such an address, which is then in the header (RFC 6531, section 3.4). Servers that do
	// not know them take 8-bit headers all the same, and the recipients here are not to be punished for it.
	options.UTF8 = options.UTF8 || able && headerNeedsUTF8(mail.Data)
	if err := s.client.Mail(mail.From, options); err != nil {
		return Outcome{}, err
	}

	s.began = true
	defer func() { err = exchange.WithReach(err, reachOf(err)) }()
	if result, err = s.recipients(mail.Recipients); err != nil {
		return result, err
	}

	data, err := s.client.Data()
	if err != nil {
		return result, err
	}

	if _, err := data.Write(mail.Data); err != nil {
		return result, err
	}

	s.ended = true
	answer, err := data.CloseWithResponse()
	if err != nil {
		return result, err
	}

	result.Text = answer.StatusText
	return result, nil
}

// reachOf is how far a mail came whose first command was taken: an answer is about this mail and its recipients, unless the server closes.
func reachOf(err error) exchange.Reach {
	answer, is := errors.AsType[*smtp.SMTPError](err)
	switch {
	case !is:
		return exchange.ReachSession
	case answer.Code == 421:
		return exchange.ReachNone
	}
	return exchange.ReachRecipient
}

// recipients offers all addresses. Those who are refused for good, and those who are put off while others are taken, are
// left out of this mail. The error is set when no recipient is left.
func (s *clientSession) recipients(addresses []string) (result Outcome, err error) {
	full := false // the server takes no more recipients with this mail
	for _, address := range addresses {
		if full {
			result.Later = append(result.Later, Refusal{address, &smtp.SMTPError{Code: 452, EnhancedCode: smtp.EnhancedCode{4, 5, 3}, Message: "Too many recipients"}})
			continue
		}

		err := s.client.Rcpt(message.WirePath(address), nil)
		var answer *smtp.SMTPError
		switch {
		case err == nil:
		case !errors.As(err, &answer) || answer.Code == 421:
			return Outcome{}, err
		case answer.Code/100 == 5 && !manyRecipients(answer) && !aboutLogin(answer.Code):
			result.Refused = append(result.Refused, Refusal{address, answer})
		default:
			result.Later = append(result.Later, Refusal{address, answer})
			full = manyRecipients(answer) || answer.EnhancedCode == (smtp.EnhancedCode{4, 5, 3})
		}
	}

	switch taken := len(addresses) - len(result.Refused) - len(result.Later); {
	case taken > 0:
		return result, nil
	case len(result.Later) > 0:
		return result, result.Later[len(result.Later)-1].Answer
	}

	return result, result.Refused[len(result.Refused)-1].Answer
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

// sessionPool keeps a few idle sessions for a short while. The zero value is ready.
type sessionPool struct {
	mu     sync.Mutex
	idle   []*clientSession
	timer  *time.Timer
	closed bool
}

// take returns the session that was used last, or nil.
func (p *sessionPool) take() *clientSession {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	session := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	return session
}

// put keeps a session for the next mail, or ends it when there are enough.
func (p *sessionPool) put(session *clientSession) {
	session.since = time.Now()
	p.mu.Lock()
	if p.closed || len(p.idle) >= maxIdleKept {
		p.mu.Unlock()
		session.end(true)
		return
	}

	p.idle = append(p.idle, session)
	if p.timer == nil {
		p.timer = time.AfterFunc(idleKept, p.expire)
	}

	p.mu.Unlock()
}

// expire ends sessions that were idle too long; the oldest stand first.
func (p *sessionPool) expire() {
	p.mu.Lock()
	var old []*clientSession
	for len(p.idle) > 0 && time.Since(p.idle[0].since) >= idleKept {
		old, p.idle = append(old, p.idle[0]), p.idle[1:]
	}

	p.timer = nil
	if len(p.idle) > 0 && !p.closed {
		p.timer = time.AfterFunc(idleKept, p.expire)
	}

	p.mu.Unlock()
	for _, session := range old {
		session.end(true)
	}
}

func (p *sessionPool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	if p.timer != nil {
		p.timer.Stop()
	}

	p.mu.Unlock()
	for _, session := range idle {
		session.end(true)
	}
}

// domainPools keep sessions for each domain: mail servers of many domains at once, of which few are used again.
type domainPools struct {
	mu      sync.Mutex
	domains map[string]*domainPool
	closed  bool
}

type domainPool struct {
	sessionPool
	users int
}

func newDomainPools() *domainPools { return &domainPools{domains: map[string]*domainPool{}} }

// of returns the pool of a domain; done must follow.
func (p *domainPools) of(domain string) *sessionPool {
	p.mu.Lock()
	defer p.mu.Unlock()

	one := p.domains[domain]
	if one == nil {
		p.forgetIdle()
		one = &domainPool{}
		one.closed = p.closed
		p.domains[domain] = one
	}

	one.users++
	return &one.sessionPool
}

func (p *domainPools) done(domain string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.domains[domain]; one != nil {
		one.users--
	}
}

// forgetIdle drops the pools of domains that nothing is sent to and that keep no session.
func (p *domainPools) forgetIdle() {
	for domain, one := range p.domains {
		if one.users == 0 && one.empty() {
			delete(p.domains, domain)
		}
	}
}

func (p *domainPools) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, one := range p.domains {
		one.close()
	}
}

func (p *sessionPool) empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle) == 0
}
