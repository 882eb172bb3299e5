// Package pull is the agent that cannot be reached: its program, behind NAT or on a laptop, comes and takes its turns
// over HTTP from /v1/pull/{agent}, by long poll or as a stream of events, and hands in its answer under a lease. It
// stores nothing by itself but documents that end (see Mailbox), repeats nothing, and knows no protocol of the outside.
// The wire format is described in docs/agents/pull.md.
package pull

import (
	"context"
	"strings"
	"sync"
	"time"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/bearer"
	"inbox/internal/fault"
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

// Tokens finds the bearer tokens of this server.
type Tokens interface {
	// TokenByHash returns the token with the lower-case hex SHA-256, revoked ones too.
	TokenByHash(ctx context.Context, hash string) (exchange.Token, bool, error)
}

// Options configure a Service. Tokens is required.
type Options struct {
	Tokens Tokens

	// Mailbox is what the nodes share. Nil keeps everything in the memory of this process: enough for one node, but a
	// turn that is being worked on begins anew when the process starts again.
	Mailbox Mailbox

	// Scope is the scope that a token must have, beside being limited to the agent; empty = exchange.TokenPeer.
	Scope string

	Limits normalized.Limits // of answers; zero = normalized.DefaultLimits

	// Arrived is told when an agent can have more turns at once than before (Agent.Limit). It must not block. Optional.
	Arrived func(agent string)
}

// Settings are the operator's choices for one agent; zero values take the defaults.
type Settings struct {
	// Lease is how long a turn stays with a program that returns no sign of life, 1 s to 1 h; zero = DefaultLease.
	Lease time.Duration
	// MaxWait is how long a turn waits for a program to take it before the attempt fails; zero = DefaultMaxWait.
	MaxWait time.Duration
}

// Service has the routes of all pull agents of this node. It is safe for concurrent use and runs nothing in the
// background.
type Service struct {
	options  Options
	rows     rows
	bells    bells
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
	settings = settings.withDefaults()
	switch {
	case !identity.ValidAgentName(name):
		return nil, fault.InField("name", "must be 1 to 64 of A-Z a-z 0-9 . _ - without a dot at either end")
	case settings.Lease < minLease || settings.Lease > maxLease:
		return nil, fault.InField("lease", "must be between 1s and 1h")
	case settings.MaxWait < 0:
		return nil, fault.InField("max_wait", "must not be negative")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.ToLower(name)
	if s.agents[key] != nil {
		return nil, fault.Newf(fault.Conflict, "there are two pull agents named %q", name)
	}
	s.agents[key] = &Agent{service: s, name: key, settings: settings}
	return s.agents[key], nil
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
