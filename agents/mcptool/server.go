package mcptool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"inbox/internal/clip"
)

const (
	refreshPause = time.Second      // between two readings of the list, however often a server announces changes
	steadyAfter  = 30 * time.Second // a connection that held so long was no failure: the pauses begin anew
)

// server keeps one MCP server connected. One goroutine owns the connection; calls only borrow it.
type server struct {
	settings Server
	options  Options
	ctx      context.Context // ends with the Source
	log      *slog.Logger
	places   chan struct{} // calls under way
	tried    chan struct{} // closed after the first attempt to connect, however it ended
	trying   sync.Once

	mutex      sync.Mutex
	connection *connection   // nil while there is none
	switched   chan struct{} // closed when connection changes
	tools      *listing      // the last one, also while there is no connection
	listed     bool          // there was a list
	failure    string        // why there is no connection, for the operator
	since      time.Time
}

func newServer(ctx context.Context, settings Server, options Options) *server {
	if settings.Timeout == 0 {
		settings.Timeout = DefaultTimeout
	}
	return &server{
		settings: settings, options: options, ctx: ctx, log: options.Log.With("mcp_server", settings.Name),
		places: make(chan struct{}, options.MaxConcurrent), tried: make(chan struct{}), switched: make(chan struct{}),
		tools: &listing{byName: map[string]remoteTool{}}, since: time.Now(),
	}
}

// run connects, serves until the connection is lost, pauses, and begins anew, until the Source is closed.
func (s *server) run() {
	ctx, failures, legacy := s.ctx, 0, false
	for {
		held, err := s.serve(ctx, legacy)
		if ctx.Err() != nil {
			return
		}

		if held == 0 {
			legacy = !legacy
		}
		if held >= steadyAfter {
			failures = 0
		}

		pause := s.pause(failures)
		failures++
		s.log.WarnContext(ctx, "no connection to MCP server", "reason", err, "again_in", pause)

		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// pause doubles with each failure; the random part keeps many servers from coming back at the same moment.
func (s *server) pause(failures int) time.Duration {
	pause := s.options.RetryMax
	if failures < 20 {
		pause = min(s.options.RetryMin<<failures, s.options.RetryMax)
	}
	return pause + time.Duration(rand.Int64N(int64(pause)/5+1))
}

// serve is one connection from its beginning to its end. It says how long the connection held, 0 if there was none.
func (s *server) serve(ctx context.Context, legacy bool) (held time.Duration, err error) {
	c, tools, err := s.establish(ctx, legacy)
	s.publish(c, tools, err)
	s.trying.Do(func() { close(s.tried) })
	if err != nil {
		connections.WithLabelValues(s.settings.Name, "failed").Inc()
		return 0, err
	}
	defer c.close()

	connections.WithLabelValues(s.settings.Name, "connected").Inc()
	started := time.Now()
	err = s.keep(ctx, c)
	s.publish(nil, nil, err)
	connections.WithLabelValues(s.settings.Name, "lost").Inc()
	return time.Since(started), err
}

func (s *server) establish(ctx context.Context, legacy bool) (*connection, *listing, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.ConnectTimeout)
	defer cancel()
	c, err := s.connect(ctx, legacy)
	if err != nil {
		return nil, nil, err
	}

	tools, err := s.list(ctx, c)
	if err != nil {
		c.close()
		return nil, nil, c.why(err)
	}
	return c, tools, nil
}

// keep reads the list again when it may have changed, until the connection ends.
func (s *server) keep(ctx context.Context, c *connection) error {
	refresh := time.NewTicker(s.options.RefreshEvery)
	defer refresh.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ctx.Done():
			return s.ended(c)
		case <-refresh.C:
		case <-c.changed:
		}

		if err := s.refresh(ctx, c); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-c.ctx.Done():
		case <-time.After(refreshPause):
		}
	}
}

func (s *server) refresh(ctx context.Context, c *connection) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.ConnectTimeout)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	tools, err := s.list(ctx, c)
	if err != nil {
		return err
	}
	s.publish(c, tools, nil)
	return nil
}

func (s *server) ended(c *connection) error {
	c.end()
	<-c.lost
	reason := c.reason
	if reason == nil {
		reason = errors.New("the server ended the connection")
	}
	return c.why(withoutAddress(reason))
}

// publish makes a state known to calls and to the operator. The last list stays when a connection is lost: an agent
// keeps its tools, and calls say that the server is away.
func (s *server) publish(c *connection, tools *listing, failure error) {
	if s.settle(c, tools, failure) && s.options.Listed != nil {
		s.options.Listed()
	}
}

// settle is publish under the lock. It reports whether there is another list than before.
func (s *server) settle(c *connection, tools *listing, failure error) (changed bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()

	if tools != nil {
		changed = !s.listed || !slices.Equal(tools.names(), s.tools.names()) || !slices.Equal(tools.idle, s.tools.idle)
		if changed {
			s.report(tools)
		}
		s.tools, s.listed = tools, true
	}

	s.failure = ""
	if failure != nil {
		s.failure = clip.Bytes(plain(failure.Error()), maxDescriptionBytes)
	}

	if c != s.connection {
		s.connection, s.since = c, time.Now()
		close(s.switched)
		s.switched = make(chan struct{})
	}
	return changed
}

func (s *server) report(tools *listing) {
	s.log.Info("tools of MCP server", "tools", len(tools.tools), "left_out_by_settings", tools.refused, "unusable", tools.broken)
	if tools.over {
		s.log.Warn("MCP server has more tools than allowed: choose some with tools", "limit", s.options.MaxTools)
	}
	for _, one := range tools.idle {
		s.log.Warn("a pattern of agents.mcp matches no tool of the server", "setting", one.Setting, "pattern", one.Pattern)
	}
}

// borrow returns the live connection, waiting for one until ctx ends.
func (s *server) borrow(ctx context.Context) (*connection, bool) {
	for {
		s.mutex.Lock()
		c, switched := s.connection, s.switched
		s.mutex.Unlock()

		if c != nil && c.alive() {
			return c, true
		}

		select {
		case <-switched:
		case <-s.ctx.Done():
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
	}
}

func (s *server) current() *listing {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.tools
}

const (
	keepAlive         = time.Minute
	keepAliveFailures = 3

	// legacyProtocol is the last one that begins with initialize. Newer ones begin with another question, before which
	// some old servers fall silent: after each failure the other way is tried.
	legacyProtocol = "2025-11-25"
)

// connection is one live session with a server. It is never revived: after its end there is a new one.
type connection struct {
	session *mcp.ClientSession
	end     func()             // ends program or requests and waits for it
	why     func(error) error  // explains the end to the operator
	ctx     context.Context    // ends when the connection is lost or given up
	cancel  context.CancelFunc // ends the calls under way, too
	changed chan struct{}      // the server announced another list of tools
	lost    chan struct{}      // closed after the end of the session
	reason  error              // valid after lost; nil = closed by us or by the server in good order
}

// connect starts or calls the server and shakes hands. The session outlives ctx.
func (s *server) connect(ctx context.Context, legacy bool) (*connection, error) {
	c := &connection{changed: make(chan struct{}, 1), lost: make(chan struct{})}
	transport, err := s.open(c)
	if err != nil {
		return nil, err
	}

	var options mcp.ClientSessionOptions
	if legacy {
		options.ProtocolVersion = legacyProtocol
	}

	c.session, err = c.client(s.options.Version).Connect(ctx, transport, &options)
	if err != nil {
		c.end()
		return nil, c.why(withoutAddress(err))
	}

	c.ctx, c.cancel = context.WithCancel(context.Background())
	go c.watch()
	return c, nil
}

// client is new for each connection: the SDK's client keeps what it knows of its sessions.
func (c *connection) client(version string) *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "inbox", Version: version}, &mcp.ClientOptions{
		Logger:                    slog.New(slog.DiscardHandler), // what matters comes back as an error
		Capabilities:              &mcp.ClientCapabilities{},
		ToolListChangedHandler:    func(context.Context, *mcp.ToolListChangedRequest) { c.announce() },
		MultiRoundTrip:            &mcp.MultiRoundTripOptions{Disabled: true}, // it would repeat calls
		KeepAlive:                 keepAlive,
		KeepAliveFailureThreshold: keepAliveFailures,
	})
}

// announce notes that the list changed. However often a server says so, it is one note.
func (c *connection) announce() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *connection) watch() {
	c.reason = c.session.Wait()
	c.cancel()
	close(c.lost)
}

func (c *connection) alive() bool { return c.ctx.Err() == nil }

// close ends calls, session and program, and returns when they are gone.
func (c *connection) close() {
	c.cancel()
	c.end()
	_ = c.session.Close() // it only reports how the program ended
	<-c.lost
}

// open prepares the way to the server and how it ends.
func (s *server) open(c *connection) (mcp.Transport, error) {
	if s.settings.Command != "" {
		return s.openProcess(c)
	}
	return s.openWeb(c)
}

func (s *server) openProcess(c *connection) (mcp.Transport, error) {
	p, err := startProcess(s.settings, s.options.StopGrace)
	if err != nil {
		return nil, err
	}
	c.end = p.stop
	c.why = func(err error) error { return fmt.Errorf("%w (%w)", err, p.why()) }
	// The reader has the limit; the SDK's only must not be the smaller one.
	return &mcp.IOTransport{Reader: newLines(p, s.options.MaxAnswerBytes), Writer: p, MaxLineLength: s.options.MaxAnswerBytes + 1024}, nil
}

func (s *server) openWeb(c *connection) (mcp.Transport, error) {
	way, err := newWeb(s.settings, s.options.Client, s.options.MaxAnswerBytes)
	if err != nil {
		return nil, err
	}

	kept := &keptTransport{Transport: &mcp.StreamableClientTransport{
		Endpoint: s.settings.URL, HTTPClient: way.httpClient(), MaxEventSize: s.options.MaxAnswerBytes,
	}}

	c.end = func() {
		if kept.connection != nil {
			_ = kept.connection.Close() // best effort: the server may be gone
		}
		way.client.Close()
	}

	c.why = func(err error) error { return err }
	return kept, nil
}

// keptTransport remembers what was opened, since a handshake that fails does not close it.
type keptTransport struct {
	mcp.Transport
	connection mcp.Connection
}

// Connect opens the connection.
func (t *keptTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	opened, err := t.Transport.Connect(ctx)
	t.connection = opened
	return opened, err
}
