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

	"github.com/emersion/go-smtp"
)

// greet opens the session on a connection: TLS from the start, or after STARTTLS when the server offers it. The
// library can do STARTTLS only without looking first and under the name localhost, so the lines before TLS are ours.
func (h *smarthost) greet(ctx context.Context, conn net.Conn) (*clientSession, error) {
	if h.implicit {
		secured := tls.Client(conn, h.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("tls with %s: %w", h.address, err)
		}
		return h.login(&replyConn{Conn: secured}, conn)
	}
	_ = conn.SetDeadline(time.Now().Add(commandTimeout))
	offered, err := startTLS(&replyConn{Conn: conn}, h.hello)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	if offered {
		secured, err := h.secure(ctx, conn)
		if err != nil {
			return nil, err
		}
		return h.login(&greetedConn{Conn: &replyConn{Conn: secured}}, conn)
	}
	if h.user != "" && !h.relaxed {
		return nil, errors.New(h.address + " offers no STARTTLS, and the password must not travel in the clear")
	}
	return h.login(&greetedConn{Conn: &replyConn{Conn: conn}}, conn)
}

func (h *smarthost) secure(ctx context.Context, conn net.Conn) (net.Conn, error) {
	config := h.tls.Clone()
	if h.relaxed && h.user == "" {
		config.InsecureSkipVerify = true // development only, and nothing secret travels
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("tls with %s: %w", h.address, err)
	}
	return secured, nil
}

// startTLS reads the greeting, says EHLO and asks for TLS when it is offered (RFC 3207).
func startTLS(conn net.Conn, hello string) (offered bool, err error) {
	text := textproto.NewConn(conn)
	if _, _, err := text.ReadResponse(220); err != nil {
		return false, err
	}
	extensions, err := sayHello(text, hello)
	if err != nil {
		return false, err
	}
	if !offersTLS(extensions) {
		return false, nothingMore(text)
	}
	return true, askTLS(text)
}

func sayHello(text *textproto.Conn, hello string) (extensions string, err error) {
	if err := text.PrintfLine("EHLO %s", hello); err != nil {
		return "", err
	}
	_, extensions, err = text.ReadResponse(250)
	return extensions, err
}

func offersTLS(extensions string) (offered bool) {
	for line := range strings.SplitSeq(extensions, "\n") {
		offered = offered || strings.EqualFold(strings.TrimSpace(line), "STARTTLS")
	}
	return offered
}

func askTLS(text *textproto.Conn) error {
	if err := text.PrintfLine("STARTTLS"); err != nil {
		return err
	}
	if _, _, err := text.ReadResponse(220); err != nil {
		return err
	}
	return nothingMore(text)
}

// nothingMore refuses what somebody on the way may have put in: it would be taken for the server's own answer later.
func nothingMore(text *textproto.Conn) error {
	if text.R.Buffered() > 0 {
		return errors.New("the server sent more than it was asked for before TLS")
	}
	return nil
}

// greetedConn gives the client library the greeting that was read already.
type greetedConn struct {
	net.Conn
	greeted bool
}

// Read gives the greeting first.
func (c *greetedConn) Read(p []byte) (int, error) {
	if !c.greeted {
		c.greeted = true
		return copy(p, "220 go on\r\n"), nil
	}
	return c.Conn.Read(p)
}

func (h *smarthost) login(conn, raw net.Conn) (*clientSession, error) {
	client, err := newClient(conn, h.hello)
	if err != nil {
		return nil, err
	}
	if h.user != "" {
		if err := client.Auth(h.mechanism(client)); err != nil {
			return nil, fmt.Errorf("%s refused the login of mail.smarthost: %w", h.address, err)
		}
	}
	return &clientSession{client: client, conn: raw, who: "smarthost"}, nil
}

func newClient(conn net.Conn, hello string) (*smtp.Client, error) {
	client := smtp.NewClient(conn)
	client.CommandTimeout, client.SubmissionTimeout = commandTimeout, finalTimeout
	return client, client.Hello(hello)
}
