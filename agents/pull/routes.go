// Package pull is the agent that cannot be reached: its program, behind NAT or on a laptop, comes and takes its turns
// over HTTP from /v1/pull/{agent}, by long poll or as a stream of events, and hands in its answer under a lease. It
// stores nothing by itself but documents that end (see Mailbox), repeats nothing, and knows no protocol of the outside.
// The wire format is described in docs/agents/pull.md.
package pull

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/openapi"
	"inbox/normalized"
)

// Defaults and bounds of Options and Settings.
const (
	DefaultLease   = 30 * time.Second
	DefaultMaxWait = time.Minute
	MaxPollers     = 100     // requests that wait for a turn of one agent at the same time, on one node
	MaxAnswerBytes = 8 << 20 // of the document of an answer

	// Linger is how long a program that asked and got nothing is taken to come again.
	Linger = 15 * time.Second

	minLease = time.Second
	maxLease = time.Hour
)

// Options configure a Service. Tokens is required.
type Options struct {
	Tokens exchange.Tokens

	// Mailbox is what the nodes share. Nil keeps everything in the memory of this process: enough for one node, but a
	// turn that is being worked on begins anew when the process starts again.
	Mailbox Mailbox

	// Scope is the scope that a token must have, beside being limited to the agent; empty = exchange.TokenPeer.
	Scope string

	Limits normalized.Limits // of answers; zero = normalized.DefaultLimits

	// Files refuses parts of an answer that name bytes which are not of the turn and not of its agent. Optional.
	Files func(ctx context.Context, turnID string, parts []normalized.Part) error
	// Arrived is told when an agent can have more turns at once than before (Agent.Limit). It must not block. Optional.
	Arrived func(agent string)
}

// Settings are the operator's choices for one agent; zero values take the defaults.
type Settings struct {
	// Lease is how long a turn stays with a program that shows no sign of life, 1 s to 1 h; zero = DefaultLease.
	Lease time.Duration
	// MaxWait is how long a turn waits for a program to take it before the attempt fails; zero = DefaultMaxWait.
	MaxWait time.Duration
}

// Service has the routes of all pull agents of this node. It is safe for concurrent use and runs nothing in the
// background.
type Service struct {
	options  Options
	rows     rows
	notifier notifier
	tokens   *bearer.Cache
	sessions sessions

	mu     sync.Mutex
	agents map[string]*Agent // by lower-case name
}

// New makes a service without agents. Its faults are fault.Malformed and name the option.
func New(options Options) (*Service, error) {
	if options.Tokens == nil {
		return nil, fault.InField("tokens", "is required: programs that take turns show a token of this server")
	}

	if options.Mailbox == nil {
		options.Mailbox = NewMemory()
	}
	if options.Files == nil {
		options.Files = func(context.Context, string, []normalized.Part) error { return nil }
	}
	if options.Arrived == nil {
		options.Arrived = func(string) {}
	}
	if options.Limits == (normalized.Limits{}) {
		options.Limits = normalized.DefaultLimits()
	}

	return &Service{
		options: options, rows: rows{options.Mailbox}, tokens: bearer.NewCache(options.Tokens), agents: map[string]*Agent{},
	}, nil
}

// Agent makes the agent with the name and opens its routes. Faults: Malformed for a bad name or setting, Conflict when
// the name is taken in any spelling.
func (s *Service) Agent(name string, settings Settings) (*Agent, error) {
	agent, err := s.NewAgent(name, settings)
	if err != nil {
		return nil, err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.agents[agent.name] != nil {
		return nil, fault.Newf(fault.Conflict, "there are two pull agents named %q", name)
	}
	s.agents[agent.name] = agent
	return agent, nil
}

// NewAgent makes the agent with the name; Open opens its routes. Faults are Malformed for a bad name or setting.
func (s *Service) NewAgent(name string, settings Settings) (*Agent, error) {
	settings = settings.withDefaults()
	switch {
	case !identity.ValidAgentName(name):
		return nil, fault.InField("name", "must be 1 to 64 of A-Z a-z 0-9 . _ - without a dot at either end")
	case settings.Lease < minLease || settings.Lease > maxLease:
		return nil, fault.InField("lease", "must be between 1s and 1h")
	case settings.MaxWait < 0:
		return nil, fault.InField("max_wait", "must not be negative")
	}

	return &Agent{service: s, name: strings.ToLower(name), settings: settings}, nil
}

// Open opens the routes of an agent, instead of another one with its name: programs take the turns of both there.
func (s *Service) Open(agent *Agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if earlier := s.agents[agent.name]; earlier != nil && earlier != agent {
		agent.inherit(earlier)
	}
	s.agents[agent.name] = agent
}

// Close closes the routes of an agent, unless they are another one's by now.
func (s *Service) Close(agent *Agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.agents[agent.name] == agent {
		delete(s.agents, agent.name)
	}
}

func (s Settings) withDefaults() Settings {
	if s.Lease == 0 {
		s.Lease = DefaultLease
	}
	if s.MaxWait == 0 {
		s.MaxWait = DefaultMaxWait
	}
	return s
}

func (s *Service) find(name string) (*Agent, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	agent, found := s.agents[strings.ToLower(name)]
	return agent, found
}

const (
	defaultTake = 30 * time.Second
	longestTake = time.Minute
	writeTime   = 30 * time.Second // for one turn to reach a program
)

// Routes returns the HTTP face of all pull agents.
func (s *Service) Routes() []httpserver.Route {
	work := "/v1/pull/{agent}/{turn}/"
	return []httpserver.Route{
		{Method: http.MethodPost, Pattern: "/v1/pull/{agent}/take", Handler: s.authorized(s.handTake)},
		{Method: http.MethodGet, Pattern: "/v1/pull/{agent}/events", Handler: s.authorized(s.handEvents)},
		{Method: http.MethodPost, Pattern: work + "heartbeat", Handler: s.authorized(s.handHeartbeat)},
		{Method: http.MethodPost, Pattern: work + "deltas", Handler: s.authorized(s.handDeltas)},
		{Method: http.MethodPost, Pattern: work + "answer", Handler: s.authorized(s.handAnswer)},
		{Method: http.MethodPost, Pattern: work + "fail", Handler: s.authorized(s.handFail)},
	}
}

// handTake is the long poll: one turn, or 204 when there is none in time.
func (s *Service) handTake(w http.ResponseWriter, r *http.Request, agent *Agent) error {
	wait, err := duration(r.URL.Query().Get("wait"), defaultTake)
	if err != nil {
		return err
	}

	has, err := readLabels(r.URL.Query().Get("labels"))
	if err != nil {
		return err
	}

	leave, err := agent.enter()
	if err != nil {
		return err
	}
	defer leave()

	limited, cancel := context.WithTimeout(r.Context(), min(wait, longestTake))
	defer cancel()
	taken, err := s.await(limited, r, agent, has)
	if err != nil {
		return err
	}
	if taken == nil {
		takes.WithLabelValues("empty").Inc()
		w.WriteHeader(http.StatusNoContent)
		return nil
	}

	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(taken.document)))
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	s.hand(r, agent, taken, send(w, taken.document) == nil)
	return nil
}

// hand counts a turn that was written to its program, and takes it back when the connection is broken. It returns written.
func (s *Service) hand(r *http.Request, agent *Agent, taken *turn, written bool) bool {
	if !written {
		s.giveBack(context.WithoutCancel(r.Context()), agent, taken.run, time.Now().Add(keepFor))
		return false
	}
	takes.WithLabelValues("taken").Inc()
	return true
}

// send writes content and makes sure that it left.
func send(w http.ResponseWriter, content []byte) error {
	connection := w
	if wrapped, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
		connection = wrapped.Unwrap() // the wrapper's Flush keeps the error to itself
	}

	controller := http.NewResponseController(connection)
	_ = controller.SetWriteDeadline(time.Now().Add(writeTime)) // a recorder in a test has no connection
	defer func() { _ = controller.SetWriteDeadline(time.Time{}) }()

	if _, err := w.Write(content); err != nil {
		return err
	}
	return controller.Flush()
}

// await returns the next turn for a program with the labels; nil when ctx or the server ends before.
func (s *Service) await(ctx context.Context, r *http.Request, agent *Agent, has labels) (taken *turn, err error) {
	wake, leave := s.notifier.listen(offersTopic(agent.name))
	defer leave()
	done := agent.wait(has)
	defer func() { done(taken != nil) }()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for look := true; ; {
		if look {
			taken, err = s.takeFor(ctx, r, agent, has)
			if taken != nil || err != nil {
				return taken, err
			}
		}
		select {
		case <-wake:
			look = true
		case <-ticker.C:
			look = agent.due(has)
		case <-httpserver.Stopping(ctx):
			return nil, nil
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// takeFor checks once more who asks: the token may have been revoked since, and the program may be gone.
func (s *Service) takeFor(ctx context.Context, r *http.Request, agent *Agent, has labels) (*turn, error) {
	if _, err := s.verify(r); err != nil {
		return nil, err
	}
	select {
	case <-r.Context().Done():
		return nil, nil
	default:
	}
	return agent.take(context.WithoutCancel(ctx), has)
}

// duration reads "30s" or "30"; empty = otherwise.
func duration(text string, otherwise time.Duration) (time.Duration, error) {
	if text == "" {
		return otherwise, nil
	}

	if strings.Trim(text, "0123456789") == "" {
		text += "s"
	}

	length, err := time.ParseDuration(text)
	if err != nil || length < 0 {
		return 0, fault.InField("wait", "must be a time such as 30s")
	}
	return length, nil
}

// authorized finds the agent of a request that shows a token for it. Who may not take turns gets one and the same
// answer, whether there is such an agent or not.
func (s *Service) authorized(handle func(http.ResponseWriter, *http.Request, *Agent) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent, err := s.verify(r)
		if err == nil {
			err = handle(w, r, agent)
		}
		if err == nil {
			return
		}

		if fault.Is(err, fault.Unauthenticated) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="turns"`)
		}
		httpserver.WriteFault(w, err)
	})
}

func (s *Service) verify(r *http.Request) (*Agent, error) {
	refused := fault.New(fault.Unauthenticated, "a bearer token for this agent is needed; the operator makes one")
	shown := bearer.Of(r)
	if shown == "" {
		return nil, refused
	}

	token, found, err := s.tokens.Find(r.Context(), shown)
	if err != nil {
		return nil, unavailable("checking the token", err)
	}

	name := httpserver.Param(r, "agent")
	if !found || !token.Valid(time.Now()) || token.Scope != s.options.Scope || !strings.EqualFold(token.Agent, name) || name == "" {
		return nil, refused
	}

	agent, known := s.find(name)
	if !known { // told only to the holder of a token for this name
		return nil, fault.New(fault.NotFound, "this agent offers no turns: it is not of kind pull")
	}

	return agent, nil
}

// Operations describe the routes.
func Operations() []openapi.Operation {
	ended := []int{http.StatusConflict, http.StatusGone}
	list := []openapi.Operation{
		{
			Method: "POST", Path: "/v1/pull/{agent}/take", Summary: "Take the next messages of an agent",
			Query: []string{"wait", "labels"}, Also: []int{http.StatusNoContent}, Response: Request{},
		},
		{
			Method: "GET", Path: "/v1/pull/{agent}/events", Summary: "Hear of messages of an agent",
			Query: []string{"max:integer", "labels"}, Response: Request{}, Stream: true, Events: []openapi.Event{{Name: "turn", Summary: "a message that is leased to the program", Data: Request{}}},
		},
		{Method: "POST", Path: "/v1/pull/{agent}/{turn}/heartbeat", Summary: "Keep the lease of a message", Query: []string{"lease!"}, Errors: ended, Response: leaseAnswer{}},
		{
			Method: "POST", Path: "/v1/pull/{agent}/{turn}/deltas", Summary: "Send more of an answer: one delta, or one in each line (application/x-ndjson)",
			Query: []string{"lease!", "first:integer"}, Errors: ended, Request: normalized.Delta{Kind: normalized.DeltaText, Text: "Hello"}, Response: received{},
		},
		{
			Method: "POST", Path: "/v1/pull/{agent}/{turn}/answer", Summary: "Answer a message; without a body the deltas are the answer",
			Query: []string{"lease!"}, Errors: ended, Partial: true, Request: normalized.Response{InReplyTo: "m-1", Parts: []normalized.Part{normalized.Text("Hello")}}, Response: ending{State: answered},
		},
		{
			Method: "POST", Path: "/v1/pull/{agent}/{turn}/fail", Summary: "Give a message back",
			Query: []string{"lease!"}, Errors: ended, Request: failure{Retry: new(true), After: 5, Reason: "the disk is full"}, Response: ending{State: retried},
		},
	}

	for i := range list {
		list[i].Tag, list[i].Security = "pull", "agent"
	}

	return list
}

var (
	// outcome: answered, retry, failed, stopped (by the engine), returned (no caller was there any more)
	turns = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_pull_turns_total", Help: "Turns that were offered to programs behind NAT, by outcome.",
	}, []string{"outcome"})
	// outcome: taken, empty, undelivered
	takes = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_pull_takes_total", Help: "Requests for a turn by outcome; a stream counts each turn.",
	}, []string{"outcome"})
	pollers = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "inbox_pull_pollers", Help: "Requests that wait for a turn.",
	})
)

func observe(err error, stopped bool) {
	outcome := "answered"
	switch {
	case errors.Is(err, agents.ErrNoWorker):
		outcome = "returned"
	case stopped, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		outcome = "stopped"
	case err != nil && fault.Of(err).Permanent:
		outcome = "failed"
	case err != nil:
		outcome = "retry"
	}
	turns.WithLabelValues(outcome).Inc()
}

// over is the answer to who holds no lease, with the same words for one that never was.
func over(kind fault.Kind) error {
	return fault.New(kind, "the lease is over: stop working on this turn and take the next one")
}

func unavailable(doing string, cause error) error {
	if f := fault.Of(cause); f.Kind == fault.Unavailable {
		return cause
	}
	return fault.Wrap(fault.Unavailable, doing+" is not possible right now; try again", cause)
}
