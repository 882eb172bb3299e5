package envelope_test

import (
	"fmt"
	"testing"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/envelope/fixturetest"
)

func TestRecordedEnvelopes(t *testing.T) {
	fixturetest.Run(t, "envelope", func(c fixturetest.Case) (any, error) {
		in := c.Object()
		metadata, content := envelope.Assoc(in["metadata"]), envelope.Text(in["content"])
		switch c.Op {
		case "normalize":
			return value(envelope.Normalize(c.Input))
		case "normalize_many":
			list, err := envelope.NormalizeMany(c.Input)
			return envelope.Values(list), err
		case "coalesce":
			list, err := envelope.NormalizeMany(c.Input)
			return envelope.Values(envelope.Coalesce(list)), err
		case "to_provider_message":
			return envelope.ToProviderMessage(c.Input)
		case "type":
			return envelope.TypeOf(c.Input)
		case "text":
			return value(envelope.NewText(envelope.Text(in["role"]), in["content"], metadata))
		case "tool_call":
			turn, _ := envelope.Integer(in["turn"])
			return envelope.NewToolCall(content, envelope.Text(in["tool_name"]), envelope.Assoc(in["parameters"]), turn, metadata).Value(), nil
		case "tool_result":
			return envelope.NewToolResult(content, envelope.Text(in["tool_name"]), envelope.Assoc(in["payload"]), metadata).Value(), nil
		case "approval_required":
			return envelope.NewApprovalRequired(content, envelope.Assoc(in["payload"]), metadata).Value(), nil
		}
		return nil, fmt.Errorf("unknown operation %q", c.Op)
	})
}

func value(e envelope.Envelope, err error) (any, error) { return e.Value(), err }

func TestRecordedResults(t *testing.T) {
	fixturetest.Run(t, "conversation-result", func(c fixturetest.Case) (any, error) {
		return envelope.NormalizeResultText(c.Text, envelope.Limits{})
	})
}

func TestRecordedPairs(t *testing.T) {
	fixturetest.Run(t, "tool-pairs", func(c fixturetest.Case) (any, error) {
		pruned, err := envelope.PruneValues(c.Input)
		return pruned.Value(), err
	})
}
