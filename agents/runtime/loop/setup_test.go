package loop_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errTest = errors.New("test failure")

// rig is a run under test: a runner that plays turns, an executor, and everything that was observed.
type rig struct {
	turns   []any // results of the runner; an error is returned as one, a func() any is called; then no more tools
	execute func(ctx context.Context, call tool.Call) (map[string]any, error)
	options loop.Options

	names    []string // events in order
	payloads map[string][]map[string]any
	executed []string // ids of executed calls
	ran      int      // turns of the runner
}

// newRig makes a run with the tools a/read, b/write and client/pick.
func newRig(turns ...any) *rig {
	r := &rig{turns: turns, payloads: map[string][]map[string]any{}}
	r.options = loop.Options{
		MaxTurns: 10, Executors: tool.Executors{Default: r},
		Declarations: tool.Entries([]any{
			map[string]any{"name": "a/read", "description": "reads"},
			map[string]any{"name": "b/write", "description": "writes"},
			map[string]any{"name": "client/pick", "description": "picks"},
		}),
		Observer: r,
	}
	return r
}

func (r *rig) Observe(name string, payload map[string]any) {
	r.names = append(r.names, name)
	r.payloads[name] = append(r.payloads[name], payload)
}

func (r *rig) Turn(context.Context, []envelope.Envelope, map[string]any) (any, error) {
	r.ran++
	if r.ran > len(r.turns) {
		return map[string]any{"content": "Done", "tool_calls": []any{}}, nil
	}
	switch turn := r.turns[r.ran-1].(type) {
	case error:
		return nil, turn
	case func() any:
		given := turn()
		if err, is := given.(error); is {
			return nil, err
		}
		return given, nil
	default:
		return turn, nil
	}
}

func (r *rig) Execute(ctx context.Context, call tool.Call) (map[string]any, error) {
	r.executed = append(r.executed, call.ID)
	if r.execute != nil {
		return r.execute(ctx, call)
	}
	return map[string]any{"success": true, "result": map[string]any{"ok": true}}, nil
}

func (r *rig) run(t *testing.T) map[string]any {
	t.Helper()
	result, err := r.try(t.Context())
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	return result
}

func (r *rig) try(ctx context.Context) (map[string]any, error) {
	return loop.Run(ctx, []any{map[string]any{"role": "user", "content": "Hi"}}, r, r.options)
}

func (r *rig) saw(name string) bool { return slices.Contains(r.names, name) }

// calls is a turn of tool calls, each given as id and name in turns.
func calls(pairs ...string) map[string]any {
	list := []any{}
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, map[string]any{"id": pairs[i], "name": pairs[i+1], "parameters": map[string]any{"id": pairs[i]}})
	}
	return map[string]any{"tool_calls": list}
}

func recorded(result map[string]any) []string {
	events, _ := value.List(result["events"])
	names := make([]string, 0, len(events))
	for _, event := range events {
		names = append(names, value.Text(value.Assoc(event)["type"]))
	}
	return names
}

func transcript(t *testing.T, result map[string]any) []envelope.Envelope {
	t.Helper()
	messages, err := envelope.NormalizeMany(result["messages"])
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

func noOrphans(t *testing.T, result map[string]any) {
	t.Helper()
	if orphans := envelope.Orphans(transcript(t, result)); len(orphans) > 0 {
		t.Fatalf("orphans: %+v", orphans)
	}
}

func wantStatus(t *testing.T, result map[string]any, status string) {
	t.Helper()
	outcome := value.Assoc(result["run_outcome"])
	if outcome["status"] != status {
		t.Fatalf("outcome %v, want %s", outcome, status)
	}
}
