package tool

import (
	"encoding/json"
	"errors"
	"testing"

	"inbox/agents/runtime/envelope/fixturetest"
	"inbox/agents/runtime/value"
)

func TestRecordedDeclarations(t *testing.T) {
	fixturetest.Run(t, "tool-declaration", func(c fixturetest.Case) (any, error) {
		switch c.Op {
		case "normalize":
			return declared(NormalizeClient(c.Input))
		case "server":
			return declared(NormalizeServer(c.Input))
		case "request":
			return declared(NormalizeRequest(c.Input))
		case "validate":
			return value.Items(ValidateClient(c.Input)), nil
		case "validate_server":
			return value.Items(ValidateServer(c.Input)), nil
		case "provider_safe_name":
			return ProviderSafeName(value.Text(c.Input)), nil
		case "canonical_name":
			return canonicalName(t, c.Object(), fixturetest.MemberText(c.Text, "tools")), nil
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

// canonicalName resolves a name among declarations that the record leaves without description.
func canonicalName(t *testing.T, input map[string]any, tools json.RawMessage) string {
	t.Helper()
	entries := entriesOf(t, string(tools))
	for _, entry := range entries {
		value.Assoc(entry.Value)["description"] = "not recorded"
	}

	set, rejected := Declare(entries)
	if len(rejected) > 0 {
		t.Fatalf("rejected: %v", rejected)
	}
	return set.Resolve(value.Text(input["tool_name"]))
}

func TestRecordedPolicies(t *testing.T) {
	fixturetest.Run(t, "tool-policy", func(c fixturetest.Case) (any, error) {
		switch c.Op {
		case "visible":
			tools := entriesOf(t, string(fixturetest.MemberText(c.Text, "tools")))
			return value.Items(Visible(tools, value.Assoc(c.Object()["context"]))), nil
		case "action":
			return ResolveAction(orderedCategories(t, c.Object(), c.Text), nil), nil
		}
		return nil, errors.New("unknown operation " + c.Op)
	})
}

// orderedCategories puts the categories of both places into the order of the text.
func orderedCategories(t *testing.T, context map[string]any, text json.RawMessage) map[string]any {
	t.Helper()
	order := func(policy map[string]any, text json.RawMessage) {
		raw := fixturetest.MemberText(text, "categories")
		if raw == nil {
			return
		}
		policy["categories"] = entriesOf(t, string(raw))
	}
	order(value.Assoc(context["action_policy"]), fixturetest.MemberText(text, "action_policy"))
	config := value.Assoc(context["agent_config"])
	order(value.Assoc(config["action_policy"]), fixturetest.MemberText(fixturetest.MemberText(text, "agent_config"), "action_policy"))
	return context
}
