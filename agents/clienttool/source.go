// Package clienttool lets programs outside of the server execute tools of its agents: the operator declares them, the
// model calls them, the turn waits, and a program that holds a token of the agent reads the requests over HTTP from
// /v1/tools/{agent}/requests and hands in the results (agent runtime contract, sections 4.1 and 5). It stores nothing,
// executes nothing and resumes nothing: that is the engine's. The wire format is described in docs/agents/client-tools.md.
package clienttool

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"inbox/agents"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
)

// Bounds of a Tool's Timeout. A turn that waits remembers its run for a week.
const (
	MinTimeout     = time.Second
	MaxTimeout     = 6 * 24 * time.Hour
	DefaultTimeout = time.Hour
)

// Namespace leads the names of client tools.
const Namespace = "client/"

// Tool is a client tool as the operator declares it.
type Tool struct {
	Name        string // without namespace: a lower-case letter, then letters, digits, _ and -
	Description string // what the model reads
	Parameters  []byte // JSON Schema of an object; empty = no parameters
	Bindings    []byte // parameters that the context of the call fills, a JSON object (agent runtime contract, section 4.3); empty = none
	Defaults    []byte // values of parameters that the model leaves out, a JSON object; empty = none
	Timeout     time.Duration
	Action      string // tool.ActionDirect, ActionPreview or ActionForbidden; empty = direct

	// The runtime metadata of the tool (agent runtime contract, section 4.1).
	DuplicatePolicy  string // repeatable, or once, non_repeatable or at_most_once: equal calls of one turn are made once; empty = repeatable
	CompletionSignal string // empty or progress: a success brings the work forward
	CapabilityScope  string // runtime_local, or control_plane: no program outside sees its calls; empty = runtime_local
	Environment      string // the same words
	Untrusted        bool   // its results hold what strangers wrote: they are marked for the model
}

// Source returns the client tools of one agent to its models. It does not change.
type Source struct {
	entries  []tool.Entry
	timeouts map[string]time.Duration
	mediated func(ctx context.Context) ([]tool.Entry, error) // see Mediating; nil = no mediator hands calls to programs
}

// Mediating returns the source of an agent whose mediator hands calls of its other tools to programs outside, too. Nil stands for an agent
// without client tools.
func (s *Source) Mediating(tools func(ctx context.Context) ([]tool.Entry, error)) *Source {
	mediating := Source{timeouts: map[string]time.Duration{}}
	if s != nil {
		mediating = *s
	}
	mediating.mediated = tools
	return &mediating
}

// NewSource checks the tools. Its faults are fault.Malformed and name the tool.
func NewSource(tools []Tool) (*Source, error) {
	source := &Source{timeouts: map[string]time.Duration{}}
	for _, one := range tools {
		entry, err := one.declare()
		if err != nil {
			return nil, err
		}

		name := Namespace + one.Name
		if _, twice := source.timeouts[name]; twice {
			return nil, fault.InField(one.Name, "is a duplicate")
		}

		if one.Timeout == 0 {
			one.Timeout = DefaultTimeout
		}
		if one.Timeout < MinTimeout || one.Timeout > MaxTimeout {
			return nil, fault.InField(one.Name+".timeout", "must be between 1s and 144h")
		}

		source.timeouts[name] = one.Timeout
		source.entries = append(source.entries, entry)
	}

	return source, nil
}

// declare makes the declaration and holds it to the rules for client tools.
func (t Tool) declare() (tool.Entry, error) {
	if strings.HasPrefix(t.Name, "client__") { // chat clients may call "name" so
		return tool.Entry{}, fault.InField(t.Name, `must not begin with "client__"`)
	}

	declared := map[string]any{
		"name": Namespace + t.Name, "source": tool.ExecutorClient, "description": t.Description,
		"executor": tool.ExecutorClient, "scope": tool.ScopeRun,
	}

	for member, text := range map[string][]byte{"parameters": t.Parameters, "parameter_bindings": t.Bindings, "parameter_defaults": t.Defaults} {
		if len(text) == 0 {
			continue
		}
		given, err := value.Decode(text, value.Limits{Bytes: 256 << 10})
		if err != nil {
			return tool.Entry{}, fault.InField(t.Name+"."+member, "is not JSON: "+err.Error())
		}
		if _, is := given.(map[string]any); !is {
			return tool.Entry{}, fault.InField(t.Name+"."+member, "must be a JSON object")
		}
		declared[member] = given
	}

	if err := t.checkRuntime(); err != nil {
		return tool.Entry{}, err
	}

	if t.Action != "" {
		if tool.ActionPolicy(t.Action) != t.Action {
			return tool.Entry{}, fault.InField(t.Name+".action", `must be "direct", "preview" or "forbidden"`)
		}
		declared["action_policy"] = t.Action
	}

	runtime := map[string]any{"environment": cmp.Or(t.Environment, runtimeLocal), "capability_scope": cmp.Or(t.CapabilityScope, runtimeLocal)}
	if t.DuplicatePolicy != "" {
		runtime["duplicate_policy"] = t.DuplicatePolicy
	}
	if t.CompletionSignal != "" {
		runtime["completion_signal"] = t.CompletionSignal
	}
	if t.Untrusted {
		runtime["untrusted_text"] = true
	}

	declared["runtime"] = runtime
	if wrong := tool.ValidateClient(declared); len(wrong) > 0 {
		return tool.Entry{}, fault.InField(t.Name, "is no valid client tool: "+strings.Join(wrong, ", "))
	}

	return tool.Entry{Value: declared}, nil
}

// Words of the runtime metadata.
const runtimeLocal = "runtime_local"

var runtimeWords = map[string][]string{
	"duplicate_policy":  {"", "repeatable", "once", "non_repeatable", "at_most_once"},
	"completion_signal": {"", "progress"},
	"capability_scope":  {"", runtimeLocal, controlPlane},
	"environment":       {"", runtimeLocal, controlPlane},
}

func (t Tool) checkRuntime() error {
	for member, word := range map[string]string{
		"duplicate_policy": t.DuplicatePolicy, "completion_signal": t.CompletionSignal,
		"capability_scope": t.CapabilityScope, "environment": t.Environment,
	} {
		if !slices.Contains(runtimeWords[member], word) {
			return fault.InField(t.Name+"."+member, "must be one of: "+strings.Join(runtimeWords[member][1:], ", "))
		}
	}
	return nil
}

// Outside says that programs outside execute these tools.
func (s *Source) Outside() bool { return true }

// Declarations returns the tools.
func (s *Source) Declarations(context.Context, agents.Turn) ([]tool.Entry, error) {
	return s.entries, nil
}

// Execute returns the request for which the turn waits. Parameters are those that were built for the tool.
func (s *Source) Execute(_ context.Context, call tool.Call) (map[string]any, error) {
	timeout, known := s.timeouts[call.Name]
	if !known {
		return nil, fmt.Errorf("there is no client tool %s", call.Name)
	}

	metadata := map[string]any{"idempotency_key": call.IdempotencyKey()}
	for _, name := range []string{"agent", "thread_id", "message_id", "caller_context"} {
		if known := call.Context[name]; known != nil {
			metadata[name] = known
		}
	}

	return map[string]any{
		"success": false, "status": tool.StatusPending, "error": "Waiting for external runtime tool result.",
		"runtime_tool_request": map[string]any{
			"tool_name": call.Name, "tool_call_id": call.ID, "parameters": call.Parameters, "run_id": call.Context["run_id"],
			"timeout_at": time.Now().Add(timeout).UTC().Format(time.RFC3339Nano),
			"runtime":    call.Declaration.Runtime(), "metadata": metadata,
		},
	}, nil
}
