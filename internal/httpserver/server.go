package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"inbox/internal/admission"
)

// Options of a server; zero values take the defaults.
type Options struct {
	Key            string         // configuration key of the address, for error messages; "http.listen"
	Listen         string         // host:port, or unix:/path; port 0 takes a free one
	Routes         []Route        // of all rooms
	Checks         []Check        // of readiness
	Flood          []Rate         // of requests from one public address; none = no limit
	WithoutHealth  bool           // leaves /healthz, /readyz and /metrics out, for a second listener
	TrustedProxies []netip.Prefix // whose X-Forwarded-For is believed
	Inside         []netip.Prefix // the operator's own networks; nil = loopback, empty = none
	MaxBodyBytes   int64          // of a request; 10 MiB
	MaxInFlight    int64          // bytes of all request bodies in memory; 256 MiB
	// Bodies counts the bytes of request bodies in memory, for a budget that other listeners take from, too; nil = one of
	// MaxInFlight bytes for this server alone.
	Bodies      *admission.Bytes
	BodyTimeout time.Duration             // to read a request body; 60 s
	Grace       time.Duration             // for requests under way when the server stops; 10 s
	Metrics     func(*http.Request) error // refuses who may not read /metrics; nil = it is not served
	TLS         *tls.Config               // nil = plain HTTP
	Logger      *slog.Logger              // nil = slog's default
	LogRequests bool                      // one line for each request, at level info

	// Hold binds a request to the credential that it shows: the context that it returns ends, with a fault of kind Unauthenticated as its
	// cause, when that opens nothing any more. Nothing is answered afterwards. nil = requests are bound to nothing.
	Hold func(r *http.Request) (ctx context.Context, release func())
}

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 120 * time.Second
	maxHeaderBytes    = 16 << 10
	deadTime          = 20 * time.Second // in which an HTTP/2 connection takes a byte or answers a ping
	quietTime         = 60 * time.Second // of an HTTP/2 connection, until it is pinged
	cutOffTime        = time.Second      // for handlers to notice that their connection is gone
	unreadPerStream   = 128 << 10        // bytes that an HTTP/2 client may send before a handler reads them
	unreadPerPeer     = 256 << 10        // of all streams of a connection
	defaultInFlight   = 256 << 20
)

func (o Options) withDefaults() Options {
	if o.Key == "" {
		o.Key = "http.listen"
	}
	if o.MaxBodyBytes == 0 {
		o.MaxBodyBytes = 10 << 20
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = defaultInFlight
	}
	if o.Inside == nil {
		o.Inside = loopback
	}
	if o.BodyTimeout == 0 {
		o.BodyTimeout = time.Minute
	}
	if o.Grace == 0 {
		o.Grace = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}

	return o
}

// Server is one listener with its routes. HTTP/1.1 and HTTP/2 are spoken, the latter also without TLS.
type Server struct {
	options  Options
	access   *access
	http     *http.Server
	listener net.Listener
	drain    func() // closes draining, once
	draining chan struct{}
	stop     func() // closes stopping, once
	stopping chan struct{}

	hosted map[string]*Server // by host
	others []*Server          // the same, each once
}

// New makes a server; it does not listen yet. Errors: a duplicate or malformed route.
func New(options Options) (*Server, error) {
	s := &Server{options: options.withDefaults(), draining: make(chan struct{}), stopping: make(chan struct{})}
	s.drain = sync.OnceFunc(func() { close(s.draining) })
	s.stop = sync.OnceFunc(func() { close(s.stopping) })
	routes := s.options.Routes
	if !s.options.WithoutHealth {
		health := &health{checks: s.options.Checks, metrics: s.options.Metrics, logger: s.options.Logger, stopping: s.draining}
		routes = append(health.routes(), routes...)
	}

	router, err := newRouter(routes)
	if err != nil {
		return nil, err
	}

	bodies := s.options.Bodies
	if bodies == nil {
		bodies = admission.NewBytes(s.options.MaxInFlight, s.options.MaxBodyBytes)
	}

	s.access = &access{
		next: newFlood(withoutPunctuation(router), s.options.Flood), logger: s.options.Logger, logsAll: s.options.LogRequests, maxBody: s.options.MaxBodyBytes, maxTime: s.options.BodyTimeout,
		bodies:   bodies,
		networks: Networks{Trusted: s.options.TrustedProxies, Inside: s.options.Inside}, draining: s.draining, stopping: s.stopping, hold: s.options.Hold,
	}

	s.http = s.newHTTP()
	return s, nil
}

func (s *Server) newHTTP() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler: s.access, Protocols: &protocols,
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		// Without it a handler waits for ever where the peer does not read its connection: deadlines of a stream count when
		// the connection takes frames.
		HTTP2: &http.HTTP2Config{
			WriteByteTimeout: deadTime, PingTimeout: deadTime, SendPingTimeout: quietTime,
			MaxReceiveBufferPerStream: unreadPerStream, MaxReceiveBufferPerConnection: unreadPerPeer,
		},
		// What strangers do wrong on the wire is nothing that an operator can mend.
		ErrorLog: slog.NewLogLogger(s.options.Logger.Handler(), slog.LevelDebug),
	}

	if s.options.TLS != nil {
		server.TLSConfig = s.options.TLS.Clone()
	}
	return server
}

// Handler returns the server's handler with all layers, for tests and for programs that embed it.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Listen takes the address. The error is one sentence that names the configuration key and what to do.
func (s *Server) Listen() error {
	listener, err := Listen(context.Background(), s.options.Listen)
	if err != nil {
		return s.explain(err)
	}
	s.take(listener)
	return nil
}

// take serves at a listener. Who connects to a socket of this machine may do so by the rights of its file, so it is a trusted proxy.
func (s *Server) take(listener net.Listener) {
	s.listener = listener
	for _, server := range append([]*Server{s}, s.others...) {
		server.access.networks.Socket = listener.Addr().Network() == "unix"
	}
}

// Use takes a listener that another program has opened, in the place of Listen.
func (s *Server) Use(listener net.Listener) { s.take(Inherit(listener)) }

func (s *Server) explain(err error) error {
	var said string
	address := s.options.Listen
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && strings.HasPrefix(address, socketPrefix):
		said = address + " is in use by another program, or is another file: stop that program, move the file or write another path"
	case errors.Is(err, syscall.EACCES) && strings.HasPrefix(address, socketPrefix), errors.Is(err, syscall.ENOENT):
		said = "no socket can be made at " + address + ": make its directory, and let this program write there"
	case errors.Is(err, syscall.EADDRINUSE):
		said = address + " is in use by another program: stop that program or write another port"
	case errors.Is(err, syscall.EACCES):
		said = "no permission to listen on " + address + ": write a port from 1024 up, or allow this program to bind low ports"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		said = "this machine has no address " + address + ": write one of its own, or 0.0.0.0 for all"
	default:
		return fmt.Errorf("%s: cannot listen on %q, want host:port: %w", s.options.Key, address, err)
	}
	return &listenError{text: s.options.Key + ": " + said, cause: err}
}

// listenError says in one sentence what the operating system said, and keeps the original for errors.Is.
type listenError struct {
	text  string
	cause error
}

func (e *listenError) Error() string { return e.text }
func (e *listenError) Unwrap() error { return e.cause }

// Addr returns the address that the server listens on, with the real port; nil before Listen.
func (s *Server) Addr() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Drain turns readiness off and lets connections end with their next answer; everything is served as before, so that a
// balancer can turn away before Run stops. It may be called again.
func (s *Server) Drain() {
	s.drain()
	for _, other := range s.others {
		other.Drain()
	}
}

// endStreams tells the streams of all hosts that the server stops.
func (s *Server) endStreams() {
	s.stop()
	for _, other := range s.others {
		other.endStreams()
	}
}

// Run serves until ctx ends, listening first where Listen was not called. Then it stops: readiness goes off, nothing
// new is accepted, streams are told (see Stopping), requests under way have Options.Grace to finish, and what is left
// is cut off. It returns nil after a stop that was asked for.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		if err := s.Listen(); err != nil {
			return err
		}
	}

	served := make(chan error, 1)
	go func() { served <- s.serve() }()

	select {
	case err := <-served:
		s.Drain()
		s.endStreams()
		return fmt.Errorf("serve %s: %w", s.options.Key, err)
	case <-ctx.Done():
	}

	s.shutDown(context.WithoutCancel(ctx))
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.options.Key, err)
	}

	return nil
}

func (s *Server) serve() error {
	if s.http.TLSConfig != nil {
		return s.http.ServeTLS(s.listener, "", "")
	}
	return s.http.Serve(s.listener)
}

func (s *Server) shutDown(ctx context.Context) {
	s.Drain()
	s.endStreams()
	ctx, cancel := context.WithTimeout(ctx, s.options.Grace)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		s.options.Logger.Warn("requests were cut off at the end of the grace time", "grace", s.options.Grace)
		_ = s.http.Close()
		s.waitForHandlers()
	}
}

// waitForHandlers keeps the store open a moment longer for handlers whose connection was cut.
func (s *Server) waitForHandlers() {
	patience := time.NewTimer(cutOffTime)
	defer patience.Stop()
	for _, server := range append([]*Server{s}, s.others...) {
		select {
		case <-server.access.idle():
		case <-patience.C:
			return
		}
	}
}
