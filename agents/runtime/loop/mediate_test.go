package loop_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/tool/request/requesttest"
	"inbox/agents/runtime/value"
)

type policyFunc func(result loop.ToolResult) (loop.Decision, error)

func (f policyFunc) RecordToolResult(_ context.Context, result loop.ToolResult) (loop.Decision, error) {
	return f(result)
}

func TestCompletionPolicyLetsTheBatchEnd(t *testing.T) {
	r := newRig(calls("1", "a/read", "2", "a/read", "3", "a/read"))
	asked := 0
	r.options.CompletionPolicy = policyFunc(func(loop.ToolResult) (loop.Decision, error) {
		asked++
		if asked == 2 {
			return loop.Decision{Complete: true, Message: "enough"}, nil
		}
		return loop.Decision{Message: " go on ", Context: map[string]any{"n": asked}}, nil
	})
	result := r.run(t)
	if len(r.executed) != 3 || asked != 3 || r.ran != 1 {
		t.Fatalf("executed %v, asked %d, ran %d", r.executed, asked, r.ran)
	}
	if diff := cmp.Diff([]string{"completion_policy_continue", "completion_policy_stop"}, recorded(result)); diff != "" {
		t.Fatal(diff)
	}
	if r.saw("completion_policy_stop") || len(r.payloads["completion_policy_continue"]) != 1 {
		t.Fatalf("emitted %v", r.names)
	}
	nudges := 0
	for _, message := range transcript(t, result) {
		if message.Metadata["type"] == "completion_policy_continue" {
			nudges++
			if message.Text() != "go on" || message.Role != "user" {
				t.Fatalf("nudge %+v", message)
			}
		}
	}
	if nudges != 1 {
		t.Fatalf("%d nudges", nudges)
	}
	noOrphans(t, result)
	wantStatus(t, result, "completed")
}

func TestCompletionPolicyOfARunnerWithItsOwnTools(t *testing.T) {
	r := newRig(map[string]any{
		"messages": []any{map[string]any{"role": "assistant", "content": "x"}},
		"tool_execution_results": []any{
			map[string]any{"tool_name": "a/read", "result": map[string]any{}, "parameters": map[string]any{}, "turn_count": 1},
			map[string]any{"tool_name": "z", "result": map[string]any{}, "parameters": map[string]any{}, "turn_count": 1},
		},
		"events": []any{map[string]any{"type": "own"}},
	})
	var asked []string
	r.options.CompletionPolicy = policyFunc(func(result loop.ToolResult) (loop.Decision, error) {
		asked = append(asked, result.ToolName)
		return loop.Decision{Complete: result.Declaration != nil}, nil
	})
	result := r.run(t)
	if diff := cmp.Diff([]string{"a/read"}, asked); diff != "" {
		t.Fatal(diff)
	}
	if diff := cmp.Diff([]string{"own"}, recorded(result)); diff != "" {
		t.Fatal(diff)
	}
}

func TestMediatorDecisions(t *testing.T) {
	for name, test := range map[string]struct {
		decision any
		executed int
		success  bool
		rejected bool
		turns    int
	}{
		"nothing": {nil, 1, true, false, 2},
		"word":    {"reject", 1, true, false, 2},
		"unknown": {map[string]any{"action": "explode"}, 1, true, false, 2},
		"reject":  {map[string]any{"action": " REJECT ", "error": "no"}, 0, false, true, 2},
		"replace": {map[string]any{"action": "replace_result", "result": map[string]any{"success": true, "result": 1}}, 0, true, false, 2},
		"empty":   {map[string]any{"action": "replace_result"}, 1, true, false, 2},
		"stop":    {map[string]any{"action": "reject", "complete": true}, 0, false, true, 1},
		"invalid": {map[string]any{"action": "pending", "request": map[string]any{"tool_name": " "}}, 1, true, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(calls("1", "a/read"))
			r.options.Mediator = loop.MediatorFunc(func(context.Context, loop.Proposal) (any, error) { return test.decision, nil })
			result := r.run(t)
			if len(r.executed) != test.executed || r.ran != test.turns {
				t.Fatalf("executed %v, ran %d", r.executed, r.ran)
			}
			metadata := value.Assoc(value.Assoc(result["tool_events"].([]any)[1])["metadata"])
			if metadata["success"] != test.success || metadata["rejected"] != test.rejected {
				t.Fatalf("event %v", metadata)
			}
			noOrphans(t, result)
		})
	}
}

func TestMediatorMayServeAnUndeclaredTool(t *testing.T) {
	r := newRig(calls("1", "nobody/knows"))
	r.options.Mediator = loop.MediatorFunc(func(_ context.Context, proposal loop.Proposal) (any, error) {
		if proposal.PreparedToolCall != nil || proposal.ToolDeclaration != nil || len(proposal.Messages) != 2 {
			t.Errorf("proposal %+v", proposal)
		}
		return map[string]any{"action": "replace_result", "result": map[string]any{"success": true, "result": "served"}}, nil
	})
	result := r.run(t)
	messages := transcript(t, result)
	if messages[2].Text() != `"served"` {
		t.Fatalf("content %q", messages[2].Text())
	}
}

func TestPendingToolPausesAndKeepsTheRequest(t *testing.T) {
	r := newRig(calls("1", "a/read", "2", "client/pick", "3", "a/read"))
	r.execute = func(_ context.Context, call tool.Call) (map[string]any, error) {
		if call.Name == "client/pick" {
			return map[string]any{"success": false, "status": "runtime_tool_pending", "metadata": map[string]any{"k": 1}}, nil
		}
		return map[string]any{"ok": true}, nil
	}
	store := new(requesttest.Memory)
	r.options.RequestStore = request.Lifecycle{Store: store}
	r.options.Context = map[string]any{"run_id": "run-9"}
	result := r.run(t)
	wantStatus(t, result, "runtime_tool_pending")
	pending := value.Assoc(result["runtime_tool_pending"])
	if pending["run_id"] != "run-9" || !value.Equal(value.Assoc(pending["metadata"])["turn_count"], 1) {
		t.Fatalf("pending %v", pending)
	}
	stored, err := store.Get(t.Context(), value.Text(pending["request_id"]))
	if err != nil || stored["tool_name"] != "client/pick" {
		t.Fatalf("stored %v, %v", stored, err)
	}
	if diff := cmp.Diff([]string{"1", "2"}, r.executed); diff != "" {
		t.Fatal(diff)
	}
	if results := result["tool_execution_results"].([]any); len(results) != 1 {
		t.Fatalf("results %v", results)
	}
	if last := r.names[len(r.names)-1]; last != "completed" || !r.saw("runtime_tool_pending") {
		t.Fatalf("events %v", r.names)
	}
	noOrphans(t, result)
}

func TestMediatorMayMakeAToolWait(t *testing.T) {
	r := newRig(calls("1", "a/read", "2", "a/read"))
	r.options.Mediator = loop.MediatorFunc(func(context.Context, loop.Proposal) (any, error) {
		return map[string]any{"action": "pending", "metadata": map[string]any{"k": 1}}, nil
	})
	store := new(requesttest.Memory)
	r.options.RequestStore = request.Lifecycle{Store: store}
	result := r.run(t)
	wantStatus(t, result, "runtime_tool_pending")
	pending := value.Assoc(result["runtime_tool_pending"])
	if len(r.executed) != 0 || !value.Equal(pending["parameters"], map[string]any{"id": "1"}) {
		t.Fatalf("executed %v, %v", r.executed, pending)
	}
	// The request of a mediator says in its metadata that it waits, as that of an executed tool does.
	stored, err := store.Get(t.Context(), value.Text(pending["request_id"]))
	if err != nil {
		t.Fatal(err)
	}
	messages := transcript(t, result)
	told := value.Assoc(messages[len(messages)-1].Payload["result"])
	for where, one := range map[string]map[string]any{"result": pending, "store": stored, "transcript": told} {
		want := map[string]any{"k": 1, "status": "runtime_tool_pending", "turn_count": 1}
		if !value.Equal(value.Assoc(one["metadata"]), want) {
			t.Errorf("%s: metadata %v, want %v", where, one["metadata"], want)
		}
	}
	events, _ := value.List(result["tool_events"])
	last := value.Assoc(events[len(events)-1])
	if last["type"] != "runtime_tool_pending" || value.Assoc(last["metadata"])["status"] != "runtime_tool_pending" {
		t.Errorf("the last event of a tool is %v", last)
	}
}

func TestApprovalWithoutAnEnvelopeIsAFailure(t *testing.T) {
	r := newRig(calls("1", "a/read"))
	r.execute = func(context.Context, tool.Call) (map[string]any, error) {
		return map[string]any{"type": "approval_required", "role": "", "content": "?"}, nil
	}
	result := r.run(t)
	wantStatus(t, result, "completed")
	executed := value.Assoc(value.Assoc(result["tool_execution_results"].([]any)[0])["result"])
	if yes(executed["success"]) || value.Assoc(executed["metadata"])["error_type"] != "invalid_approval_envelope" {
		t.Fatalf("result %v", executed)
	}
	noOrphans(t, result)
}

func TestGateHoldsTheModel(t *testing.T) {
	r := newRig(calls("1", "a/read"), calls("2", "a/read"), calls("3", "a/read"),
		map[string]any{"content": "I am done", "tool_calls": []any{}}, calls("4", "b/write"))
	r.options.ToolCallRules = []any{map[string]any{
		"id": "bounded discovery!", "after_tool": "a/read", "limited_tool_names": "a/read", "max_calls": "1",
		"then_require_one_of": []any{"b/write"},
	}}
	asked := 0
	r.options.Mediator = loop.MediatorFunc(func(context.Context, loop.Proposal) (any, error) {
		asked++
		return nil, nil
	})
	result := r.run(t)
	wantStatus(t, result, "completed")
	// The anchor is the last a/read, after which no a/read was called: nothing is refused, only the end is.
	if diff := cmp.Diff([]string{"1", "2", "3", "4"}, r.executed); diff != "" || asked != 4 {
		t.Fatalf("asked %d: %s", asked, diff)
	}
	if diff := cmp.Diff([]string{"tool_call_gate_completion_blocked"}, recorded(result)); diff != "" {
		t.Fatal(diff)
	}
	if got := r.payloads["tool_call_gate_completion_blocked"][0]["rule_id"]; got != "bounded-discovery" {
		t.Fatalf("rule %v", got)
	}
}

func TestGateRejectsBeforeTheMediator(t *testing.T) {
	r := newRig(calls("1", "b/write", "2", "a/read", "3", "a/read", "4", "client/pick"))
	r.options.ToolCallRules = []any{map[string]any{
		"after_tool": "b/write", "limited_tools": []any{"a/read"}, "max_calls": 1, "require_one_of": []any{"client/pick"},
		"gate_completion": "off",
	}}
	asked := 0
	r.options.Mediator = loop.MediatorFunc(func(context.Context, loop.Proposal) (any, error) {
		asked++
		return nil, nil
	})
	result := r.run(t)
	if diff := cmp.Diff([]string{"1", "2", "4"}, r.executed); diff != "" || asked != 3 {
		t.Fatalf("asked %d: %s", asked, diff)
	}
	refused := value.Assoc(value.Assoc(result["tool_execution_results"].([]any)[2])["result"])
	metadata := value.Assoc(refused["metadata"])
	want := map[string]any{
		"rule_id": "tool-call-rule-0", "after_tool": "b/write", "limited_tools": []any{"a/read"}, "limited_count": 1,
		"max_calls": 1, "require_one_of": []any{"client/pick"}, "rejected_tool": "a/read",
	}
	if metadata["error_type"] != "tool_call_gate_rejected" || !value.Equal(metadata["tool_call_gate"], want) {
		t.Fatalf("metadata %v", metadata)
	}
}

func TestRequiredToolUse(t *testing.T) {
	r := newRig(map[string]any{"content": "I would read.", "tool_calls": []any{}}, calls("1", "a/read"))
	r.options.ToolCallRules = []any{map[string]any{"require_tool_use": "yes"}}
	result := r.run(t)
	if diff := cmp.Diff([]string{"1"}, r.executed); diff != "" {
		t.Fatal(diff)
	}
	if diff := cmp.Diff([]string{"tool_call_gate_completion_blocked"}, recorded(result)); diff != "" {
		t.Fatal(diff)
	}
}

func TestBadToolCallsAreSkipped(t *testing.T) {
	r := newRig(map[string]any{"tool_calls": []any{
		"text", map[string]any{}, map[string]any{"name": ""}, map[string]any{"name": 5},
		map[string]any{"tool_name": "a/read", "parameters": "none", "tool_call_id": " own "},
		map[string]any{"name": "a/read"},
	}})
	result := r.run(t)
	if diff := cmp.Diff([]string{"own", "tool-call-1-6"}, r.executed); diff != "" {
		t.Fatal(diff)
	}
	noOrphans(t, result)
}

func TestRecordsCarryTheNameOfTheModel(t *testing.T) {
	r := newRig(calls("1", "a__read"))
	result := r.run(t)
	executed := value.Assoc(result["tool_execution_results"].([]any)[0])
	if executed["tool_name"] != "a__read" || value.Assoc(executed["result"])["tool_name"] != "a/read" {
		t.Fatalf("executed %v", executed)
	}
}

func TestIdenticalFailuresNudge(t *testing.T) {
	same := func() any {
		turn := calls("x", "a/read")
		delete(turn["tool_calls"].([]any)[0].(map[string]any), "id")
		return turn
	}
	r := newRig(same, same, same)
	r.execute = func(context.Context, tool.Call) (map[string]any, error) { return nil, errTest }
	r.options.FailureTracker = loop.NewConsecutiveFailures(0)
	result := r.run(t)
	if len(r.payloads["identical_failure_nudged"]) != 2 {
		t.Fatalf("events %v", r.names)
	}
	payload := r.payloads["identical_failure_nudged"][1]
	if payload["repeat_count"] != 3 || payload["error_code"] != "executor_exception" {
		t.Fatalf("payload %v", payload)
	}
	nudged := slices.ContainsFunc(transcript(t, result), func(message envelope.Envelope) bool {
		return message.Role == "assistant" && message.Metadata["type"] == "identical_failure_nudge"
	})
	if !nudged {
		t.Fatal("no nudge in the transcript")
	}
	noOrphans(t, result)
}

func TestDiagnosticsGoIntoAllRecords(t *testing.T) {
	r := newRig(calls("1", "a/read"))
	r.options.Diagnostics = func(_ context.Context, about map[string]any) (map[string]any, error) {
		wanted := []string{
			"parameters_sha256", "result", "success", "tool_call_id", "tool_declaration", "tool_name", "turn", "turn_context",
		}
		if got := slices.Sorted(maps.Keys(about)); !slices.Equal(wanted, got) {
			t.Errorf("about %v", got)
		}
		return map[string]any{"cost": 3}, nil
	}
	result := r.run(t)
	executed := value.Assoc(result["tool_execution_results"].([]any)[0])
	if !value.Equal(executed["diagnostics"], map[string]any{"cost": 3}) || !r.saw("tool_result_diagnostics") {
		t.Fatalf("executed %v, events %v", executed, r.names)
	}
	if diff := cmp.Diff([]string{"tool_result_diagnostics"}, recorded(result)); diff != "" {
		t.Fatal(diff)
	}
}
