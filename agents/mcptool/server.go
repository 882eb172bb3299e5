package mcptool

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
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
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if tools != nil {
		if !slices.Equal(tools.names(), s.tools.names()) {
			s.report(tools)
		}
		s.tools = tools
	}
	s.failure = ""
	if failure != nil {
		s.failure = cut(plain(failure.Error()), maxDescriptionBytes)
	}
	if c != s.connection {
		s.connection, s.since = c, time.Now()
		close(s.switched)
		s.switched = make(chan struct{})
	}
}

func (s *server) report(tools *listing) {
	s.log.Info("tools of MCP server", "tools", len(tools.tools), "left_out_by_settings", tools.refused, "unusable", tools.broken)
	if tools.over {
		s.log.Warn("MCP server has more tools than allowed: choose some with tools", "limit", s.options.MaxTools)
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
