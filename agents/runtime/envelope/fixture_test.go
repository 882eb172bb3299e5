package envelope_test

import (
	"fmt"
	"testing"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/envelope/fixturetest"
	"inbox/agents/runtime/value"
)

func TestRecordedEnvelopes(t *testing.T) {
	fixturetest.Run(t, "envelope", func(c fixturetest.Case) (any, error) {
		in := c.Object()
		metadata, content := value.Assoc(in["metadata"]), value.Text(in["content"])
		switch c.Op {
		case "normalize":
			return written(envelope.Normalize(c.Input))
		case "normalize_many":
			list, err := envelope.NormalizeMany(c.Input)
			return envelope.Values(list), err
		case "coalesce":
			list, err := envelope.NormalizeMany(c.Input)
			return envelope.Values(envelope.Coalesce(list)), err
		case "to_provider_message":
			read, err := envelope.Normalize(c.Input)
			return read.Provider(), err
		case "type":
			read, err := envelope.Normalize(c.Input)
			return string(read.Type), err
		case "text":
			return written(envelope.NewText(value.Text(in["role"]), in["content"], metadata))
		case "tool_call":
			turn, _ := value.Integer(in["turn"])
			return envelope.NewToolCall(content, value.Text(in["tool_name"]), value.Assoc(in["parameters"]), turn, metadata).Value(), nil
		case "tool_result":
			return envelope.NewToolResult(content, value.Text(in["tool_name"]), value.Assoc(in["payload"]), metadata).Value(), nil
		case "approval_required":
			return envelope.NewApprovalRequired(content, value.Assoc(in["payload"]), metadata).Value(), nil
		}
		return nil, fmt.Errorf("unknown operation %q", c.Op)
	})
}

func written(e envelope.Envelope, err error) (any, error) { return e.Value(), err }

func TestRecordedResults(t *testing.T) {
	fixturetest.Run(t, "conversation-result", func(c fixturetest.Case) (any, error) {
		return envelope.NormalizeResult(c.Input)
	})
}

func TestRecordedPairs(t *testing.T) {
	fixturetest.Run(t, "tool-pairs", func(c fixturetest.Case) (any, error) {
		list, err := envelope.NormalizeMany(c.Input)
		if err != nil {
			return nil, err
		}
		pruned := envelope.Prune(list)

		removed, orphaned := []any{}, map[int]bool{}
		for _, orphan := range pruned.Removed {
			removed, orphaned[orphan.Index] = append(removed, orphan.Value()), true
		}
		messages := []any{} // the record keeps rows as they were given
		for i, row := range value.Elements(c.Input) {
			if !orphaned[i] {
				messages = append(messages, row)
			}
		}
		if len(messages) != len(pruned.Messages) {
			t.Errorf("%s: %d messages stay, want %d", c.Name, len(pruned.Messages), len(messages))
		}
		return map[string]any{"messages": messages, "removed": removed, "events": []any{pruned.Event}}, nil
	})
}
