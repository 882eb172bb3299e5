package outbound

import (
	"errors"
	"net"
	"net/textproto"
	"strings"
	"time"

	"github.com/emersion/go-smtp"
)

// startTLS reads the greeting, sends EHLO and asks for TLS when it is offered (RFC 3207).
func startTLS(conn net.Conn, hello string) (offered bool, err error) {
	text := textproto.NewConn(conn)
	if _, _, err := text.ReadResponse(220); err != nil {
		return false, err
	}

	extensions, err := sendHello(text, hello)
	if err != nil {
		return false, err
	}

	if !offersTLS(extensions) {
		return false, nothingMore(text)
	}

	return true, askTLS(text)
}

func sendHello(text *textproto.Conn, hello string) (extensions string, err error) {
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

// nothingMore refuses what an attacker on the way may have put in (TestEarlyBytesBeforeTLSAreRefused): it would be taken for the server's own answer later.
func nothingMore(text *textproto.Conn) error {
	if text.R.Buffered() > 0 {
		return errors.New("the server sent more than it was asked for before TLS")
	}
	return nil
}

// greetedConn repeats to the client library the greeting that was read already.
type greetedConn struct {
	net.Conn
	greeted bool
}

// Read returns the greeting first.
func (c *greetedConn) Read(p []byte) (int, error) {
	if !c.greeted {
		c.greeted = true
		return copy(p, "220 go on\r\n"), nil
	}
	return c.Conn.Read(p)
}

func newClient(conn net.Conn, hello string) (*smtp.Client, error) {
	client := smtp.NewClient(conn)
	client.CommandTimeout, client.SubmissionTimeout = commandTimeout, finalTimeout
	return client, client.Hello(hello)
}

const (
	maxAnswerBytes = 64 << 10        // all that a server may say between two of our lines
	blockTimeout   = 3 * time.Minute // one block of a mail (RFC 5321, section 4.5.3.2.5)
)

var errTalkative = errors.New("the server says more than an answer can hold")

// replyConn bounds what a server can make us read, and how long one block may take to leave. The library bounds neither (TestHostileServers): a
// server that repeats "250-" for ever would fill the memory.
type replyConn struct {
	net.Conn
	read int
}

// Read refuses the byte after the last allowed one.
func (c *replyConn) Read(p []byte) (int, error) {
	if c.read >= maxAnswerBytes {
		return 0, errTalkative
	}
	n, err := c.Conn.Read(p[:min(len(p), maxAnswerBytes-c.read)])
	c.read += n
	return n, err
}

// Write begins a new answer.
func (c *replyConn) Write(p []byte) (int, error) {
	c.read = 0
	_ = c.SetWriteDeadline(time.Now().Add(blockTimeout))
	return c.Conn.Write(p)
}
