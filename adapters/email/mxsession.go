package email

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"strings"
	"time"
)

// tlsTrouble says that a server could not be spoken to under TLS, which it had offered.
type tlsTrouble struct{ cause error }

func (e *tlsTrouble) Error() string { return "TLS: " + e.cause.Error() }
func (e *tlsTrouble) Unwrap() error { return e.cause }

// loopError says that we reached ourselves.
type loopError struct{ who string }

func (e *loopError) Error() string { return e.who + " is this server itself (5.4.6)" }

// open opens a session with one server. TLS is used where it is offered, whatever the certificate; when it fails, the
// mail goes in the clear, unless the domain's policy or the server's TLSA records demand TLS (RFC 7435, RFC 8461, RFC 7672).
func (m *mxTransport) open(ctx context.Context, target mxTarget, policy stsPolicy) (*clientSession, error) {
	session, err := m.connect(ctx, target, policy, true)
	var trouble *tlsTrouble
	if errors.As(err, &trouble) && !policy.demandsTLS() && ctx.Err() == nil {
		metricPlain.Inc()
		session, err = m.connect(ctx, target, policy, false)
	}
	return session, err
}

func (m *mxTransport) connect(ctx context.Context, target mxTarget, policy stsPolicy, secure bool) (*clientSession, error) {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := m.dialer.DialContext(dialing, "tcp", target.address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", target, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	session, err := m.greet(ctx, conn, target, policy, secure)
	if err != nil {
		_ = conn.Close()
		return nil, &setupError{fmt.Errorf("%s: %w", target, err)}
	}
	return session, nil
}

// greet reads the greeting, says EHLO and goes over to TLS.
func (m *mxTransport) greet(ctx context.Context, conn net.Conn, target mxTarget, policy stsPolicy, secure bool) (*clientSession, error) {
	_ = conn.SetDeadline(time.Now().Add(commandTimeout))
	text := textproto.NewConn(&replyConn{Conn: conn})
	_, greeting, err := text.ReadResponse(220)
	if err != nil {
		return nil, err
	}
	if name, _, _ := strings.Cut(greeting, " "); m.isOurs(strings.TrimSpace(name)) {
		return nil, &loopError{target.String()}
	}
	extensions, err := m.extensions(text)
	if err != nil {
		return nil, err
	}
	over := conn
	how := "without TLS"
	switch offered := offersTLS(extensions); {
	case secure && offered:
		if over, how, err = m.secure(ctx, conn, text, target, policy); err != nil {
			return nil, &tlsTrouble{err}
		}
	case policy.dane != nil:
		return nil, &tlsTrouble{errors.New("the server offers no STARTTLS, which its TLSA records demand (4.7.10)")}
	case policy.enforced():
		return nil, &tlsTrouble{errors.New("the server offers no STARTTLS, which the MTA-STS policy of its domain demands (4.7.10)")}
	case policy.mode == stsTesting && !offered:
		m.tested(target, "no STARTTLS")
	}
	if err := nothingMore(text); err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	client, err := newClient(&greetedConn{Conn: &replyConn{Conn: over}}, m.hello)
	if err != nil {
		return nil, err
	}
	return &clientSession{client: client, conn: conn, who: target.String() + " " + how}, nil
}

// extensions asks for them; a server that knows no EHLO has none (RFC 5321, section 3.2).
func (m *mxTransport) extensions(text *textproto.Conn) (string, error) {
	extensions, err := sayHello(text, m.hello)
	var answer *textproto.Error
	if errors.As(err, &answer) && (answer.Code == 500 || answer.Code == 502) {
		return "", nil
	}
	return extensions, err
}

func (m *mxTransport) secure(ctx context.Context, conn net.Conn, text *textproto.Conn, target mxTarget, policy stsPolicy) (net.Conn, string, error) {
	if err := askTLS(text); err != nil {
		return nil, "", err
	}
	config := m.tls.Clone()
	config.ServerName = target.host
	if policy.dane != nil {
		config.ServerName = policy.dane.names[0]
	}
	if !policy.enforced() {
		config.InsecureSkipVerify = true // opportunistic: against listeners on the way any certificate is better than none
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		if policy.enforced() {
			err = fmt.Errorf("the MTA-STS policy of its domain demands TLS with a valid certificate (4.7.10): %w", err)
		}
		return nil, "", err
	}
	state := secured.ConnectionState()
	if policy.dane != nil {
		if err := policy.dane.check(state); err != nil {
			return nil, "", err
		}
		return secured, tls.VersionName(state.Version) + " (DANE)", nil
	}
	if policy.mode == stsTesting {
		if err := m.checkCertificate(state, target.host); err != nil {
			m.tested(target, err.Error())
		}
	}
	return secured, tls.VersionName(state.Version), nil
}
