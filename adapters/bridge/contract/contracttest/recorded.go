package contracttest

import (
	"context"
	"fmt"
	"testing"

	"inbox/adapters/bridge/contract"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/envelope/fixturetest"
)

// RecordedQueue plays the recorded cases of the queue; every case gets an empty store.
func RecordedQueue(t *testing.T, empty func(t *testing.T) Setup) {
	t.Helper()
	fixturetest.Run(t, "bridge-queue", func(c fixturetest.Case) (any, error) {
		play := contract.Bridge{Store: empty(t).Store}
		steps, _ := envelope.List(c.Object()["ops"])
		outcomes := []any{}
		for _, step := range steps {
			object := envelope.Assoc(step)
			outcomes = append(outcomes, fixturetest.Outcome(playQueue(t.Context(), play, envelope.Text(object["op"]), object)))
		}
		return outcomes, nil
	})
}

func playQueue(ctx context.Context, play contract.Bridge, operation string, step map[string]any) (any, error) {
	client := envelope.Scalar(step["client_id"])
	switch operation {
	case "register":
		registered, err := play.Register(ctx, step)
		return value(registered, err)
	case "get_client":
		found, known, err := play.Client(ctx, client)
		if !known {
			return nil, err
		}
		return value(found, err)
	case "enqueue":
		item, err := play.Enqueue(ctx, envelope.Assoc(step["item"]))
		return value(item, err)
	case "pending":
		return values(play.Pending(ctx, client, limit(step["limit"]), texts(step["session_ids"])))
	case "ack":
		return play.Ack(ctx, client, texts(step["queue_ids"]))
	case "with_status":
		return withStatus(step)
	}
	return nil, fmt.Errorf("unknown operation %q", operation)
}

func withStatus(step map[string]any) (any, error) {
	item, err := contract.NormalizeItem(envelope.Assoc(step["item"]))
	if err != nil {
		return nil, err
	}
	status := step["status"]
	if status == nil {
		status = step["delivery_status"]
	}
	changed, err := item.WithStatus(envelope.Scalar(status))
	return value(changed, err)
}

func value(one interface{ Value() map[string]any }, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return one.Value(), nil
}

func values(items []contract.Item, err error) (any, error) {
	list := []any{}
	for _, item := range items {
		list = append(list, item.Value())
	}
	return list, err
}

// limit reads a recorded limit: without one the default, below one it is one.
func limit(value any) int {
	if value == nil {
		return 0
	}
	number, _ := envelope.Integer(value)
	return max(1, int(number))
}

func texts(value any) []string {
	var list []string
	for _, one := range envelope.Elements(value) {
		list = append(list, envelope.Scalar(one))
	}
	return list
}

// RecordedSessions plays the recorded cases of the session map; every case gets an empty one.
func RecordedSessions(t *testing.T, empty func(t *testing.T) contract.Sessions) {
	t.Helper()
	fixturetest.Run(t, "session-map", func(c fixturetest.Case) (any, error) {
		sessions := empty(t)
		steps, _ := envelope.List(c.Object()["ops"])
		values := []any{}
		for _, one := range steps {
			value, err := playSessions(t.Context(), sessions, envelope.Assoc(one))
			if err != nil {
				return nil, err
			}
			values = append(values, value)
		}
		return values, nil
	})
}

func playSessions(ctx context.Context, sessions contract.Sessions, step map[string]any) (any, error) {
	key := contract.NewSessionKey(envelope.Scalar(step["connector"]), envelope.Scalar(step["conversation"]), envelope.Scalar(step["agent"]))
	switch operation := envelope.Text(step["op"]); operation {
	case "key":
		return key.Imported(), nil
	case "get":
		found, err := sessions.Session(ctx, key)
		if found == "" {
			return nil, err
		}
		return found, err
	case "set":
		return nil, sessions.SetSession(ctx, key, envelope.Scalar(step["session"]))
	case "delete":
		return nil, sessions.DeleteSession(ctx, key)
	default:
		return nil, fmt.Errorf("unknown operation %q", operation)
	}
}
