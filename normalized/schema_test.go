package normalized

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"inbox/identity"
	"inbox/internal/golden"
	"inbox/policypart"
)

const schemaDirectory = "../docs/schema"

func TestSchemaFilesAreCurrent(t *testing.T) {
	schemas := Schemas()
	for name, want := range schemas {
		got, err := os.ReadFile(filepath.Join(schemaDirectory, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/schema/%s is not current (%v): run make generate", name, err)
		}
	}
	files, err := os.ReadDir(schemaDirectory)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if schemas[file.Name()] == nil {
			t.Errorf("docs/schema/%s is written by nobody: remove it", file.Name())
		}
	}
}

// compiled reads the files from docs/schema, as a stranger would.
func compiled(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	s, err := compiler.Compile(filepath.Join(schemaDirectory, name))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func validates(s *jsonschema.Schema, body []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return s.Validate(value)
}

func TestSchemasAcceptWhatTheEncoderWrites(t *testing.T) {
	message, response, delta := compiled(t, "message.json"), compiled(t, "response.json"), compiled(t, "delta.json")
	evidence, policy := compiled(t, "evidence.json"), compiled(t, "policy-part.json")
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		accept(t, message, encoded(t, m.AppendJSON))
		r := drawResponse(t, &m)
		accept(t, response, encoded(t, r.AppendJSON))
		for d := range split(t, r) {
			accept(t, delta, encoded(t, d.AppendJSON))
		}
		for _, e := range m.Sender.Identities {
			accept(t, evidence, standard(t, e))
		}
		if p := r.Policy(); p != nil {
			accept(t, policy, standard(t, p))
		}
	})
}

func accept(t *rapid.T, s *jsonschema.Schema, body []byte) {
	if err := validates(s, body); err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
}

func standard(t *rapid.T, value any) []byte {
	body, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// TestSchemasRefuseWhatValidateRefuses goes through every broken message and response of the table tests.
func TestSchemasRefuseWhatValidateRefuses(t *testing.T) {
	message, response := compiled(t, "message.json"), compiled(t, "response.json")
	for name, c := range brokenMessages() {
		m := goodMessage()
		c.change(&m)
		refuse(t, message, name, m.AppendJSON, c.unexpressed)
	}
	for name, c := range brokenResponses() {
		r := goodResponse()
		c.change(&r)
		refuse(t, response, name, r.AppendJSON, c.unexpressed)
	}
}

func refuse(t *testing.T, s *jsonschema.Schema, name string, appendJSON func([]byte) ([]byte, error), unexpressed bool) {
	body, err := appendJSON(nil)
	if err != nil {
		return // never written
	}
	switch refused := validates(s, body) != nil; {
	case !refused && !unexpressed:
		t.Errorf("%s: the schema accepts it", name)
	case refused && unexpressed:
		t.Errorf("%s: the schema does refuse it", name)
	}
}

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
		compare(t, name, appendJSON)
	}
}

func compare(t *testing.T, name string, appendJSON func([]byte) ([]byte, error)) {
	t.Helper()
	body, err := appendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, name, golden.Indented(t, append(body, '\n')))
}

func TestStatusWordsAreThoseOfPolicyParts(t *testing.T) {
	if policypart.ResponseFailed != StatusFailed || policypart.ResponseInputRequired != StatusInputRequired {
		t.Error("policypart and normalized name the status differently")
	}
}
