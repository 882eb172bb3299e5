package email

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

// smarthost sends everything through one configured server, over a few kept connections.
type smarthost struct {
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

// SmarthostAddress gives host:port of a smarthost URL, for the dialer that must allow it.
func SmarthostAddress(text string) (string, error) {
	host, err := parseSmarthost(text)
	if err != nil {
		return "", err
	}
	return host.address, nil
}

func parseSmarthost(text string) (*smarthost, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || (u.Scheme != "smtp" && u.Scheme != "smtps") || strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("mail.smarthost: want smtp://user:password@host:port or smtps://user:password@host:port") // the text may hold a password
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"smtp": "587", "smtps": "465"}[u.Scheme]
	}
	host := &smarthost{host: u.Hostname(), address: net.JoinHostPort(u.Hostname(), port), implicit: u.Scheme == "smtps"}
	if u.User != nil {
		host.user = u.User.Username()
		host.password, _ = u.User.Password()
	}
	return host, nil
}

func newSmarthost(options Options) (*smarthost, error) {
	host, err := parseSmarthost(options.Smarthost)
	if err != nil {
		return nil, err
	}
	if options.Dialer == nil {
		return nil, errors.New("email: option Dialer is required with a smarthost")
	}
	host.relaxed, host.hello, host.dialer = options.AllowPrivate, options.Hostname, options.Dialer
	host.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if options.SmarthostTLS != nil {
		host.tls = options.SmarthostTLS.Clone()
	}
	host.tls.ServerName = cmp.Or(host.tls.ServerName, host.host)
	return host, nil
}

// send hands over one mail. On a kept connection that turns out to be dead before the mail began it tries once more
// on a new one.
func (h *smarthost) send(ctx context.Context, mail outgoing) (outcome, error) {
	if session := h.pool.take(); session != nil {
		result, err := session.transact(ctx, mail, &h.pool, maxPerSession)
		if err == nil || session.began || ctx.Err() != nil || !dead(err) {
			return result, classed("smarthost", err)
		}
	}
	session, err := h.open(ctx)
	if err != nil {
		return outcome{}, classed("smarthost", err)
	}
	result, err := session.transact(ctx, mail, &h.pool, maxPerSession)
	return result, classed("smarthost", err)
}

func (h *smarthost) open(ctx context.Context) (*clientSession, error) {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := h.dialer.DialContext(dialing, "tcp", h.address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", h.address, err)
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

func (h *smarthost) mechanism(client *smtp.Client) sasl.Client {
	_, offered := client.Extension("AUTH")
	words := strings.Fields(strings.ToUpper(offered))
	if slices.Contains(words, "LOGIN") && !slices.Contains(words, "PLAIN") {
		return sasl.NewLoginClient(h.user, h.password)
	}
	return sasl.NewPlainClient("", h.user, h.password)
}

func (h *smarthost) close() { h.pool.close() }
