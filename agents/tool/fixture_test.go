package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"inbox/agents/envelope"
	"inbox/agents/envelope/fixturetest"
)

func TestRecordedDeclarations(t *testing.T) {
	inputs := recordedInputs(t, "tool-declaration")
	fixturetest.Run(t, "tool-declaration", func(c fixturetest.Case) (any, error) {
		switch c.Op {
		case "normalize":
			return declared(NormalizeClient(c.Input))
		case "server":
			return declared(NormalizeServer(c.Input))
		case "request":
			return declared(NormalizeRequest(c.Input))
		case "validate":
			return list(ValidateClient(c.Input)), nil
		case "validate_server":
			return list(ValidateServer(c.Input)), nil
		case "provider_safe_name":
			return ProviderSafeName(envelope.Text(c.Input)), nil
		case "canonical_name":
			tools, err := DecodeEntries(memberOf(inputs[c.Name], "tools"))
			if err != nil {
				return nil, err
			}
			return CanonicalName(envelope.Text(c.Object()["tool_name"]), tools), nil
		}
		return nil, errors.New("unknown operation " + c.Op)
	})
}

func declared(declaration *Declaration, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return declaration.Object(), nil
}

// recordedInputs gives the text of every input by the name of its case: the order of members counts for some.
func recordedInputs(t *testing.T, kind string) map[string]json.RawMessage {
	t.Helper()
	directory := os.Getenv("AGENTS_API_FIXTURES")
	if directory == "" {
		directory = filepath.Join("..", "testdata", "agents-api")
	}
	text, err := os.ReadFile(filepath.Join(directory, kind+".json"))
	if err != nil {
		t.Fatalf("recorded cases of kind %s are missing: %v", kind, err)
	}
	var document struct {
		Cases []struct {
			Name  string          `json:"name"`
			Input json.RawMessage `json:"input"`
		} `json:"cases"`
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&document); err != nil {
		t.Fatal(err)
	}
	inputs := map[string]json.RawMessage{}
	for _, c := range document.Cases {
		inputs[c.Name] = c.Input
	}
	return inputs
}
