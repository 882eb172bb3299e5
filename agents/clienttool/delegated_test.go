package clienttool

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/tool/request"
	"inbox/internal/fault"
)

func TestControlPlaneStaysWithTheOperator(t *testing.T) {
	b := newBench(t)
	for i, runtime := range []map[string]any{
		{"capability_scope": "control_plane"}, {"environment": "control_plane", "capability_scope": "runtime_local"},
		{"environment": "runtime_local", "capability_scope": "runtime_local"}, nil,
	} {
		_, err := request.Lifecycle{Store: b.requests.store}.Create(t.Context(), map[string]any{
			"request_id": fmt.Sprint("r", i), "tool_name": "client/push", "tool_call_id": "c", "parameters": map[string]any{}, "run_id": "r", "runtime": runtime,
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	_, listed := b.call(http.MethodGet, "?limit=2", testToken, "")
	if text := fmt.Sprint(listed); strings.Contains(text, "r0") || strings.Contains(text, "r1") || !strings.Contains(text, "r2") || !strings.Contains(text, "r3") {
		t.Errorf("a program reads %s", text)
	}
	for _, id := range []string{"r0", "r1"} {
		for _, call := range [][2]string{{http.MethodGet, ""}, {http.MethodPost, "/submit"}, {http.MethodPost, "/timeout"}, {http.MethodPost, "/cancel"}} {
			if status, answer := b.call(call[0], "/"+id+call[1], testToken, `{"result":1}`); status != http.StatusNotFound {
				t.Errorf("%s of %s: %d %v", call[1], id, status, answer)
			}
		}
		if stored, err := b.requests.store.Get(t.Context(), id); err != nil || !request.Pending(stored) {
			t.Errorf("%s is %v %v", id, stored, err)
		}
	}
	if status, answer := b.call(http.MethodPost, "/r2/submit", testToken, `{"result":1}`); status != http.StatusOK {
		t.Errorf("a tool of the runtime: %d %v", status, answer)
	}
}

func (b *bench) policy(token string) (status int, policy map[string]any) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+"/v1/tools/helper/policy", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(&policy); err != nil {
		b.t.Fatal(err)
	}
	return response.StatusCode, policy
}

// TestPolicyOfADelegatedRuntime: the route gives the recorded form, of the tools that the operator declared.
//
//contract:shows runtime-71
func TestPolicyOfADelegatedRuntime(t *testing.T) {
	b := newBench(t)
	source, err := NewSource([]Tool{
		{Name: "look_up", Description: "Looks up.", CompletionSignal: "progress", DuplicatePolicy: "once"},
		{Name: "push", Description: "Pushes.", CapabilityScope: "control_plane"},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.service.Open(map[string]*Source{"helper": source})
	status, policy := b.policy(testToken)
	tools, _ := policy["tools"].([]any)
	if status != http.StatusOK || policy["schema"] != "agents-api/runtime-tool-policy/v1" || len(tools) != 2 {
		t.Fatalf("%d %v", status, policy)
	}
	for i, want := range []string{
		"true client/look_up client_look_up sandbox runtime_local", "false client/push client_push sandbox control_plane",
	} {
		one, _ := tools[i].(map[string]any)
		if got := fmt.Sprint(one["allowed"], " ", one["id"], " ", one["runtime_tool_id"], " ", one["execution_location"], " ", one["capability_scope"]); got != want {
			t.Errorf("tool %d: %s; want %s", i, got, want)
		}
	}
	if status, _ := b.policy("inbox_other"); status != http.StatusUnauthorized {
		t.Errorf("a token of another agent: %d", status)
	}
	entries, _ := source.Declarations(t.Context(), agents.Turn{})
	declared, _ := tool.Declare(entries)
	if found, _ := declared.Get("client/look_up"); tool.Repeatable(found) || found.Runtime()["completion_signal"] != "progress" {
		t.Errorf("declared %v", found.Object())
	}
}

func TestRuntimeWordsAreChecked(t *testing.T) {
	for _, wrong := range []Tool{{DuplicatePolicy: "twice"}, {CompletionSignal: "done"}, {CapabilityScope: "everywhere"}, {Environment: "moon"}} {
		wrong.Name, wrong.Description = "a", "d"
		if _, err := NewSource([]Tool{wrong}); !fault.Is(err, fault.Malformed) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}
