package tool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
)

func prepare(t testing.TB, declaration, parameters string) Prepared {
	t.Helper()
	set := declare(t, "["+declaration+"]")
	prepared, failure := Prepare(ModelCall{Name: set.names[0], Parameters: decode(t, parameters).(map[string]any), ID: "c1"}, set, map[string]any{"run_id": "r1"})
	if failure != nil {
		t.Fatal(failure.Result)
	}
	return prepared
}

func answers(t testing.TB, text string) ExecutorFunc {
	t.Helper()
	value, _ := decode(t, text).(map[string]any)
	return func(context.Context, Call) (map[string]any, error) { return value, nil }
}

func TestExecuteNormalizes(t *testing.T) {
	declaration := `{"name": "wiki/read", "description": "d", "runtime": {"environment": "runtime_local", "a": 1}}`
	runtime := `"runtime": {"environment": "runtime_local", "a": 1}`
	for _, c := range []struct{ name, answer, want string }{
		{"result", `{"success": true, "result": {"n": 1}}`, `{"success": true, "tool_name": "wiki/read", "metadata": {}, "result": {"n": 1}, ` + runtime + `}`},
		{"no result", `{"success": "yes"}`, `{"success": true, "tool_name": "wiki/read", "metadata": {}, "result": [], ` + runtime + `}`},
		{"wrapped", `{"n": 1, "runtime": {"a": 2, "token": "x"}}`, `{"success": true, "tool_name": "wiki/read", "metadata": {},
			"result": {"n": 1, "runtime": {"a": 2, "token": "x"}}, "runtime": {"environment": "runtime_local", "a": 2, "token": "[redacted]"}}`},
		{"empty", `{}`, `{"success": true, "tool_name": "wiki/read", "metadata": {}, "result": [], ` + runtime + `}`},
		{"failure", `{"success": false, "error_type": " busy "}`, `{"success": false, "tool_name": "wiki/read", "metadata": {"error_type": "busy"}, "error": "Tool execution failed.", ` + runtime + `}`},
		{"error_type stays", `{"success": 0, "error": "quota", "error_type": "x", "metadata": {"error_type": "q"}}`,
			`{"success": false, "tool_name": "wiki/read", "metadata": {"error_type": "q"}, "error": "quota", ` + runtime + `}`},
		{"status and request", `{"success": false, "status": " runtime_tool_pending ", "runtime_tool_request": {"request_id": "1"}, "tool_name": "other", "metadata": 5}`,
			`{"success": false, "tool_name": "other", "metadata": {}, "status": "runtime_tool_pending", "runtime_tool_request": {"request_id": "1"}, "error": "Tool execution failed.", ` + runtime + `}`},
	} {
		got := Execute(t.Context(), prepare(t, declaration, `{}`), Executors{Default: answers(t, c.answer)})
		if want := decode(t, c.want); !value.Equal(got, want) {
			t.Errorf("%s: %s", c.name, cmp.Diff(want, got))
		}
	}
}

func TestExecutorOfItsOwnIsUnavailable(t *testing.T) {
	prepared := prepare(t, `{"name": "a", "description": "d", "runtime": {"executor_target": " gpu "}}`, `{}`)
	missing := Execute(t.Context(), prepared, Executors{Default: answers(t, `{}`)})
	want := map[string]any{"success": false, "tool_name": "a", "metadata": map[string]any{"error_type": "executor_target_unavailable"}, "error": "Tool execution target is unavailable."}
	if !value.Equal(missing, want) {
		t.Error(cmp.Diff(want, missing))
	}
}

func TestExecuteTurnsErrorsIntoResults(t *testing.T) {
	prepared := prepare(t, `{"name": "a", "description": "d", "runtime": {"environment": "control_plane"}}`, `{}`)
	for text, executor := range map[string]ExecutorFunc{
		"disk full": func(context.Context, Call) (map[string]any, error) { return nil, errors.New("disk full") },
		"Ask for less.": func(context.Context, Call) (map[string]any, error) {
			return nil, fmt.Errorf("tool: %w", fault.Wrap(fault.TooLarge, "Ask for less.", errors.New("private")))
		},
		"Tool execution failed.": func(context.Context, Call) (map[string]any, error) { panic("/etc/secret") },
	} {
		got := Execute(t.Context(), prepared, Executors{Default: executor})
		want := map[string]any{"success": false, "tool_name": "a", "metadata": map[string]any{"error_type": "executor_exception"},
			"runtime": map[string]any{"environment": "control_plane"}, "error": text}
		if !value.Equal(got, want) {
			t.Error(cmp.Diff(want, got))
		}
	}
}

// repeats remembers the calls of one test by their keys.
type repeats map[string]map[string]any

func (r repeats) Claim(_ context.Context, key string) (earlier map[string]any, claimed bool, err error) {
	earlier, taken := r[key]
	if !taken {
		r[key] = nil
	}
	return earlier, !taken, nil
}

func (r repeats) Keep(_ context.Context, key string, result map[string]any) error {
	r[key] = value.Clone(result)
	return nil
}

func TestDuplicatePolicyIsEnforced(t *testing.T) {
	for policy, runs := range map[string]int{"once": 1, "at_most_once": 1, "non_repeatable": 1, "repeatable": 2, "unknown": 2, "": 2} {
		declaration := `{"name": "pay", "description": "d"}`
		if policy != "" {
			declaration = `{"name": "pay", "description": "d", "runtime": {"duplicate_policy": "` + policy + `"}}`
		}
		ran := 0
		executors := Executors{Repeats: repeats{}, Default: ExecutorFunc(func(context.Context, Call) (map[string]any, error) {
			ran++
			return map[string]any{"run": ran}, nil
		})}
		first := Execute(t.Context(), prepare(t, declaration, `{"a": 1, "b": 2}`), executors)
		second := Execute(t.Context(), prepare(t, declaration, `{"b": 2, "a": 1}`), executors)
		if ran != runs {
			t.Errorf("%q ran %d times, want %d", policy, ran, runs)
		}
		if runs == 1 && (!value.Equal(first["result"], second["result"]) || !value.Flag(value.Assoc(second["metadata"])["repeated"])) {
			t.Errorf("%q: second answer %v", policy, second)
		}
		Execute(t.Context(), prepare(t, declaration, `{"a": 2}`), executors)
		if ran != runs+1 {
			t.Errorf("%q: other parameters ran %d times", policy, ran-runs)
		}
	}
}

func TestRepeatsWithoutResultAreNotRun(t *testing.T) {
	prepared := prepare(t, `{"name": "pay", "description": "d", "runtime": {"duplicate_policy": "at_most_once"}}`, `{}`)
	earlier := repeats{}
	if _, claimed, err := earlier.Claim(t.Context(), RepeatKey(prepared.Call)); !claimed || err != nil {
		t.Fatal(claimed, err)
	}
	got := Execute(t.Context(), prepared, Executors{Repeats: earlier, Default: ExecutorFunc(func(context.Context, Call) (map[string]any, error) {
		t.Error("the tool ran again")
		return nil, nil
	})})
	if value.Assoc(got["metadata"])["error_type"] != "earlier_call_unfinished" {
		t.Errorf("gives %v", got)
	}
}

func TestIdempotencyKey(t *testing.T) {
	one := prepare(t, `{"name": "a", "description": "d"}`, `{"x": 1, "y": 2}`).Call
	same := prepare(t, `{"name": "a", "description": "other"}`, `{"y": 2, "x": 1}`).Call
	other := prepare(t, `{"name": "a", "description": "d"}`, `{"x": 2, "y": 2}`).Call
	if one.IdempotencyKey() != same.IdempotencyKey() || one.IdempotencyKey() == other.IdempotencyKey() {
		t.Error("keys do not follow the parameters")
	}
}

func TestCitations(t *testing.T) {
	got := NormalizeResult(decode(t, `{"success": true, "metadata": {"citations": [
		{"source": " a ", "source_id": 5, "score": "0.50", "excerpt": "", "extra": {"x": 1}, "access_status": "partial"},
		{"source": true, "score": "high", "item_id": false, "fragment_id": null, "source_url": ["x"]}, {"source": " "}, "text", 5, {}], "keep": 1}}`).(map[string]any), "t")
	want := decode(t, `{"success": true, "tool_name": "t", "result": [], "metadata": {"keep": 1, "citations": [
		{"source": "a", "source_id": "5", "score": 0.5, "extra": {"x": 1}, "access_status": "partial"}, {"source": "1"}]}}`)
	if !value.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
	if none := envelope.Citations("x"); none == nil || len(none) != 0 {
		t.Errorf("a text gives %v", none)
	}
}

func TestDecisions(t *testing.T) {
	prepared := Prepared{ModelName: "wiki__read"}
	turn := map[string]any{"run_id": "r1", "runtime_tool_timeout_at": "2026-11-21T12:00:00Z"}
	for _, c := range []struct{ name, in, action, result, request string }{
		{"nothing", `null`, ActionProceed, `null`, `null`},
		{"text", `"reject"`, ActionProceed, `null`, `null`},
		{"unknown", `{"action": "stop", "complete": true}`, ActionProceed, `null`, `null`},
		{"no action", `{"complete": true}`, ActionProceed, `null`, `null`},
		{"reject", `{"action": " Reject ", "error": " no ", "metadata": {"a": 1}, "runtime": {"environment": "control_plane"}}`, ActionReject,
			`{"success": false, "tool_name": "wiki__read", "error": "no", "metadata": {"a": 1, "error_type": "pre_tool_mediation_rejected"}, "runtime": {"environment": "control_plane"}}`, `null`},
		{"reject with result", `{"action": "reject", "result": {"tool_name": "x", "error": "mine"}}`, ActionReject, `{"success": false, "tool_name": "x", "error": "mine", "metadata": {}}`, `null`},
		{"reject with result without name", `{"action": "reject", "result": {"error": "mine"}, "metadata": {"error_type": "e"}}`, ActionReject,
			`{"success": false, "tool_name": "wiki__read", "error": "Tool call rejected by pre-tool mediator.", "metadata": {"error_type": "e"}}`, `null`},
		{"replace", `{"action": "replace_result", "result": {"success": true, "result": {"n": 1}}}`, ActionReplace, `{"success": true, "tool_name": "wiki__read", "metadata": {}, "result": {"n": 1}}`, `null`},
		{"replace without result", `{"action": "replace_result", "result": "x"}`, ActionProceed, `null`, `null`},
		{"pending", `{"action": "pending", "request": {"request_id": "q", "tool_name": null}, "metadata": {"m": 1}}`, ActionPending,
			`{"success": false, "tool_name": "wiki__read", "status": "runtime_tool_pending", "error": "Waiting for external runtime tool result.", "metadata": {"m": 1, "status": "runtime_tool_pending"},
				"runtime_tool_request": {"request_id": "q", "tool_name": "wiki__read", "tool_call_id": "c1", "parameters": {"p": 1}, "run_id": "r1", "timeout_at": "2026-11-21T12:00:00Z", "runtime": {}, "metadata": {"m": 1, "status": "runtime_tool_pending"}}}`,
			`{"request_id": "q", "tool_name": "wiki__read", "tool_call_id": "c1", "parameters": {"p": 1}, "run_id": "r1", "timeout_at": "2026-11-21T12:00:00Z", "runtime": {}, "metadata": {"m": 1, "status": "runtime_tool_pending"}}`},
		{"pending, own metadata", `{"action": "pending", "request": {"request_id": "q", "metadata": {"own": 1}}, "metadata": {"m": 1}}`, ActionPending,
			`{"success": false, "tool_name": "wiki__read", "status": "runtime_tool_pending", "error": "Waiting for external runtime tool result.", "metadata": {"m": 1, "status": "runtime_tool_pending"},
				"runtime_tool_request": {"request_id": "q", "tool_name": "wiki__read", "tool_call_id": "c1", "parameters": {"p": 1}, "run_id": "r1", "timeout_at": "2026-11-21T12:00:00Z", "runtime": {}, "metadata": {"own": 1, "status": "runtime_tool_pending"}}}`,
			`{"request_id": "q", "tool_name": "wiki__read", "tool_call_id": "c1", "parameters": {"p": 1}, "run_id": "r1", "timeout_at": "2026-11-21T12:00:00Z", "runtime": {}, "metadata": {"own": 1, "status": "runtime_tool_pending"}}`},
	} {
		got := NormalizeDecision(decode(t, c.in), prepared, "c1", map[string]any{"p": 1}, turn)
		if got.Action != c.action {
			t.Errorf("%s: action %s, want %s", c.name, got.Action, c.action)
		}
		if !sameOrNone(got.Result, decode(t, c.result)) {
			t.Errorf("%s: result %s", c.name, cmp.Diff(decode(t, c.result), any(got.Result)))
		}
		if !sameOrNone(got.Request, decode(t, c.request)) {
			t.Errorf("%s: request %s", c.name, cmp.Diff(decode(t, c.request), any(got.Request)))
		}
	}
	if got := NormalizeDecision(map[string]any{"action": "reject", "complete": "1"}, prepared, "", nil, nil); !got.Complete {
		t.Error("complete is not read")
	}
}

func sameOrNone(got map[string]any, want any) bool {
	if want == nil {
		return got == nil
	}
	return value.Equal(got, want)
}

func TestPendingRequestOfResult(t *testing.T) {
	defaults := RequestDefaults{ToolName: "a", CallID: "c", Parameters: map[string]any{"p": 1}}
	if _, pending := PendingRequest(map[string]any{"status": "ok", "metadata": map[string]any{"status": StatusPending}}, defaults); pending {
		t.Error("metadata beats the status")
	}
	request, pending := PendingRequest(decode(t, `{"result": {"request_id": "q"}, "runtime": {"r": 1}, "metadata": {"status": "runtime_tool_pending"}}`).(map[string]any), defaults)
	want := decode(t, `{"request_id": "q", "tool_name": "a", "tool_call_id": "c", "parameters": {"p": 1}, "run_id": "", "timeout_at": "", "runtime": {"r": 1}, "metadata": {"status": "runtime_tool_pending"}}`)
	if !pending || !value.Equal(request, want) {
		t.Error(cmp.Diff(want, any(request)))
	}
}

func TestAuditEventHoldsNoParameters(t *testing.T) {
	prepared := prepare(t, `{"name": "wiki/read", "description": "d", "source": "abilities"}`, `{"q": "private question", "token": "sk-1"}`)
	result := ErrorResult("wiki/read", "private answer", map[string]any{"error_type": "busy"}, nil)
	event := AuditEvent(Outcome{Prepared: prepared, CallID: "c1", Turn: 2, Result: result})
	want := map[string]any{
		"schema_version": 1, "type": "tool_call", "turn_count": 2, "tool_name": "wiki/read", "tool_call_id": "c1", "tool_source": "abilities",
		"parameters_sha256": prepared.ParametersSHA256, "parameters_redacted": true, "success": false, "result_status": "error",
		"result_sha256": ResultHash(result), "error_type": "busy",
	}
	if difference := cmp.Diff(want, event); difference != "" {
		t.Error(difference)
	}
	if text := string(Canonical(event)); strings.Contains(text, "private") || strings.Contains(text, "sk-1") {
		t.Errorf("the record leaks: %s", text)
	}
	bare := AuditEvent(Outcome{Prepared: Prepared{ModelName: "x"}, Result: map[string]any{"success": true}})
	for _, name := range []string{"tool_source", "tool_call_id", "error_type", "parameters_sha256"} {
		if _, has := bare[name]; has {
			t.Errorf("an empty %s is kept", name)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	set := declare(b, `[{"name": "wiki/read", "description": "d", "parameters": {"required": ["title"], "properties": {"title": {"type": "string"}}}}]`)
	parameters := map[string]any{"title": "Home", "options": map[string]any{"limit": 5, "tags": []any{"a", "b"}}}
	executors := Executors{Default: answers(b, `{"success": true, "result": {"text": "page"}}`)}
	b.ReportAllocs()
	for b.Loop() {
		prepared, _ := Prepare(ModelCall{Name: "wiki__read", Parameters: parameters, ID: "c1"}, set, nil)
		result := Execute(b.Context(), prepared, executors)
		AuditEvent(Outcome{Prepared: prepared, CallID: "c1", Turn: 1, Result: result})
	}
}

// unsure claims without knowing whether the claim is stored.
type unsure struct{ repeats }

func (unsure) Claim(context.Context, string) (map[string]any, bool, error) {
	return nil, true, errors.New("the commit was not confirmed")
}

func TestCallWhoseClaimIsUnsureIsNotRun(t *testing.T) {
	prepared := prepare(t, `{"name": "pay", "description": "d", "runtime": {"duplicate_policy": "at_most_once"}}`, `{}`)
	got := Execute(t.Context(), prepared, Executors{Repeats: unsure{}, Default: ExecutorFunc(func(context.Context, Call) (map[string]any, error) {
		t.Error("the tool ran")
		return nil, nil
	})})
	if value.Assoc(got["metadata"])["error_type"] != "repeat_check_failed" {
		t.Errorf("gives %v", got)
	}
}
