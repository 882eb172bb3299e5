package contracttest

import (
	"context"
	"fmt"
	"testing"

	"inbox/adapters/bridge/contract"
	"inbox/agents/runtime/envelope/fixturetest"
	"inbox/agents/runtime/value"
)

// RecordedQueue plays the recorded cases of the queue; every case gets an empty store.
func RecordedQueue(t *testing.T, empty func(t *testing.T) Setup) {
	t.Helper()
	fixturetest.Run(t, "bridge-queue", func(c fixturetest.Case) (any, error) {
		play := contract.Bridge{Store: empty(t).Store}
		steps, _ := value.List(c.Object()["ops"])
		outcomes := []any{}
		for _, step := range steps {
			object := value.Assoc(step)
			outcomes = append(outcomes, fixturetest.Outcome(playQueue(t.Context(), play, value.Text(object["op"]), object)))
		}
		return outcomes, nil
	})
}

func playQueue(ctx context.Context, play contract.Bridge, operation string, step map[string]any) (any, error) {
	client := value.Scalar(step["client_id"])
	switch operation {
	case "register":
		registered, err := play.Register(ctx, step)
		return written(registered, err)
	case "get_client":
		found, known, err := play.Client(ctx, client)
		if !known {
			return nil, err
		}
		return written(found, err)
	case "enqueue":
		item, err := play.Enqueue(ctx, value.Assoc(step["item"]))
		return written(item, err)
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
	item, err := contract.NormalizeItem(value.Assoc(step["item"]))
	if err != nil {
		return nil, err
	}

	status := step["status"]
	if status == nil {
		status = step["delivery_status"]
	}

	changed, err := item.WithStatus(value.Scalar(status))
	return written(changed, err)
}

func written(one interface{ Value() map[string]any }, err error) (any, error) {
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
func limit(given any) int {
	if given == nil {
		return 0
	}
	number, _ := value.Integer(given)
	return max(1, int(number))
}

func texts(given any) []string {
	var list []string
	for _, one := range value.Elements(given) {
		list = append(list, value.Scalar(one))
	}
	return list
}

// RecordedSessions plays the recorded cases of the session map; every case gets an empty one.
func RecordedSessions(t *testing.T, empty func(t *testing.T) contract.Sessions) {
	t.Helper()
	fixturetest.Run(t, "session-map", func(c fixturetest.Case) (any, error) {
		sessions := empty(t)
		steps, _ := value.List(c.Object()["ops"])
		values := []any{}
		for _, one := range steps {
			given, err := playSessions(t.Context(), sessions, value.Assoc(one))
			if err != nil {
				return nil, err
			}
			values = append(values, given)
		}
		return values, nil
	})
}

func playSessions(ctx context.Context, sessions contract.Sessions, step map[string]any) (any, error) {
	key := contract.NewSessionKey(value.Scalar(step["connector"]), value.Scalar(step["conversation"]), value.Scalar(step["agent"]))
	switch operation := value.Text(step["op"]); operation {
	case "key":
		return key.Imported(), nil
	case "get":
		found, err := sessions.Session(ctx, key)
		if found == "" {
			return nil, err
		}
		return found, err
	case "set":
		return nil, sessions.SetSession(ctx, key, value.Scalar(step["session"]))
	case "delete":
		return nil, sessions.DeleteSession(ctx, key)
	default:
		return nil, fmt.Errorf("unknown operation %q", operation)
	}
}
