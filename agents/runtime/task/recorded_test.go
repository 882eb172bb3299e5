package task

import (
	"context"
	"fmt"
	"maps"
	"testing"

	"inbox/agents/runtime/envelope/fixturetest"
	"inbox/agents/runtime/value"
)

func TestRecordedCases(t *testing.T) {
	fixturetest.Run(t, "task-execution", func(c fixturetest.Case) (any, error) {
		input := c.Object()
		play := newRecording(input)
		if c.Op != "lifecycle" {
			return play.do(context.Background(), c.Op, input["value"])
		}
		steps, _ := value.List(input["ops"])
		outcomes := []any{}
		for _, one := range steps {
			step := value.Assoc(one)
			given, is := step["value"]
			if !is {
				given = step
			}
			outcomes = append(outcomes, fixturetest.Outcome(play.do(context.Background(), value.Text(step["op"]), given)))
		}
		return outcomes, nil
	})
}

type recording struct{ dispatcher *Dispatcher }

var recorder = Caller{OwnerType: "user", OwnerKey: "5", Manager: true}

func newRecording(input map[string]any) recording {
	targets, is := value.List(input["targets"])
	if !is {
		targets = []any{
			map[string]any{"id": "local", "capabilities": []any{"tasks.run"}, "resource_classes": []any{"generic"}},
			map[string]any{"id": "gpu", "label": " GPU ", "kind": "runtime", "capabilities": []any{"tasks.run", "gpu", "gpu"}, "resource_classes": []any{"accelerated", "generic"}},
			map[string]any{"id": "any", "capabilities": "tasks.run", "metadata": map[string]any{"z": 1}},
		}
	}
	return recording{New(Options{
		Targets:     func(context.Context) ([]any, error) { return targets, nil },
		Handler:     func(map[string]any, map[string]any) Handler { return handlerOf(input["handler"]) },
		Runs:        NewMemory(),
		ForgetStart: true,
	})}
}

func handlerOf(script any) Handler {
	if script == "none" {
		return nil
	}
	object := value.Assoc(script)
	return func(context.Context, map[string]any, map[string]any) (any, error) {
		if failure, is := object["error"].(map[string]any); is {
			return nil, refuse(value.Text(failure["code"]), value.Text(failure["message"]))
		}
		if outcome, is := object["ok"]; is {
			return outcome, nil
		}
		return map[string]any{
			"status": "succeeded", "output": map[string]any{"n": 1}, "diagnostics": map[string]any{"summary": "completed"},
		}, nil
	}
}

func (r recording) do(ctx context.Context, operation string, given any) (any, error) {
	object := maps.Clone(value.Assoc(given))
	switch operation {
	case "normalize_input":
		return NormalizeInput(object)
	case "placement":
		return NormalizePlacement(object), nil
	case "target":
		return NormalizeTarget(given)
	case "normalize_run":
		return NormalizeRun(object)
	case "list_targets":
		return r.dispatcher.ListTargets(ctx, object)
	case "run":
		return r.dispatcher.Run(ctx, recorder, object)
	case "get":
		return r.dispatcher.Get(ctx, recorder, object)
	case "cancel":
		return r.dispatcher.Cancel(ctx, recorder, object)
	case "start":
		if object["executor_id"] == nil {
			object["executor_id"] = "local"
		}
		owner := value.Assoc(object["owner"])
		starter := Caller{OwnerType: value.Text(owner["type"]), OwnerKey: value.Text(owner["key"])}
		return r.dispatcher.Start(ctx, object, value.Assoc(object["metadata"]), starter)
	}
	return nil, fmt.Errorf("unknown operation %q", operation)
}
