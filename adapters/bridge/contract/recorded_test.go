package contract

import (
	"fmt"
	"testing"

	"inbox/agents/runtime/envelope/fixturetest"
	"inbox/agents/runtime/value"
)

func TestRecordedMessages(t *testing.T) {
	fixturetest.Run(t, "external-message", func(c fixturetest.Case) (any, error) {
		input := c.Object()
		if given, is := input["message"].(map[string]any); is {
			input = given
		}
		message, err := NormalizeMessage(input)
		switch {
		case err != nil:
			return nil, err
		case c.Op == "to_array":
			return message.Value(), nil
		case c.Op == "client_context":
			return message.ClientContext(value.Scalar(c.Object()["source"])), nil
		}
		return nil, fmt.Errorf("unknown operation %q", c.Op)
	})
}
