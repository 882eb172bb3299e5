package channel

import (
	"context"
	"fmt"
	"testing"
	"time"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/envelope/fixturetest"
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
			return message.ClientContext(envelope.Scalar(c.Object()["source"])), nil
		}
		return nil, fmt.Errorf("unknown operation %q", c.Op)
	})
}

func TestRecordedSignatures(t *testing.T) {
	fixturetest.Run(t, "webhook-signature", func(c fixturetest.Case) (any, error) {
		input := c.Object()
		body, header := envelope.Scalar(input["body"]), envelope.Scalar(input["header"])
		form := ReadSignatureForm(envelope.Assoc(input["options"]))
		return VerifySignature(envelope.Scalar(input["secret"]), []byte(body), header, form), nil
	})
}

func TestRecordedSessions(t *testing.T) {
	fixturetest.Run(t, "session-map", sequence(func() func(context.Context, string, map[string]any) (any, error) {
		sessions := NewMemorySessions(0)
		return func(ctx context.Context, operation string, step map[string]any) (any, error) {
			key := NewSessionKey(envelope.Scalar(step["connector"]), envelope.Scalar(step["conversation"]), envelope.Scalar(step["agent"]))
			switch operation {
			case "key":
				return key.Imported(), nil
			case "get":
				found, err := sessions.Session(ctx, key)
				return nullable(found), err
			case "set":
				return nil, sessions.SetSession(ctx, key, envelope.Scalar(step["session"]))
			case "delete":
				return nil, sessions.DeleteSession(ctx, key)
			}
			return nil, fmt.Errorf("unknown operation %q", operation)
		}
	}))
}

func TestRecordedDuplicates(t *testing.T) {
	fixturetest.Run(t, "idempotency", sequence(func() func(context.Context, string, map[string]any) (any, error) {
		marks, now := NewMemoryMarks(0), time.Unix(1e9, 0)
		marks.now = func() time.Time { return now }
		return func(ctx context.Context, operation string, step map[string]any) (any, error) {
			if operation == "advance" {
				now = now.Add(seconds(step))
				return nil, nil
			}
			return playDuplicates(ctx, Duplicates{marks}, operation, step)
		}
	}))
}

func playDuplicates(ctx context.Context, duplicates Duplicates, operation string, step map[string]any) (any, error) {
	provider, id := envelope.Scalar(step["provider"]), envelope.Scalar(step["id"])
	switch operation {
	case "key":
		if key, ok := NewMessageKey(provider, id); ok {
			return key.Imported(), nil
		}
		return nil, nil
	case "seen":
		return duplicates.Seen(ctx, provider, id)
	case "mark":
		return nil, duplicates.MarkSeen(ctx, provider, id, seconds(step))
	case "forget":
		return nil, duplicates.Forget(ctx, provider, id)
	}
	return nil, fmt.Errorf("unknown operation %q", operation)
}

// seconds reads the one number of a step.
func seconds(step map[string]any) time.Duration {
	for name, value := range step {
		if number, is := envelope.Integer(value); is && name != "id" && name != "provider" {
			return time.Duration(number) * time.Second
		}
	}
	return 0
}

// sequence plays the operations of a case, each case on its own store.
func sequence(begin func() func(context.Context, string, map[string]any) (any, error)) func(fixturetest.Case) (any, error) {
	return func(c fixturetest.Case) (any, error) {
		step := begin()
		steps, _ := envelope.List(c.Object()["ops"])
		values := []any{}
		for _, one := range steps {
			object := envelope.Assoc(one)
			value, err := step(context.Background(), envelope.Text(object["op"]), object)
			if err != nil {
				return nil, err
			}
			values = append(values, value)
		}
		return values, nil
	}
}
