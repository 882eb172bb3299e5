package email

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"inbox/adapters/email/message"
)

// handshakeTimeout is how long TLS may take to begin.
const handshakeTimeout = time.Minute

// maxNamed is how much of its name a peer hears back; lines of answers have at most 512 bytes (RFC 5321, section 4.5.3.1.5).
const maxNamed = 128

// TLS of incoming connections lies below the library and not inside of it, because what its peers say must be seen as it
// comes also there: for lone CRs (see look) and for the bare postmaster (see qualify). So the library knows no TLS, and its
// answer to STARTTLS says where TLS begins.
const (
	libraryNoTLS = "502 5.5.1 TLS not supported\r\n"
	helloAnswer  = "250-Hello "
	heloAnswer   = "250 2.0.0 Hello "
	announceTLS  = "250-STARTTLS\r\n"
	beforeTLS    = "250-ENHANCEDSTATUSCODES\r\n" // the line that it is announced behind
)

// corrected are answers of the library that have another code in RFC 5321, sections 3.8, 4.1.1.8, 4.1.1.11 and 4.2.2, or in
// RFC 3030, section 2.
var corrected = map[string]string{
	"501 5.5.2 Bad command\r\n":                              "500 5.5.2 There is no such command\r\n",
	"500 5.5.1 Too many errors. Quiting now\r\n":             "421 4.7.0 Too many errors, please come again\r\n",
	"502 5.5.1 HELP command not implemented\r\n":             "214 2.0.0 The commands are those of RFC 5321; write to postmaster for help\r\n",
	"502 5.5.1 MAIL not allowed during message transfer\r\n": "503 5.5.1 MAIL is not allowed between BDAT and BDAT LAST\r\n",
	"502 5.5.1 RCPT not allowed during message transfer\r\n": "503 5.5.1 RCPT is not allowed between BDAT and BDAT LAST\r\n",
	"502 5.5.1 DATA not allowed during message transfer\r\n": "503 5.5.1 DATA is not allowed between BDAT and BDAT LAST\r\n",
	"502 5.5.1 Please introduce yourself first.\r\n":         "503 5.5.1 Please introduce yourself first\r\n",
	"502 5.5.1 Missing MAIL FROM command.\r\n":               "503 5.5.1 Need MAIL before RCPT\r\n",
	"502 5.5.1 Missing RCPT TO command.\r\n":                 "503 5.5.1 Need MAIL and RCPT first\r\n",
	"500 5.5.4 Unknown MAIL FROM argument\r\n":               "555 5.5.4 MAIL has a parameter that is not known here\r\n",
	"500 5.5.4 Unknown RCPT TO argument\r\n":                 "555 5.5.4 RCPT has a parameter that is not known here\r\n",
	"523 5.7.10 TLS is required\r\n":                         "502 5.5.1 There is no login here; mail for this domain needs none\r\n",
}

// libraryIdle is what the library says when no command came in time, which is also how a session ends when the server stops.
const libraryIdle = "421 4.4.2 Idle timeout, "

// answerLine writes one line of the library's answers, made right where the library is not.
func (c *peerConn) answerLine(p []byte) (int, error) {
	line := string(p)
	if line == libraryNoTLS && c.listener.tls != nil {
		return len(p), c.startTLS()
	}
	if right, known := corrected[line]; known {
		line = right
	}
	switch {
	case strings.HasPrefix(line, libraryIdle) && c.isEnding():
		line = "421 4.3.2 " + c.listener.hostname + " is shutting down, please try again\r\n"
	case strings.HasPrefix(line, helloAnswer):
		c.greetedAnew()
		line = c.hello("250-", line[len(helloAnswer):])
	case strings.HasPrefix(line, heloAnswer):
		c.greetedAnew()
		line = c.hello("250 ", line[len(heloAnswer):])
	case line == beforeTLS && c.listener.tls != nil && c.secured.Load() == nil:
		line += announceTLS
	case line == fmt.Sprintf("250-SIZE %d\r\n", c.listener.size+1): // see newServer
		line = fmt.Sprintf("250-SIZE %d\r\n", c.listener.size)
	}
	_, err := c.wire().Write([]byte(line))
	return len(p), err
}

// hello answers a greeting with our name first (RFC 5321, section 4.1.1.1). The peer's may be longer than a line of an answer.
func (c *peerConn) hello(code, peer string) string {
	name, ended := strings.CutSuffix(peer, "\r\n")
	line := code + c.listener.hostname + " Hello " + message.Clip(name[:min(len(name), maxNamed)], maxNamed)
	if ended {
		line += "\r\n"
	}
	return line
}

// startTLS answers STARTTLS and begins with TLS (RFC 3207). What came behind the command in the clear may be from somebody
// on the way, and would be taken for a part of the protected session (section 6), so there must be nothing.
func (c *peerConn) startTLS() error {
	refusal := c.whyNoTLS()
	if refusal != "" {
		_, err := c.wire().Write([]byte(refusal))
		return err
	}
	if _, err := c.Conn.Write([]byte("220 2.0.0 Ready to start TLS\r\n")); err != nil {
		return err
	}
	secured := tls.Server(c.Conn, c.listener.tls)
	c.armHandshake()
	if err := secured.HandshakeContext(context.Background()); err != nil { // its time is the connection's
		_ = c.Close()
		return fmt.Errorf("tls handshake: %w", err)
	}
	_ = c.SetDeadline(time.Time{}) // each read and each write sets its own
	c.mu.Lock()
	defer c.mu.Unlock()
	c.secured.Store(secured)
	c.helloDue, c.commands, c.lastCR, c.loneCR = true, true, false, false
	return nil
}

// whyNoTLS gives the answer to a STARTTLS that comes at the wrong time; empty = it does not.
func (c *peerConn) whyNoTLS() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.secured.Load() != nil:
		return "503 5.5.1 TLS is running already\r\n"
	case c.busy:
		return "503 5.5.1 There is a mail open; end it or say RSET\r\n"
	case !c.alone || len(c.unread) > 0:
		return "503 5.5.1 Nothing may follow STARTTLS before its answer\r\n"
	}
	return ""
}

// armHandshake gives TLS its time; a server that stops does not wait for it.
func (c *peerConn) armHandshake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	deadline := time.Now().Add(handshakeTimeout)
	if c.ending {
		deadline = time.Unix(1, 0)
	}
	_ = c.SetDeadline(deadline)
}

// greetedAnew notes an EHLO.
func (c *peerConn) greetedAnew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.helloDue = false
}

// mustGreet says whether TLS began and no EHLO came since: what was said before it does not count (RFC 3207, section 4.2).
func (c *peerConn) mustGreet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.helloDue
}

// tlsVersion names the protocol; empty = plain text.
func (c *peerConn) tlsVersion() string {
	secured := c.secured.Load()
	if secured == nil {
		return ""
	}
	return tls.VersionName(secured.ConnectionState().Version)
}
