package normalized

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"inbox/identity"
	"inbox/policypart"
)

var update = flag.Bool("update", false, "write the golden files")

// TestGoldenDocuments pins the wire form: what agents outside have learned to read does not change by accident.
func TestGoldenDocuments(t *testing.T) {
	m, r := goodMessage(), goodResponse()
	at := identity.At(m.ReceivedAt.Time)
	demand := Response{
		InReplyTo: m.ID, ThreadID: m.ThreadID, Status: StatusInputRequired,
		Parts: []Part{Text("One thing first."), {Kind: PartPolicy, Policy: &policypart.Part{
			Kind: policypart.Unauthorized, Message: "Please log in.", ExpiresAt: &at, URL: "https://here.test/policy/x",
			AuthChallenges: []policypart.Challenge{{Scheme: "Bearer", Params: map[string]string{"realm": "agents"}}},
		}}},
	}
	dispatch := Response{InReplyTo: m.ID, ThreadID: m.ThreadID, Dispatch: []Dispatch{
		{To: "@weather@b.test", Parts: []Part{Text("Will it rain in Graz?")}},
		{To: "@maps@b.test", Parts: []Part{Markdown("*Which* roads are closed?")}},
	}}
	call := Delta{Kind: DeltaToolCallEnd, Part: &Part{Kind: PartToolCall, ID: "1", Name: "search", Error: &ToolError{Message: "no answer"}}}
	for name, appendJSON := range map[string]func([]byte) ([]byte, error){
		"message.json": m.AppendJSON, "response.json": r.AppendJSON, "response-policy.json": demand.AppendJSON,
		"response-dispatch.json": dispatch.AppendJSON, "delta.json": call.AppendJSON,
	} {
		golden(t, name, appendJSON)
	}
}

func golden(t *testing.T, name string, appendJSON func([]byte) ([]byte, error)) {
	t.Helper()
	body, err := appendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, append(body, '\n'), "", "  "); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, indented.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(want, indented.Bytes()) {
		t.Errorf("%s: %v\n%s", name, err, indented.Bytes())
	}
}

func TestStatusWordsAreThoseOfPolicyParts(t *testing.T) {
	if policypart.ResponseFailed != StatusFailed || policypart.ResponseInputRequired != StatusInputRequired {
		t.Error("policypart and normalized name the status differently")
	}
}
