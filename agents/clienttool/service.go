package clienttool

import (
	"context"
	"strings"
	"sync"
	"time"

	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/tool/request"
	"inbox/exchange"
	"inbox/internal/bearer"
	"inbox/internal/fault"
)

// MaxWaiting bounds the HTTP requests that wait for tool requests of one agent at the same time, on one node.
const MaxWaiting = 100

// MaxBodyBytes bounds what a program hands in.
const MaxBodyBytes = 1 << 20

// Requests are the tool requests of turns, for one agent: those of others are not found. By says who calls, for the
// timeline. What ends a request lets its turn go on by itself.
type Requests interface {
	ToolRequests(agent, by string) request.Lifecycle
	// ToolCancels is ToolRequests for who takes a request back.
	ToolCancels(agent, by string) request.Lifecycle
}

// Service has the routes of all agents with client tools. It is safe for concurrent use and runs nothing in the
// background.
type Service struct {
	tokens   *bearer.Cache
	requests Requests // nil until Bind

	mu     sync.Mutex
	agents map[string]*agent // by lower-case name
}

// agent is one agent with client tools.
type agent struct {
	name    string // as configured
	mu      sync.Mutex
	source  *Source                    // of the tools that are declared for it; nil = none
	waiting map[chan struct{}]struct{} // who waits for new requests on this node
}

// New makes a service without agents; Bind must follow before the first request.
func New(tokens exchange.Tokens) *Service {
	return &Service{tokens: bearer.NewCache(tokens), agents: map[string]*agent{}}
}

// Bind names who keeps the requests. It must be called once, before the first request.
func (s *Service) Bind(requests Requests) { s.requests = requests }

// Open opens the routes of the agents that are named, with the sources of their tools, and closes those of all others. Programs that wait for an agent which stays go on waiting; those of one that is
// closed hear at the end of their wait that nothing came.
func (s *Service) Open(sources map[string]*Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	opened := make(map[string]*agent, len(sources))
	for name, source := range sources {
		key := strings.ToLower(name)
		one := s.agents[key]
		if one == nil || one.name != name {
			one = &agent{name: name, waiting: map[chan struct{}]struct{}{}}
		}
		one.declare(source)
		opened[key] = one
	}
	s.agents = opened
}

func (a *agent) declare(source *Source) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.source = source
}

// declared are the tools of now that programs outside execute, and those of which a mediator may hand them calls.
func (a *agent) declared(ctx context.Context) (tools, mediated []tool.Entry, err error) {
	a.mu.Lock()
	source := a.source
	a.mu.Unlock()
	if source == nil {
		return nil, nil, nil
	}
	if source.mediated != nil {
		mediated, err = source.mediated(ctx)
	}
	return source.entries, mediated, err
}

// Requested wakes the programs that wait on this node. Those on other nodes look for themselves every second.
func (s *Service) Requested(one exchange.ToolRequest) {
	if found, known := s.find(one.Agent); known {
		found.ring()
	}
}

func (s *Service) find(name string) (*agent, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, known := s.agents[strings.ToLower(name)]
	return found, known
}

func (a *agent) ring() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for bell := range a.waiting {
		select {
		case bell <- struct{}{}:
		default: // it is awake already
		}
	}
}

// listen returns a channel that gets a value when there may be new requests. RateLimited when too many wait.
func (a *agent) listen() (bell <-chan struct{}, leave func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if len(a.waiting) >= MaxWaiting {
		return nil, nil, &fault.Fault{
			Kind: fault.RateLimited, Public: "too many programs wait for tool requests of this agent at the same time", RetryAfter: lookEvery,
		}
	}

	mine := make(chan struct{}, 1)
	a.waiting[mine] = struct{}{}
	waiters.Inc()
	return mine, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.waiting, mine)
		waiters.Dec()
	}, nil
}

const lookEvery = time.Second // how often who waits looks at what other nodes did
