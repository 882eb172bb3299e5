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

type recording struct{ dispatcher Dispatcher }

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
	declared, err := NormalizeTargets(targets)
	if err != nil {
		panic(err)
	}
	return recording{Dispatcher{declared, &memory{handler: func(map[string]any, map[string]any) handler { return handlerOf(input["handler"]) }}}}
}

func handlerOf(script any) handler {
	if script == "none" {
		return nil
	}
	object := value.Assoc(script)
	return func(map[string]any, map[string]any) (any, error) {
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
	case "normalize_run":
		return NormalizeRun(object)
	case "list_targets":
		return r.dispatcher.Targets(recorder, object), nil
	case "run":
		run, err := r.dispatcher.Run(ctx, recorder, object)
		return forgetful(run), err
	}
	return nil, fmt.Errorf("unknown operation %q", operation)
}

// forgetful drops the time and the metadata of the start, which the recorded runtime lost by mistake when it saved a result.
func forgetful(run map[string]any) map[string]any {
	if run == nil {
		return nil
	}
	run = maps.Clone(run)
	run["started_at"], run["metadata"] = "", map[string]any{}
	return run
}
