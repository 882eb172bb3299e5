package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
	"inbox/normalized"
)

// keeping keeps the conversation results of a turn and holds each to the contract.
func keeping(t *testing.T, turn *agents.Turn) *[]map[string]any {
	t.Helper()
	var kept []map[string]any
	turn.KeepResult = func(document []byte) {
		if len(document) > agents.MaxResult {
			t.Errorf("the result has %d bytes", len(document))
		}
		given, err := value.Decode(document, value.Limits{Bytes: agents.MaxResult, Depth: 128})
		if err != nil {
			t.Fatal(err)
		}
		result, err := envelope.NormalizeResult(given)
		if err != nil {
			t.Fatal(err)
		}
		if !value.Equal(result, given) {
			t.Errorf("normalizing changes the result:\n%s\nto\n%s", document, value.EncodeText(result))
		}
		kept = append(kept, result)
	}
	return &kept
}

// recordedResult returns the result of a recorded run.
func recordedResult(t *testing.T, name string) map[string]any {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "testdata", "agents-api", "loop-traces.json"))
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Cases []struct {
			Name     string
			Expected struct{ OK map[string]any }
		}
	}
	if err := json.Unmarshal(content, &recorded); err != nil {
		t.Fatal(err)
	}
	for _, one := range recorded.Cases {
		if one.Name == name {
			return one.Expected.OK
		}
	}
	t.Fatalf("no case %q", name)
	return nil
}

// names returns the members of an object or of the first entry of a list.
func names(given any) string {
	if list, is := value.List(given); is && len(list) > 0 {
		given = list[0]
	}
	return strings.Join(slices.Sorted(maps.Keys(value.Assoc(given))), " ")
}

func TestResultHasTheRecordedShape(t *testing.T) {
	tools := &toolbox{entries: []tool.Entry{declare("find", nil)}, run: func(context.Context, tool.Call) (map[string]any, error) {
		return map[string]any{"success": true, "result": map[string]any{"ok": true}}, nil
	}}
	agent := newAgent(t, Options{Provider: scripted(calls("find", `{"q":"secret words","api_key":"hunter2"}`), says("done")), Tools: []Tools{tools}})
	turn := question("shape")
	turn.Message.History = []normalized.HistoricalMessage{{Role: normalized.RoleUser, Sender: turn.Message.Sender, Parts: []normalized.Part{normalized.Text("words of an earlier turn")}}}
	kept := keeping(t, &turn)
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
		t.Fatal(err)
	}
	if len(*kept) != 1 {
		t.Fatalf("%d results", len(*kept))
	}

	result, recorded := (*kept)[0], recordedResult(t, "mediated call then natural finish")
	if names(result) != names(recorded) {
		t.Errorf("members are\n%s\nwant\n%s", names(result), names(recorded))
	}
	for _, list := range []string{"tool_audit_events", "tool_execution_results", "tool_events", "run_outcome", "tool_observability"} {
		got, want := names(result[list]), names(recorded[list])
		if list == "tool_execution_results" {
			got = strings.Replace(got, "runtime ", "", 1) // of a declaration that has one
		}
		if got != want {
			t.Errorf("%s has %s; want %s", list, got, want)
		}
	}

	document := value.EncodeText(result)
	if strings.Contains(document, "hunter2") || strings.Contains(document, "words of an earlier turn") {
		t.Error("the result holds a secret, or the words of another turn: " + document)
	}
	if audit := value.EncodeText(result["tool_audit_events"]); strings.Contains(audit, "secret words") {
		t.Error("the audit holds parameters: " + audit)
	}
	about := value.Assoc(result["request_metadata"])
	if left, _ := value.Integer(about["history_messages_left_out"]); left != 1 || about["run_id"] != turn.ID || about["model"] != "test-model" {
		t.Errorf("request_metadata %v", about)
	}
	if used := value.EncodeText(value.Assoc(about["budgets"])["tool_calls"]); used != `{"current":1,"limit":40}` {
		t.Errorf("budgets %s", used)
	}
}

// A run that waits has its result with the note; the run that goes on has its own, and a run that only waits again has none.
func TestEachRunHasItsResult(t *testing.T) {
	box := newOutsideBox(nil)
	requests := newOutside()
	agent := newAgent(t, Options{Provider: scripted(calls("client__pick", `{"item":"milk","token":"hunter2"}`), says("three")), Tools: []Tools{box}})
	turn := question("parks")
	turn.Memory, turn.Requests = &memory{}, requests
	kept := keeping(t, &turn)
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
		t.Fatal(err)
	}
	if len(*kept) != 1 || (*kept)[0]["status"] != envelope.StatusRuntimeToolPending || strings.Contains(value.EncodeText((*kept)[0]), "hunter2") {
		t.Fatalf("%s", value.EncodeText(*kept))
	}

	id := requests.keep(t)
	turn.Attempt++
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil || len(*kept) != 1 {
		t.Fatalf("%d results, %v", len(*kept), err)
	}

	requests.submit(t, id, map[string]any{"result": map[string]any{"in_stock": 3}})
	turn.Attempt++
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil || len(*kept) != 2 {
		t.Fatalf("%d results, %v", len(*kept), err)
	}
	last := (*kept)[1]
	if last["final_content"] != "three" || value.Assoc(last["run_outcome"])["status"] != envelope.StatusCompleted {
		t.Errorf("%s", value.EncodeText(last))
	}
	for _, list := range []string{"tool_execution_results", "tool_audit_events"} {
		if calls, _ := value.List(last[list]); len(calls) != 1 || value.Assoc(calls[0])["tool_name"] != "client__pick" {
			t.Errorf("%s is %s", list, value.EncodeText(calls))
		}
	}
	if seen := value.EncodeText(last["tool_observability"]); !strings.Contains(seen, `"status":"succeeded"`) || !strings.Contains(seen, `"tool_name":"client/pick"`) {
		t.Errorf("tool_observability is %s", seen)
	}
	for _, message := range last["messages"].([]any) {
		if number, is := value.Integer(value.Assoc(value.Assoc(message)["payload"])["turn"]); is && number != 1 {
			t.Errorf("a call of turn %d", number)
		}
	}
}

func TestFailedAndConcludedRunsHaveResults(t *testing.T) {
	broken := modelFunc(func(context.Context, Request, func(Delta) bool) error {
		return fault.GiveUp(sayRefused, errors.New("no such model"))
	})
	turn := question("fails")
	kept := keeping(t, &turn)
	if _, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: broken}), turn); err == nil {
		t.Fatal("no failure")
	}
	if len(*kept) != 1 || value.Assoc((*kept)[0]["run_outcome"])["stop_reason"] != envelope.StopProviderError {
		t.Errorf("%s", value.EncodeText(*kept))
	}

	tools := &toolbox{entries: []tool.Entry{declare("find", nil)}, run: func(context.Context, tool.Call) (map[string]any, error) {
		return map[string]any{"success": true, "result": []any{}}, nil
	}}
	turn = question("concludes")
	kept = keeping(t, &turn)
	agent := newAgent(t, Options{Provider: scripted(calls("find", "{}"), says("as far as I know")), Tools: []Tools{tools}, ToolCalls: 1})
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
		t.Fatal(err)
	}
	if len(*kept) != 1 || (*kept)[0]["budget"] != loop.BudgetToolCalls || (*kept)[0]["final_content"] != "as far as I know" {
		t.Errorf("%s", value.EncodeText(*kept))
	}
}

// A result that is too large loses what is large, says so, and stays valid.
func TestLargeResultsFit(t *testing.T) {
	entries := func(size int) map[string]any {
		text := strings.Repeat("x", size)
		result := map[string]any{
			"messages": []any{}, "tool_execution_results": []any{}, "tool_audit_events": []any{}, "metadata": map[string]any{"stop": "end"}, "final_content": text,
		}
		for range 30 {
			outcome := map[string]any{"success": true, "tool_name": "find", "metadata": map[string]any{}, "result": text}
			result["messages"] = append(result["messages"].([]any), envelope.NewToolResult(text, "find", outcome, map[string]any{"tool_call_id": "c"}).Value())
			result["tool_execution_results"] = append(result["tool_execution_results"].([]any), map[string]any{
				"tool_name": "find", "tool_call_id": "c", "result": outcome, "parameters": map[string]any{"q": text[:size/10]}, "turn_count": 1,
			})
			result["tool_audit_events"] = append(result["tool_audit_events"].([]any), map[string]any{
				"type": "tool_call", "tool_name": "find", "tool_call_id": "c", "parameters_sha256": "sha256:0", "result_sha256": "sha256:1",
				"schema_version": 1, "turn_count": 1, "success": true,
			})
		}
		normalized, err := envelope.NormalizeResult(result)
		if err != nil {
			t.Fatal(err)
		}
		return normalized
	}

	for size, want := range map[int]string{
		1 << 10:   "",
		15 << 10:  leftResults,
		32 << 10:  leftResults + "," + leftContents,
		1 << 20:   leftResults + "," + leftContents + "," + leftMessages + "," + leftRest,
		350 << 10: leftResults + "," + leftContents + "," + leftMessages + "," + leftRest,
	} {
		document, err := fitting(entries(size))
		if err != nil || len(document) > agents.MaxResult {
			t.Fatalf("%d: %d bytes, %v", size, len(document), err)
		}
		given, err := value.Decode(document, value.Limits{Bytes: agents.MaxResult, Depth: 128})
		if err != nil {
			t.Fatal(err)
		}
		result, err := envelope.NormalizeResult(given)
		if err != nil {
			t.Fatal(err)
		}
		left, _ := value.List(value.Assoc(value.Assoc(result["metadata"])["left_out"])["members"])
		if got := strings.Join(value.Words(left), ","); got != want {
			t.Errorf("%d: left out is %s; want %s", size, got, want)
		}
		if audit, _ := value.List(result["tool_audit_events"]); len(audit) != 30 || value.Assoc(result["metadata"])["stop"] != "end" {
			t.Errorf("%d: the audit has %d events", size, len(audit))
		}
	}
}

// logged returns what is written to the log while work runs.
func logged(t *testing.T, work func()) string {
	t.Helper()
	var out bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	defer slog.SetDefault(before)
	work()
	return out.String()
}

// rejects is a toolbox of a source that could not declare one of its tools.
type rejects struct{ *toolbox }

func (rejects) Rejected() []tool.Rejection {
	return []tool.Rejection{{Name: "notes/Broken", Reason: "read schema: it is not of type object"}}
}

// twice finds a conversation complete in its second turn.
type twice struct{}

func (twice) RecordToolResult(_ context.Context, result loop.ToolResult) (loop.Decision, error) {
	return loop.Decision{
		Complete: result.Turn > 1, Message: "words for the model", Context: map[string]any{"reason": "enough", "words": "of the policy"},
	}, nil
}

func TestLoopEventsAreOnTheTimelineAndInTheLog(t *testing.T) {
	completes := func(_ context.Context, _ agents.Turn, options *loop.Options) {
		options.CompletionPolicy = twice{}
	}
	large := &toolbox{entries: []tool.Entry{declare("find", nil), {Value: map[string]any{"name": "Bad Name", "description": "d"}}}, run: func(context.Context, tool.Call) (map[string]any, error) {
		return map[string]any{"success": true, "result": strings.Repeat("words of a tool ", 4<<10)}, nil
	}}
	broken := &toolbox{entries: []tool.Entry{{Name: "odd", Value: "words"}}}

	for name, c := range map[string]struct {
		options Options
		want    []string // in order, without other rows
		level   string
	}{
		"rejected": {
			Options{Provider: scripted(says("hello")), Tools: []Tools{rejects{large}}}, []string{
				`tool_declarations_rejected {"accepted_count":1,"rejected":[{"name":"Bad Name","reason":"invalid_conversation_tool_declaration: name"},{"name":"notes/Broken","reason":"read schema: it is not of type object"}],"rejected_count":2}`,
			}, "WARN",
		},
		"disabled": {
			Options{Provider: scripted(says("hello")), Tools: []Tools{broken}}, []string{
				`tool_declarations_rejected {"accepted_count":0,"rejected":[{"name":"odd","reason":"declaration must be an array"}],"rejected_count":1}`,
				`tool_mediation_disabled {"reason":"all_declarations_rejected","rejected":[{"name":"odd","reason":"declaration must be an array"}],"rejected_count":1}`,
			}, "WARN",
		},
		"budget": {
			Options{Provider: scripted(calls("find", "{}"), says("done")), Tools: []Tools{&toolbox{entries: large.entries[:1], run: func(context.Context, tool.Call) (map[string]any, error) {
				return map[string]any{"success": true}, nil
			}}}, ToolCalls: 1}, []string{`budget_exceeded {"budget":"tool_calls","ceiling":1,"current":1,"dimension":"tool_calls"}`}, "WARN",
		},
		"truncated and complete": {
			Options{Provider: scripted(calls("find", `{"a":1}`), calls("find", `{"a":2}`)), Tools: []Tools{&toolbox{entries: large.entries[:1], run: large.run}}, Configure: completes}, []string{
				`tool_result_truncated {"excerpt_bytes":32768,`, `completion_policy_continue {"reason":"enough","tool_name":"find","turn":1}`,
				`tool_result_truncated {"excerpt_bytes":32768,`, `completion_policy_stop {"reason":"enough","tool_name":"find","turn":2}`,
			}, "INFO",
		},
	} {
		turn := question("events")
		var rows []string
		turn.Steps = func(kind string, body any) {
			if _, is := loopEvents[kind]; is {
				rows = append(rows, kind+" "+value.EncodeText(body))
			}
		}
		said := logged(t, func() { _, _, _ = fold(t.Context(), t, newAgent(t, c.options), turn) })
		if !slices.EqualFunc(rows, c.want, strings.HasPrefix) {
			t.Errorf("%s: the timeline is\n%s\nwant\n%s", name, strings.Join(rows, "\n"), strings.Join(c.want, "\n"))
		}
		for _, want := range c.want {
			event, _, _ := strings.Cut(want, " ")
			count := 0
			for line := range strings.Lines(said) {
				if strings.Contains(line, "event="+event+" ") && strings.Contains(line, "level="+c.level) {
					count++
				}
			}
			if count != strings.Count(strings.Join(c.want, "\n"), event+" ") {
				t.Errorf("%s: the log has %s %d times:\n%s", name, event, count, said)
			}
		}
		if all := said + strings.Join(rows, ""); strings.Contains(all, "words for") || strings.Contains(all, "words of") {
			t.Errorf("%s: contents are told: %s", name, all)
		}
	}
}
