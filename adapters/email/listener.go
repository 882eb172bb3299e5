package email

import (
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
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
	connections    *meter
	mails          *meter

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
		greetDelay: options.GreetingDelay, connections: newMeter(options.ConnectionsPerMinute, options.Now), mails: newMeter(options.MailsPerMinute, options.Now),
		peers: map[netip.Prefix]int{}, open: map[*peerConn]struct{}{}, stopping: make(chan struct{}),
	}
}

// Accept gives the next connection that is within the limits; the others hear 421 and are closed.
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
	if conn.counted && !l.connections.count(peer) {
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
