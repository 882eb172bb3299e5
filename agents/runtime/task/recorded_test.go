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

// recording plays the operations of a case against one store.
type recording struct {
	dispatcher Dispatcher
	invalid    error // of the declared targets
}

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
	runs := &memory{asRecorded: true, handler: func(map[string]any, map[string]any) handler { return handlerOf(input["handler"]) }}
	return recording{Dispatcher{declared, runs}, err}
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
	case "target":
		return NormalizeTarget(given)
	case "normalize_run":
		return NormalizeRun(object)
	case "list_targets":
		return r.dispatcher.Targets(recorder, object), r.invalid
	case "run":
		if r.invalid != nil {
			return nil, r.invalid
		}
		return r.dispatcher.Run(ctx, recorder, object)
	case "start":
		return r.start(ctx, object)
	case "get":
		return r.dispatcher.Get(ctx, recorder, object)
	case "cancel":
		return r.dispatcher.Cancel(ctx, recorder, object)
	}
	return nil, fmt.Errorf("unknown operation %q", operation)
}

// start claims a run that another process executes.
func (r recording) start(ctx context.Context, run map[string]any) (any, error) {
	if run["executor_id"] == nil {
		run["executor_id"] = "local"
	}
	owner := value.Assoc(run["owner"])
	started, err := Start(run, StatusRunning, Caller{OwnerType: value.Text(owner["type"]), OwnerKey: value.Text(owner["key"])}, value.Assoc(run["metadata"]))
	if err != nil {
		return nil, err
	}
	if !r.dispatcher.Executions.(*memory).claim(started) {
		return nil, refuse(CodeAlreadyStarted, "The run_id has already been claimed for execution.")
	}
	return started, nil
}
