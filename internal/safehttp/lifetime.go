package safehttp

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Lifetime is what the answers to one lookup said about how long they hold. The resolver of the standard library keeps it
// to itself, so it is read where the answers come in.
type Lifetime struct {
	mu                 sync.Mutex
	found, notFound    time.Duration
	isFound, isMissing bool // one of the answers had records, or said for how long there are none
	unknown            bool // the name itself does not exist (RFC 8020)
	answered           bool
}

type lifetimeKey struct{}

// WithLifetime makes the lookups under ctx write down how long their answers hold. Lookups of other resolvers, of the hosts
// file, and those that are shared with an earlier one write nothing.
func WithLifetime(ctx context.Context) (context.Context, *Lifetime) {
	life := &Lifetime{}
	return context.WithValue(ctx, lifetimeKey{}, life), life
}

// Found returns the shortest time to live of the records; ok is false when none was seen.
func (l *Lifetime) Found() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.found, l.isFound
}

// NotFound returns how long an answer without records holds (RFC 2308, section 5); ok is false when it did not say so.
func (l *Lifetime) NotFound() (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.notFound, l.isMissing
}

// NoSuchName reports whether the name does not exist at all, not even without records of the type; ok is false when no answer
// was seen.
func (l *Lifetime) NoSuchName() (missing, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unknown, l.answered
}

// read takes what one answer says. What is no answer, or says that the server is in trouble, says nothing.
func (l *Lifetime) read(packet []byte) {
	var answer dns.Msg
	if answer.Unpack(packet) != nil || !answer.Response || answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNameError {
		return
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered, l.unknown = true, answer.Rcode == dns.RcodeNameError

	for _, record := range answer.Answer {
		l.found, l.isFound = shorter(l.found, l.isFound, record.Header().Ttl), true
	}

	for _, record := range answer.Ns {
		if start, is := record.(*dns.SOA); is && len(answer.Answer) == 0 {
			l.notFound, l.isMissing = shorter(l.notFound, l.isMissing, min(start.Hdr.Ttl, start.Minttl)), true
		}
	}
}

func shorter(known time.Duration, isKnown bool, seconds uint32) time.Duration {
	if life := time.Duration(seconds) * time.Second; !isKnown || life < known {
		return life
	}
	return known
}

// watch lets a lifetime see the answers of a connection to a name server.
func watch(ctx context.Context, conn net.Conn) net.Conn {
	life, watched := ctx.Value(lifetimeKey{}).(*Lifetime)
	if !watched {
		return conn
	}
	if packets, is := conn.(*net.UDPConn); is {
		return &watchedPackets{packets, life}
	}
	return &watchedStream{Conn: conn, life: life}
}

// watchedPackets reads one answer at a time. It stays a net.PacketConn, by which the standard library tells UDP.
type watchedPackets struct {
	*net.UDPConn
	life *Lifetime
}

// Read reads a packet.
func (c *watchedPackets) Read(p []byte) (int, error) {
	n, err := c.UDPConn.Read(p)
	if n > 0 {
		c.life.read(p[:n])
	}
	return n, err
}

// watchedStream reads answers that have their length in front (RFC 1035, section 4.2.2).
type watchedStream struct {
	net.Conn
	life *Lifetime
	kept []byte
}

// Read reads a piece.
func (c *watchedStream) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.kept = append(c.kept, p[:n]...)

	for len(c.kept) >= 2 {
		size := 2 + int(binary.BigEndian.Uint16(c.kept))
		if len(c.kept) < size {
			break
		}
		c.life.read(c.kept[2:size])
		c.kept = c.kept[size:]
	}
	return n, err
}
