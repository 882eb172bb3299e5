package mcptool

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

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
