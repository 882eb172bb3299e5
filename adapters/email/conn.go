package email

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// peerConn is one connection with deadlines of our own: per command, per stall, per transfer and per session.
type peerConn struct {
	net.Conn
	listener *limitedListener
	peer     netip.Prefix
	counted  bool
	ends     time.Time
	once     sync.Once

	mu       sync.Mutex
	deadline time.Time // of the command or the transfer
	busy     bool      // between MAIL and the answer to the final dot
	ending   bool
	broken   bool // a read failed
}

// SetReadDeadline starts a command; the server calls it before it reads one. It also ends a transfer's deadline.
func (c *peerConn) SetReadDeadline(deadline time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = deadline
	return nil
}

// Read reads within the nearest of the deadlines.
func (c *peerConn) Read(p []byte) (int, error) {
	if err := c.arm(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.broken = true
	}
	return n, err
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
	for _, other := range []time.Time{c.deadline, c.ends} {
		if !other.IsZero() && other.Before(next) {
			next = other
		}
	}
	return next
}

// beginMail and endMail bracket a transaction that must not be cut by a graceful stop.
func (c *peerConn) beginMail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = true
}

func (c *peerConn) endMail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
}

func (c *peerConn) beginTransfer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = time.Now().Add(transferTimeout)
}

func (c *peerConn) endWhenIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending = true
	if !c.busy {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // wakes the pending read
	}
}

// Close closes once and gives the place back.
func (c *peerConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.listener.release(c) })
	return err
}
