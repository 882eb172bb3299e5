package email

import (
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/admission"
)

var (
	metricConnections = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "inbox_email_connections", Help: "Open SMTP connections from peers."})
	metricConnectionsRefused = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_email_connections_refused_total", Help: "SMTP connections refused before the greeting."},
		[]string{"reason"}) // total, address, rate, early
)

// Times of a connection. A transfer gets its own deadline because the server sets one per command line and would
// otherwise count a slow body against the idle time.
const (
	idleTimeout     = 5 * time.Minute
	stallTimeout    = 3 * time.Minute // RFC 5321, section 4.5.3.2.5
	transferTimeout = 10 * time.Minute
	sessionTimeout  = 30 * time.Minute
	transferGrace   = time.Minute // before minTransferRate counts
	minTransferRate = 500         // bytes in a second, as Postfix demands
)

// limitedListener counts connections in total and per peer network before a byte is exchanged, and knows the open
// ones so that idle sessions can be ended when the server stops.
type limitedListener struct {
	net.Listener
	total, perPeer int
	exemptLoopback bool
	domain         string      // ours
	hostname       string      // likewise
	tls            *tls.Config // nil = it is not offered
	size           int64       // of the largest mail
	greetDelay     time.Duration
	connections    *rateLimiter
	mails          *rateLimiter

	mu       sync.Mutex
	peers    map[netip.Prefix]int // open connections of each network
	open     map[*peerConn]struct{}
	counted  int
	draining bool
	stopping chan struct{} // closed by drain
}

func newLimitedListener(inner net.Listener, domain string, options Options) *limitedListener {
	return &limitedListener{
		domain: domain, hostname: options.Hostname, tls: options.TLSConfig, size: options.MaxMessageBytes,
		Listener: inner, total: options.MaxConnections, perPeer: options.MaxConnectionsPerIP, exemptLoopback: options.AllowPrivate,
		greetDelay: options.GreetingDelay, connections: newRateLimiter(options.ConnectionsPerMinute, options.Now), mails: newRateLimiter(options.MailsPerMinute, options.Now),
		peers: map[netip.Prefix]int{}, open: map[*peerConn]struct{}{}, stopping: make(chan struct{}),
	}
}

// Accept returns the next connection that is within the limits; the others hear 421 and are closed.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}

		conn, reason := l.admit(inner)
		if reason == "" {
			return conn, nil
		}

		metricConnectionsRefused.WithLabelValues(reason).Inc()
		refuse(inner)
	}
}

func refuse(conn net.Conn) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write([]byte("421 4.7.0 Too many connections, try again later\r\n"))
	_ = conn.Close()
}

func (l *limitedListener) admit(inner net.Conn) (*peerConn, string) {
	peer := networksOf(inner.RemoteAddr())
	conn := &peerConn{Conn: inner, listener: l, peer: peer, ends: time.Now().Add(sessionTimeout), commands: true}
	conn.counted = !l.exemptLoopback || !peer.loopback()
	if conn.counted && !l.connections.allow(peer) {
		return nil, "rate"
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	if conn.counted {
		if l.counted >= l.total {
			return nil, "total"
		}

		for i, network := range peer {
			if l.peers[network] >= allowance(l.perPeer, i) {
				return nil, "address"
			}
		}

		l.counted++
		for _, network := range peer {
			l.peers[network]++
		}
	}

	l.open[conn] = struct{}{}
	metricConnections.Inc()
	return conn, ""
}

func (l *limitedListener) release(conn *peerConn) {
	l.mu.Lock()
	defer l.mu.Unlock()

	delete(l.open, conn)
	metricConnections.Dec()
	if !conn.counted {
		return
	}

	l.counted--
	for _, network := range conn.peer {
		if l.peers[network]--; l.peers[network] <= 0 {
			delete(l.peers, network)
		}
	}
}

// drain ends sessions that are between mails; they hear 421. The others go on to the end of their mail.
func (l *limitedListener) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.draining {
		close(l.stopping)
	}
	l.draining = true
	for conn := range l.open {
		conn.endWhenIdle()
	}
}

func (l *limitedListener) isDraining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.draining
}

func (l *limitedListener) cut() {
	l.mu.Lock()
	open := make([]*peerConn, 0, len(l.open))
	for conn := range l.open {
		open = append(open, conn)
	}
	l.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close()
	}
}

// widths of the networks that are counted for one peer. A host of IPv6 owns a /64, and a sender who rents more addresses gets
// neighbours: each wider network may do three times as much.
var (
	widthsIPv4 = [...]int{32, 26, 21}
	widthsIPv6 = [...]int{64, 48, 32}
)

const maxNetworks = 20_000 // counted at once

// networks are those of one peer, the narrowest first.
type networks [len(widthsIPv4)]netip.Prefix

func networksOf(address net.Addr) (found networks) {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return found
	}

	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	widths := widthsIPv4
	if ip.Is6() {
		widths = widthsIPv6
	}

	for i, bits := range widths {
		found[i], _ = ip.Prefix(bits)
	}

	return found
}

func (n networks) loopback() bool {
	return n[0].IsValid() && n[0].Addr().IsLoopback() || n[0] == loopbackIPv6
}

var loopbackIPv6 = netip.PrefixFrom(netip.IPv6Unspecified(), 64)

// allowance is the limit of the i-th width.
func allowance(limit, i int) int {
	for range i {
		limit *= 3
	}
	return limit
}

// rateLimiter counts events of networks in windows of a minute. It is bounded: when more networks come than it keeps, the
// one that was quiet for longest is forgotten.
type rateLimiter struct {
	limit int // for the narrowest network in a minute
	now   func() time.Time

	mu     sync.Mutex
	counts *simplelru.LRU[netip.Prefix, minuteCount]
}

type minuteCount struct {
	count int // without what was credited
	all   int
	ends  time.Time
}

// maxCredit is how many times the limit a peer may do when all that it does is credited.
const maxCredit = 10

func newRateLimiter(limit int, now func() time.Time) *rateLimiter {
	counts, _ := simplelru.NewLRU[netip.Prefix, minuteCount](maxNetworks, nil)
	return &rateLimiter{limit: limit, now: now, counts: counts}
}

// allow adds an event and reports whether all networks of the peer are within their limits. What is refused counts too: a
// flood does not get through by its size.
func (m *rateLimiter) allow(peer networks) bool {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()

	within := true
	for i, network := range peer {
		entry, _ := m.counts.Get(network)
		if !now.Before(entry.ends) {
			entry = minuteCount{ends: now.Add(time.Minute)}
		}

		entry.count++
		entry.all++
		if most := allowance(m.limit, i); entry.count > most || entry.all > maxCredit*most {
			within = false
		}

		m.counts.Add(network, entry)
	}

	return within
}

// credit takes an event back: it turned out to be one that is welcome.
func (m *rateLimiter) credit(peer networks) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, network := range peer {
		if entry, known := m.counts.Peek(network); known && entry.count > 0 {
			entry.count--
			m.counts.Add(network, entry)
		}
	}
}

// memoryLimiter bounds the mail bytes that are in memory at once, so that no peer alone takes what all share: one address has an eighth
// of it, or one mail of the largest size, and its /24 or /48 three times as much.
func memoryLimiter(options Options) *admission.Bytes {
	return admission.NewBytes(options.MaxBufferedBytes, options.MaxMessageBytes+1)
}

// source is who pays for the room of a mail, and whether that is a relay of the operator's own. A relay passes on the mail of many,
// so it is no single sender: the quarter that is kept from strangers is for it.
func (e envelope) source() (source admission.Source, relay bool) {
	source = admission.SourceOf(e.client())
	return source, !source.Known()
}
