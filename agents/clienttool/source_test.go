package clienttool

import (
	"strings"
	"testing"
	"time"

	"inbox/agents"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
)

const schema = `{"type":"object","properties":{"item":{"type":"string"}},"required":["item"]}`

func TestDeclarationsPassTheRulesForClients(t *testing.T) {
	source, err := NewSource([]Tool{
		{Name: "look_up", Description: "Looks up.", Parameters: []byte(schema), Timeout: time.Minute, Action: "preview", DuplicatePolicy: "at_most_once", Untrusted: true},
		{Name: "ping", Description: "Pings."},
	})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := source.Declarations(t.Context(), agents.Turn{})
	if err != nil {
		t.Fatal(err)
	}
	declared, rejected := tool.Declare(entries)
	if len(rejected) > 0 || declared.Len() != 2 {
		t.Fatalf("%d declared, rejected: %v", declared.Len(), rejected)
	}
	found, _ := declared.Get("client/look_up")
	if found.Field("executor") != tool.ExecutorClient || found.Source() != "client" || tool.Repeatable(found) || !tool.Strange(found) || found.Field("action_policy") != "preview" {
		t.Errorf("declared %v", found.Object())
	}
	if ping, _ := declared.Get("client/ping"); !tool.Repeatable(ping) || tool.Strange(ping) {
		t.Errorf("declared %v", ping.Object())
	}
}

func TestExecuteAsksThePrograms(t *testing.T) {
	source, err := NewSource([]Tool{{Name: "look_up", Description: "Looks up.", Parameters: []byte(schema), Timeout: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	entries, _ := source.Declarations(t.Context(), agents.Turn{})
	declared, _ := tool.Declare(entries)
	turn := map[string]any{"run_id": "t1", "agent": "helper", "thread_id": "th", "caller_context": map[string]any{"address": "@ann@x.test"}}
	prepared, failure := tool.Prepare(tool.ModelCall{Name: "client__look_up", Parameters: map[string]any{"item": "milk"}, ID: "c1"}, declared, turn)
	if failure != nil {
		t.Fatal(failure)
	}
	before := time.Now()
	result := tool.Execute(t.Context(), prepared, tool.Executors{Default: source})
	raw, waits := tool.PendingRequest(result, tool.RequestDefaults{ToolName: "client__look_up", CallID: "c1", Context: turn})
	if !waits {
		t.Fatalf("the result is %v", result)
	}
	asked, err := request.Normalize(raw)
	if err != nil {
		t.Fatal(err)
	}
	for member, want := range map[string]any{
		"request_id": request.ID("t1", "client/look_up", "c1"), "tool_name": "client/look_up", "tool_call_id": "c1", "run_id": "t1",
		"parameters": map[string]any{"item": "milk"},
	} {
		if !value.Equal(want, asked[member]) {
			t.Errorf("%s = %v, want %v", member, asked[member], want)
		}
	}
	if due, has := request.TimeoutAt(asked); !has || due.Before(before.Add(time.Minute)) || due.After(time.Now().Add(time.Minute)) {
		t.Errorf("it times out at %s", due)
	}
	if metadata := value.EncodeText(asked["metadata"]); !strings.Contains(metadata, "@ann@x.test") || !strings.Contains(metadata, "idempotency_key") {
		t.Errorf("metadata: %s", metadata)
	}
	if _, err := source.Execute(t.Context(), tool.Call{Name: "client/other"}); err == nil {
		t.Error("an unknown tool was executed")
	}
}

func TestToolsThatAreRefused(t *testing.T) {
	for name, tools := range map[string][]Tool{
		"a bad name":     {{Name: "Look Up", Description: "x"}},
		"another's name": {{Name: "client__a", Description: "x"}},
		"a namespace":    {{Name: "a/b", Description: "x"}},
		"no description": {{Name: "a", Description: " "}},
		"no JSON":        {{Name: "a", Description: "x", Parameters: []byte("{")}},
		"no object":      {{Name: "a", Description: "x", Parameters: []byte("[]")}},
		"a bad action":   {{Name: "a", Description: "x", Action: "never"}},
		"too long":       {{Name: "a", Description: "x", Timeout: 8 * 24 * time.Hour}},
		"twice":          {{Name: "a", Description: "x"}, {Name: "a", Description: "y"}},
	} {
		if _, err := NewSource(tools); !fault.Is(err, fault.Malformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
