package email

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
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

// look finds lone CRs on the wire: at the begin of a line the library swallows a dot and the CR behind it, so that the
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

// nextMail counts a transaction and says whether there were too many on this connection: of mails without a proof, or of
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

// Close gives the place back, once, and closes: a peer that sees the end may come again at once.
func (c *peerConn) Close() error {
	c.once.Do(func() { c.listener.release(c) })
	return c.wire().Close()
}
