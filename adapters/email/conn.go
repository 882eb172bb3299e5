package email

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"inbox/adapters/email/message"
)

// peerConn is one connection with deadlines of our own: per command, per stall, per transfer and per session.
type peerConn struct {
	net.Conn // below TLS
	secured  atomic.Pointer[tls.Conn]
	listener *limitedListener
	peer     networks
	counted  bool
	ends     time.Time
	once     sync.Once

	mu       sync.Mutex
	deadline time.Time // of the command or the transfer
	busy     bool      // between MAIL and the answer to the final dot
	ending   bool
	broken   bool // a read failed
	greeted  bool
	begun    time.Time // of the transfer
	taken    int64     // bytes of the transfer
	lastCR   bool      // the last byte read was a CR
	loneCR   bool      // a CR without LF came since the mail began
	refused  int       // recipients, over all greetings
	mails    int       // transactions begun
	proven   int       // of them, mails whose sender was proven
	alone    bool      // the last bytes read were one line and nothing more
	commands bool      // what is read next are commands: see qualify
	helloDue bool      // TLS began and no EHLO came since
	unread   []byte    // of what qualify made longer
}

var errEarlyTalker = errors.New("the peer spoke before the greeting")

// Write holds the greeting back for a moment: programs that send mail to whatever listens do not wait for it (RFC 5321,
// section 4.3.1). The greeting is the first thing that is written.
func (c *peerConn) Write(p []byte) (int, error) {
	if !c.greeted {
		c.greeted = true
		if c.counted && c.spokeEarly() {
			metricConnectionsRefused.WithLabelValues("early").Inc()
			_, _ = c.Conn.Write([]byte("521 5.5.1 Protocol error: wait for the greeting\r\n"))
			_ = c.Close()
			return 0, errEarlyTalker
		}
	}
	return c.answerLine(p)
}

// wire is where bytes go: TLS, or the connection itself. Deadlines are always of the connection.
func (c *peerConn) wire() net.Conn {
	if secured := c.secured.Load(); secured != nil {
		return secured
	}
	return c.Conn
}

func (c *peerConn) spokeEarly() bool {
	if c.listener.greetDelay <= 0 || c.Conn.SetReadDeadline(time.Now().Add(c.listener.greetDelay)) != nil {
		return false
	}
	n, _ := c.Conn.Read(make([]byte, 1))
	return n > 0
}

// SetReadDeadline starts a command; the server calls it before it reads one. It also ends a transfer's deadline.
func (c *peerConn) SetReadDeadline(deadline time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline, c.begun = deadline, time.Time{}
	return nil
}

// Read reads within the nearest of the deadlines.
func (c *peerConn) Read(p []byte) (int, error) {
	if len(c.unread) > 0 { // the reader of commands is the only one who reads then
		n := copy(p, c.unread)
		c.unread = c.unread[n:]
		return n, nil
	}

	if err := c.arm(); err != nil {
		return 0, err
	}

	n, err := c.wire().Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()

	c.taken += int64(n)
	c.look(p[:n])
	c.broken = c.broken || err != nil
	return c.qualifyRead(p, n), err
}

// look finds lone CRs on the wire: at the start of a line the library swallows a dot and the CR behind it, so that the
// mail would not show them any more.
func (c *peerConn) look(p []byte) {
	if c.loneCR || len(p) == 0 {
		return
	}
	c.loneCR = c.lastCR && p[0] != '\n'
	ends := bytes.Count(p, []byte("\r\n"))
	if returns := bytes.Count(p, []byte("\r")); returns > ends {
		c.loneCR = c.loneCR || returns > ends+1 || p[len(p)-1] != '\r'
	}
	c.lastCR = p[len(p)-1] == '\r'
}

func (c *peerConn) sawLoneCR() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loneCR
}

func (c *peerConn) isBroken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// arm sets the deadline under the lock, so that endWhenIdle is never overwritten.
func (c *peerConn) arm() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Conn.SetReadDeadline(c.nextDeadline())
}

func (c *peerConn) nextDeadline() time.Time {
	if c.ending && !c.busy {
		return time.Unix(1, 0)
	}

	next := time.Now().Add(stallTimeout)
	if !c.busy {
		next = time.Now().Add(idleTimeout)
	}

	for _, other := range []time.Time{c.deadline, c.ends, c.rateDeadline()} {
		if !other.IsZero() && other.Before(next) {
			next = other
		}
	}

	return next
}

// rateDeadline is when the next byte of a transfer must be there at the smallest rate that is tolerated; each byte that
// comes moves it.
func (c *peerConn) rateDeadline() time.Time {
	if c.begun.IsZero() {
		return time.Time{}
	}
	return c.begun.Add(transferGrace + time.Duration(c.taken)*time.Second/minTransferRate)
}

// refuseRecipient counts a refusal over the whole connection: a new greeting does not begin again.
func (c *peerConn) refuseRecipient() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused++
	return c.refused
}

// nextMail counts a transaction and reports whether there were too many on this connection: of mails without a proof, or of
// all.
func (c *peerConn) nextMail(limit int) (tooMany bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mails++
	return c.mails-c.proven > limit || c.mails > max(limit, maxMailsPerConnection)
}

// credit notes that a mail was proven, so that it does not count against its relay.
func (c *peerConn) credit() {
	if !c.counted {
		return
	}
	c.mu.Lock()
	c.proven++
	c.mu.Unlock()
	c.listener.mails.credit(c.peer)
}

// beginMail and endMail bracket a transaction that must not be cut by a graceful stop.
func (c *peerConn) beginMail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	// What came behind MAIL in one piece was looked at already.
	c.busy, c.loneCR, c.commands = true, c.loneCR && !c.alone, c.commands || c.alone
}

func (c *peerConn) endMail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy, c.loneCR = false, false
}

func (c *peerConn) beginTransfer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.commands = false
	c.deadline, c.begun, c.taken = now.Add(transferTimeout), now, 0
}

func (c *peerConn) isEnding() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ending
}

func (c *peerConn) endWhenIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending = true
	if !c.busy {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // wakes the pending read
	}
}

// Close releases the connection from the limits, once, and closes it: a peer that sees the end may come again at once.
func (c *peerConn) Close() error {
	c.once.Do(func() { c.listener.release(c) })
	return c.wire().Close()
}

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

// notOffered is how the library refuses a parameter of an extension that was not announced, such as RET of RFC 3461. RFC 5321, section 4.1.1.11,
// has 555 for that.
const notOffered = "504 5.5.4 "

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
	case strings.HasPrefix(line, notOffered) && strings.HasSuffix(line, " is not implemented\r\n"):
		line = "555" + strings.TrimPrefix(line, "504")
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

// startTLS answers STARTTLS and begins with TLS (RFC 3207). What came behind the command in the clear may be from an attacker
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

// whyNoTLS returns the answer to a STARTTLS that comes at the wrong time; empty = it does not.
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

// armHandshake returns TLS its time; a server that stops does not wait for it.
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

// mustGreet reports whether TLS began and no EHLO came since: what was said before it does not count (RFC 3207, section 4.2).
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

// RFC 5321, section 4.5.1, wants "RCPT TO:<postmaster>" without a domain to be understood, and the library refuses it before
// any recipient is looked up. So the domain is put in as it comes, where it is certain that what is read is a command: between the
// begin of a connection, or the answer to a MAIL that came alone, and the first line that could begin a mail.

var barePostmaster = []byte("<postmaster>")

// qualify puts the domain behind the bare postmaster in complete lines of commands. more is false from the line on that
// could begin a mail.
func qualify(chunk []byte, domain string) (qualified []byte, more bool) {
	rest := chunk
	for len(rest) > 0 {
		line, after, complete := bytes.Cut(rest, []byte("\n"))
		lower := bytes.ToLower(line)
		if !complete || !beforeCommands(lower) {
			return append(qualified, rest...), false
		}

		if at := bytes.Index(lower, barePostmaster); at >= 0 && len(bytes.TrimSpace(lower[len("rcpt to:"):at])) == 0 && bytes.HasPrefix(lower, []byte("rcpt to:")) {
			end := at + len(barePostmaster) - 1
			qualified = append(append(append(qualified, line[:end]...), '@'), domain...)
			line = line[end:]
		}

		qualified = append(append(qualified, line...), '\n')
		rest = after
	}

	return qualified, true
}

// beforeCommands reports whether a line in lower case is a command behind which there are further commands.
func beforeCommands(line []byte) bool {
	verb, _, _ := bytes.Cut(bytes.TrimRight(line, "\r"), []byte(" "))
	switch string(verb) {
	case "ehlo", "helo", "mail", "rcpt", "rset", "noop", "vrfy":
		return true
	}
	return false
}

// qualifyRead changes what was read where that is a command. The caller has the lock.
func (c *peerConn) qualifyRead(p []byte, n int) int {
	c.alone = n > 0 && bytes.IndexByte(p[:n], '\n') == n-1
	if !c.commands || n == 0 {
		return n
	}

	var out []byte
	out, c.commands = qualify(p[:n], c.listener.domain)
	if len(out) == n {
		return n
	}

	n = copy(p, out)
	c.unread = out[n:]
	return n
}
