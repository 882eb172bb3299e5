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
// server that repeats "250-" for ever would fill the memory. It also writes a blank after a reply code that stands alone, as RFC 5321, section 4.2,
// permits: net/textproto, with which the library reads, refuses such a line (TestRepliesOfTheCodeAlone).
type replyConn struct {
	net.Conn
	read   int
	digits int    // of a code at the start of the current line, 0 to 3; notCode = the line has something else
	rest   []byte // what did not fit into the reader's buffer: at most one byte
}

const (
	codeDigits = 3
	notCode    = -1
)

// Read refuses the byte after the last allowed one.
func (c *replyConn) Read(p []byte) (int, error) {
	if len(c.rest) > 0 && len(p) > 0 {
		n := copy(p, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	if c.read >= maxAnswerBytes {
		return 0, errTalkative
	}

	room := max(len(p)-1, 0) / (codeDigits + 2) * (codeDigits + 1) // four bytes become five at most
	n, err := c.Conn.Read(p[:min(len(p), max(room, 1), maxAnswerBytes-c.read)])
	c.read += n
	return c.complete(p, n), err
}

// complete adds the blanks that the n bytes in p lack and returns how many bytes are in p then.
func (c *replyConn) complete(p []byte, n int) int {
	var completed []byte
	from := 0
	for i, b := range p[:n] {
		if c.digits == codeDigits && (b == '\r' || b == '\n') {
			completed = append(append(completed, p[from:i]...), ' ')
			from = i
		}
		switch {
		case b == '\n':
			c.digits = 0
		case c.digits != notCode && c.digits < codeDigits && b >= '0' && b <= '9':
			c.digits++
		default:
			c.digits = notCode
		}
	}
	if completed == nil {
		return n
	}

	completed = append(completed, p[from:n]...)
	n = copy(p, completed)
	c.rest = completed[n:]
	return n
}

// Write begins a new answer.
func (c *replyConn) Write(p []byte) (int, error) {
	c.read = 0
	_ = c.SetWriteDeadline(time.Now().Add(blockTimeout))
	return c.Conn.Write(p)
}
