// Package mcptool offers agents the tools of MCP servers: local programs that speak over their standard input and
// output, and services that speak streamable HTTP. It starts the servers, keeps connections to them, lists their tools
// as declarations of agents/runtime/tool and runs calls.
//
// It decides nothing about a person and shows no tool to a model: visibility, approval and at-most-once are the work of
// agents/runtime/tool and the engine, which read what the declarations say. It never repeats a call by itself. It answers no
// request of a server: no sampling, no elicitation, no roots.
package mcptool

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
	"inbox/internal/telemetry"
)

// Source is the tools of several MCP servers. It is a tool.Executor for them and safe for concurrent use.
type Source struct {
	options Options
	servers []*server // in the order of the settings
	byName  map[string]*server

	starting sync.Once
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

var _ tool.Executor = (*Source)(nil)

// New checks the settings; nothing is started and nothing called before Start. Its faults are fault.Malformed and name
// the setting, with the place of the server in the list: "mcp[1].url".
func New(servers []Server, options Options) (*Source, error) {
	if err := options.validate(); err != nil {
		return nil, err
	}

	source := &Source{options: options.withDefaults(), byName: map[string]*server{}}
	source.ctx, source.cancel = context.WithCancel(context.Background())

	for i, settings := range servers {
		if err := source.add(settings); err != nil {
			source.cancel()
			wrong := fault.Of(err)
			return nil, fault.InField(fmt.Sprintf("mcp[%d].%s", i, wrong.Field), wrong.Public)
		}
	}

	return source, nil
}

func (s *Source) add(settings Server) error {
	if err := settings.Validate(); err != nil {
		return err
	}
	if s.byName[settings.Name] != nil {
		return fault.InField("name", "is a duplicate: every server needs its own name")
	}
	if settings.URL != "" && s.options.Client == nil {
		return fault.InField("client", "is required for a server with a url")
	}

	added := newServer(s.ctx, settings, s.options)
	s.servers = append(s.servers, added)
	s.byName[settings.Name] = added
	return nil
}

// Start connects to the servers in the background and keeps the connections. A second Start does nothing.
func (s *Source) Start() {
	s.starting.Do(func() {
		for _, one := range s.servers {
			s.running.Go(func() { one.run() })
		}
	})
}

// Close ends calls, connections and programs with their children, and returns when they are gone. It takes at most
// about twice StopGrace. Calls after it fail; a second Close does nothing.
func (s *Source) Close() {
	s.starting.Do(func() {}) // a Start after Close starts nothing
	s.cancel()
	s.running.Wait()
}

// Declarations returns the tools of all servers, as normalized declarations of agents/runtime/tool: executor host, source and
// namespace are the server's name, action_policy is direct or preview, at_most_once and runtime.duplicate_policy say
// what must not run twice, untrusted_text marks what the tool returns as data, mcp.tool is the name at the server. The tools of a server that is away stay. The first time
// it waits for servers that are still starting, at most ReconnectWait. The objects must not be changed.
func (s *Source) Declarations(ctx context.Context) []map[string]any {
	s.await(ctx)
	var declarations []map[string]any
	for _, one := range s.servers {
		for _, known := range one.current().tools {
			declarations = append(declarations, known.declaration.Object())
		}
	}
	return declarations
}

// Rejected names tools of the servers that are on offer and cannot be declared, with the reasons; at most 16 of each server.
func (s *Source) Rejected() []tool.Rejection {
	var rejected []tool.Rejection
	for _, one := range s.servers {
		rejected = append(rejected, one.current().wrong...)
	}
	return rejected
}

func (s *Source) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.options.ReconnectWait)
	defer cancel()
	for _, one := range s.servers {
		select {
		case <-one.tried:
		case <-s.ctx.Done():
		case <-ctx.Done():
		}
	}
}

// Has reports whether the name belongs to one of the servers, whether or not there is such a tool now.
func (s *Source) Has(name string) bool {
	return s.of(name) != nil
}

func (s *Source) of(name string) *server {
	namespace, _, found := strings.Cut(name, "/")
	if !found {
		return nil
	}
	return s.byName[namespace]
}

// Execute runs a prepared call. It does not run another tool to which the server has given the name of the declared one. The server gets the call's idempotency key if the call belongs to a run. Everything
// that goes wrong is an answer with success false, error and error_type; an error is returned only when ctx ends.
func (s *Source) Execute(ctx context.Context, call tool.Call) (map[string]any, error) {
	key := ""
	if run, _ := call.Context["run_id"].(string); run != "" { // without a run the keys of strangers' calls would be the same
		key = call.IdempotencyKey()
	}

	one := s.of(call.Name)
	if one == nil {
		return notFound(call.Name), nil
	}
	return one.call(ctx, call.Name, value.Text(value.Assoc(call.Declaration.Field("mcp"))["tool"]), call.Parameters, key)
}

// Call runs a tool by its canonical name. The key, if there is one, goes to the server as IdempotencyMeta. Answer and
// error as for Execute.
func (s *Source) Call(ctx context.Context, name string, parameters map[string]any, key string) (map[string]any, error) {
	one := s.of(name)
	if one == nil {
		return notFound(name), nil
	}
	return one.call(ctx, name, "", parameters, key)
}

// Status is what an operator sees of a server.
type Status struct {
	Server    string
	Connected bool
	Since     time.Time   // of the present state
	Reason    string      // why it is not connected; for the operator only
	Tools     []string    // canonical names of the tools on offer, also while it is away
	LeftOut   int         // tools that the settings leave out
	Unusable  int         // tools that cannot be declared: odd name, odd or too large schema
	Unmatched []Unmatched // patterns of the settings that match no tool of the server; empty if it has too many
	TooMany   bool        // the server has more tools than MaxTools
}

// Status tells about every server, in the order of the settings.
func (s *Source) Status() []Status {
	list := make([]Status, 0, len(s.servers))
	for _, one := range s.servers {
		list = append(list, one.status())
	}
	return list
}

func (s *server) status() Status {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return Status{
		Server: s.settings.Name, Connected: s.connection != nil, Since: s.since, Reason: s.failure,
		Tools: s.tools.names(), LeftOut: s.tools.refused, Unmatched: s.tools.idle, Unusable: s.tools.broken, TooMany: s.tools.over,
	}
}

var (
	// outcome: ok, tool_error, tool_timeout, tool_server_unavailable, tool_outcome_unknown, tool_answer_invalid,
	// tool_call_refused, tool_not_found, cancelled
	calls = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_mcp_calls_total", Help: "Calls of tools at MCP servers by server and outcome.",
	}, []string{"server", "outcome"})
	callSeconds = promauto.NewHistogram(prometheus.HistogramOpts{
		Name: "inbox_mcp_call_seconds", Help: "Time of one call of a tool at an MCP server.",
		Buckets: telemetry.NetworkSeconds,
	})
	// outcome: connected, failed, lost
	connections = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_mcp_connections_total", Help: "Connections to MCP servers by server and outcome.",
	}, []string{"server", "outcome"})
)
