package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/envelope/fixturetest"
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
		directory = filepath.Join("..", "..", "testdata", "agents-api")
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

func TestRecordedPolicies(t *testing.T) {
	inputs := recordedInputs(t, "tool-policy")
	fixturetest.Run(t, "tool-policy", func(c fixturetest.Case) (any, error) {
		switch c.Op {
		case "visible":
			tools, err := DecodeEntries(memberOf(inputs[c.Name], "tools"))
			if err != nil {
				return nil, err
			}
			return list(Visible(tools, envelope.Assoc(c.Object()["context"]), VisibilityOptions{})), nil
		case "action":
			return ResolveAction(orderedCategories(t, c.Object(), inputs[c.Name]), ActionOptions{}), nil
		}
		return nil, errors.New("unknown operation " + c.Op)
	})
}

// orderedCategories puts the categories of both places into the order of the text.
func orderedCategories(t *testing.T, context map[string]any, text json.RawMessage) map[string]any {
	t.Helper()
	order := func(policy map[string]any, text json.RawMessage) {
		raw := memberOf(text, "categories")
		if raw == nil {
			return
		}
		entries, err := DecodeEntries(raw)
		if err != nil {
			t.Fatal(err)
		}
		policy["categories"] = entries
	}
	order(envelope.Assoc(context["action_policy"]), memberOf(text, "action_policy"))
	config := envelope.Assoc(context["agent_config"])
	order(envelope.Assoc(config["action_policy"]), memberOf(memberOf(text, "agent_config"), "action_policy"))
	return context
}
