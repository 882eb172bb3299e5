package outbound

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// Times of one outgoing session (RFC 5321, section 4.5.3.2).
const (
	dialTimeout    = 30 * time.Second
	commandTimeout = 5 * time.Minute
	finalTimeout   = 10 * time.Minute
	maxIdleKept    = 4
	idleKept       = 20 * time.Second
	maxPerSession  = 50
)

// Smarthost sends everything through one configured server, over a few kept connections.
type Smarthost struct {
	address  string // host:port
	host     string
	user     string
	password string
	implicit bool // smtps
	relaxed  bool // AllowPrivate: a login without TLS and unchecked certificates without a login are allowed
	hello    string
	dialer   Dialer
	tls      *tls.Config
	pool     sessionPool
}

// SmarthostAddress returns host:port of a smarthost URL, for the dialer that must allow it.
func SmarthostAddress(text string) (string, error) {
	host, err := parseSmarthost(text)
	if err != nil {
		return "", err
	}
	return host.address, nil
}

func parseSmarthost(text string) (*Smarthost, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || (u.Scheme != "smtp" && u.Scheme != "smtps") || strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("mail.smarthost: want smtp://user:password@host:port or smtps://user:password@host:port") // the text may hold a password
	}

	port := u.Port()
	if port == "" {
		port = map[string]string{"smtp": "587", "smtps": "465"}[u.Scheme]
	}

	host := &Smarthost{host: u.Hostname(), address: net.JoinHostPort(u.Hostname(), port), implicit: u.Scheme == "smtps"}
	if u.User != nil {
		host.user = u.User.Username()
		host.password, _ = u.User.Password()
	}

	return host, nil
}

// SmarthostOptions are what a smarthost is reached with. All but tls are required.
type SmarthostOptions struct {
	URL      string // smtp://user:pass@host:port or smtps://…
	Hostname string // in EHLO
	Dialer   Dialer
	TLS      *tls.Config // roots for its certificate; nil = the system's
	Relaxed  bool        // development: a login without TLS and unchecked certificates without a login are allowed
}

// Steps of a session with a relay.
const (
	StepConnect  = "connect"  // connection, greeting, EHLO
	StepSTARTTLS = "starttls" // not offered, or refused
	StepTLS      = "tls"      // handshake and certificate
	StepLogin    = "login"
	StepSender   = "sender"
)

// StepError says at which step a session with a relay failed.
type StepError struct {
	Step  string
	cause error
}

func (e *StepError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.cause }

// NewSmarthost returns a transport to one configured server.
func NewSmarthost(o SmarthostOptions) (*Smarthost, error) {
	host, err := parseSmarthost(o.URL)
	if err != nil {
		return nil, err
	}

	if o.Dialer == nil {
		return nil, errors.New("email: option Dialer is required with a smarthost")
	}

	host.relaxed, host.hello, host.dialer = o.Relaxed, o.Hostname, o.Dialer
	host.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TLS != nil {
		host.tls = o.TLS.Clone()
	}

	host.tls.ServerName = cmp.Or(host.tls.ServerName, host.host)
	return host, nil
}

// Send hands over one mail. On a kept connection that turns out to be dead before the mail began it tries once more
// on a new one.
func (h *Smarthost) Send(ctx context.Context, mail Mail) (Outcome, error) {
	if session := h.pool.take(); session != nil {
		result, err := session.transact(ctx, mail, &h.pool, maxPerSession)
		if err == nil || session.began || ctx.Err() != nil || !dead(err) {
			return result, classed("smarthost", err)
		}
	}

	session, err := h.open(ctx)
	if err != nil {
		return Outcome{}, classed("smarthost", err)
	}

	result, err := session.transact(ctx, mail, &h.pool, maxPerSession)
	return result, classed("smarthost", err)
}

// Try opens a session as for a mail, offers a sender and takes it back, so that no mail is sent. It reports whether the session was encrypted. Its
// errors are, or wrap, a *StepError.
func (h *Smarthost) Try(ctx context.Context, from string) (encrypted bool, err error) {
	session, err := h.open(ctx)
	if err != nil {
		return false, err
	}

	stop := context.AfterFunc(ctx, func() { _ = session.conn.Close() })
	defer stop()
	err = session.client.Mail(from, &smtp.MailOptions{UTF8: needsUTF8([]string{from})})
	if err == nil {
		err = session.client.Reset()
	}
	session.end(!dead(err))
	answer, answered := errors.AsType[*smtp.SMTPError](err)
	switch {
	case err == nil:
		return session.encrypted, nil
	case answered && aboutLogin(answer.Code):
		return session.encrypted, &StepError{StepLogin, fmt.Errorf("%s wants a login: %w", h.address, err)}
	case answered:
		return session.encrypted, &StepError{StepSender, fmt.Errorf("%s refused the sender %s: %w", h.address, from, err)}
	}
	return session.encrypted, &StepError{StepConnect, err}
}

func (h *Smarthost) open(ctx context.Context) (*clientSession, error) {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := h.dialer.DialContext(dialing, "tcp", h.address)
	if err != nil {
		return nil, &StepError{StepConnect, fmt.Errorf("connect to %s: %w", h.address, err)}
	}

	// The client knows no context: closing the connection is what ends it.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	session, err := h.greet(dialing, conn)
	if err != nil {
		_ = conn.Close()
		return nil, &setupError{err}
	}

	return session, nil
}

func (h *Smarthost) mechanism(client *smtp.Client) sasl.Client {
	_, offered := client.Extension("AUTH")
	words := strings.Fields(strings.ToUpper(offered))
	if slices.Contains(words, "LOGIN") && !slices.Contains(words, "PLAIN") {
		return sasl.NewLoginClient(h.user, h.password)
	}
	return sasl.NewPlainClient("", h.user, h.password)
}

// Close ends the sessions that are kept.
func (h *Smarthost) Close() { h.pool.close() }

// greet opens the session on a connection: TLS from the start, or after STARTTLS when the server offers it. The
// library can do STARTTLS only without looking first and under the name localhost, so the lines before TLS are ours
// (TestSmarthostTLSAndLogin, "password in the clear").
func (h *Smarthost) greet(ctx context.Context, conn net.Conn) (*clientSession, error) {
	if h.implicit {
		secured := tls.Client(conn, h.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, &StepError{StepTLS, fmt.Errorf("tls with %s: %w", h.address, err)}
		}
		return h.login(&replyConn{Conn: secured}, conn, true)
	}

	_ = conn.SetDeadline(time.Now().Add(commandTimeout))
	offered, err := startTLS(&replyConn{Conn: conn}, h.hello)
	if err != nil {
		return nil, &StepError{map[bool]string{false: StepConnect, true: StepSTARTTLS}[offered], err}
	}

	_ = conn.SetDeadline(time.Time{})
	if offered {
		secured, err := h.secure(ctx, conn)
		if err != nil {
			return nil, err
		}
		return h.login(&greetedConn{Conn: &replyConn{Conn: secured}}, conn, true)
	}

	if h.user != "" && !h.relaxed {
		return nil, &StepError{StepSTARTTLS, errors.New(h.address + " offers no STARTTLS, and the password must not travel in the clear")}
	}

	return h.login(&greetedConn{Conn: &replyConn{Conn: conn}}, conn, false)
}

func (h *Smarthost) secure(ctx context.Context, conn net.Conn) (net.Conn, error) {
	config := h.tls.Clone()
	if h.relaxed && h.user == "" {
		config.InsecureSkipVerify = true // development only, and nothing secret travels
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, &StepError{StepTLS, fmt.Errorf("tls with %s: %w", h.address, err)}
	}
	return secured, nil
}

func (h *Smarthost) login(conn, raw net.Conn, encrypted bool) (*clientSession, error) {
	client, err := newClient(conn, h.hello)
	if err != nil {
		return nil, &StepError{StepConnect, err}
	}

	if h.user != "" {
		if err := client.Auth(h.mechanism(client)); err != nil {
			return nil, &StepError{StepLogin, fmt.Errorf("%s refused the login of mail.smarthost: %w", h.address, err)}
		}
	}

	return &clientSession{client: client, conn: raw, who: "smarthost", encrypted: encrypted}, nil
}
