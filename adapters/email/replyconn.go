package email

import (
	"errors"
	"net"
	"time"
)

const (
	maxAnswerBytes = 64 << 10        // all that a server may say between two of our lines
	blockTimeout   = 3 * time.Minute // one block of a mail (RFC 5321, section 4.5.3.2.5)
)

var errTalkative = errors.New("the server says more than an answer can hold")

// replyConn bounds what a server can make us read, and how long one block may take to leave. The library bounds neither: a
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
