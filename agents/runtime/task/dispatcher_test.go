package task

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"inbox/agents/runtime/value"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	alice   = Caller{OwnerType: "user", OwnerKey: "alice"}
	mallory = Caller{OwnerType: "user", OwnerKey: "mallory"}
	manager = Caller{Manager: true}
)

// dispatching has one target, whose executions are the given ones.
func dispatching(t *testing.T, executions Executions) Dispatcher {
	t.Helper()
	targets, err := NormalizeTargets([]any{map[string]any{"id": "local"}})
	if err != nil {
		t.Fatal(err)
	}
	return Dispatcher{targets, executions}
}

func giving(outcome any, failure error) *memory {
	return &memory{handler: func(map[string]any, map[string]any) handler {
		return func(map[string]any, map[string]any) (any, error) { return outcome, failure }
	}}
}

func work() map[string]any {
	return map[string]any{"task": map[string]any{"id": "t"}, "run_id": "r1", "session_id": "s1"}
}

func coded(err error) string {
	if known, is := errors.AsType[*Error](err); is {
		return known.ErrorCode()
	}
	return ""
}

func TestExecutorsDecideOnlyWhatIsTheirs(t *testing.T) {
	made := dispatching(t, giving(map[string]any{
		"schema": "x", "run_id": "x", "session_id": "x", "executor_id": "x", "owner": map[string]any{"type": "user", "key": "x"},
		"status": " Succeeded ", "metadata": map[string]any{"own": 1, "resource_class": "mine"},
		"execution_metrics": map[string]any{"wall_time_ms": "42", "startup_time_ms": -1, "artifact_bytes": 1.9, "extra": "x", "environment": " "},
	}, nil))
	got, err := made.Run(t.Context(), alice, work())
	if err != nil {
		t.Fatal(err)
	}

	if got["started_at"] == "" {
		t.Error("the time of the start is lost")
	}
	for name, want := range map[string]any{
		"schema": SchemaResult, "run_id": "r1", "session_id": "s1", "executor_id": "local", "status": StatusSucceeded,
		"owner":             map[string]any{"type": "user", "key": "alice"},
		"metadata":          map[string]any{"own": 1, "resource_class": "mine", "task_id": "t", "executor_id": "local", "target_kind": "executor"},
		"execution_metrics": map[string]any{"schema": SchemaMetrics, "executor_id": "local", "wall_time_ms": 42, "artifact_bytes": 1, "extra": "x"},
	} {
		if !value.Equal(got[name], want) {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
	}
}

func TestFailures(t *testing.T) {
	for name, test := range map[string]struct {
		executions *memory
		code       string
	}{
		"coded":     {giving(nil, &Error{Code: "no_disk", Message: "The disk is full."}), "no_disk"},
		"plain":     {giving(nil, errors.New("broken")), CodeFailed},
		"no object": {giving("done", nil), CodeInvalidResult},
	} {
		run, err := dispatching(t, test.executions).Run(t.Context(), manager, work())
		if diagnostics := value.Assoc(run["diagnostics"]); err != nil || run["status"] != StatusFailed || diagnostics["error_code"] != test.code || diagnostics["error_message"] == "" {
			t.Errorf("%s: %v, %v", name, run, err)
		}
	}

	none := &memory{handler: func(map[string]any, map[string]any) handler { return nil }}
	if _, err := dispatching(t, none).Run(t.Context(), alice, work()); coded(err) != CodeNoHandler {
		t.Errorf("without a handler: %v", err)
	}
	closed := alice
	closed.Opens = func(map[string]any) bool { return false }
	if _, err := dispatching(t, giving(map[string]any{}, nil)).Run(t.Context(), closed, work()); coded(err) != CodeNoHandler {
		t.Errorf("on a target of others: %v", err)
	}
	if _, err := NormalizeTargets([]any{map[string]any{"label": "x"}}); coded(err) != CodeInvalidTarget {
		t.Errorf("a target without id: %v", err)
	}
	if _, err := NormalizeTargets([]any{"x"}); coded(err) != CodeInvalidTargets {
		t.Errorf("a target that is no object: %v", err)
	}
}

func TestRunsBelongToSomebody(t *testing.T) {
	made := dispatching(t, giving(map[string]any{
		"status": StatusSucceeded, "output": map[string]any{"token": "x"}, "metadata": map[string]any{"token": "x", "safe": "yes"},
	}, nil))
	if _, err := made.Run(t.Context(), alice, work()); err != nil {
		t.Fatal(err)
	}
	if _, err := made.Run(t.Context(), mallory, work()); coded(err) != CodeAlreadyStarted {
		t.Errorf("begun twice: %v", err)
	}

	for name, test := range map[string]struct {
		caller  Caller
		address map[string]any
	}{
		"somebody else": {mallory, work()},
		"nobody":        {Caller{}, work()},
		"other session": {alice, map[string]any{"run_id": "r1", "session_id": "s2"}},
		"no session":    {manager, map[string]any{"run_id": "r1"}},
		"other run":     {alice, map[string]any{"run_id": "r2", "session_id": "s1"}},
	} {
		_, gotten := made.Get(t.Context(), test.caller, test.address)
		_, cancelled := made.Cancel(t.Context(), test.caller, test.address)
		if coded(gotten) != CodeNotFound || coded(cancelled) != CodeNotFound {
			t.Errorf("%s: %v, %v", name, gotten, cancelled)
		}
	}

	visible, err := made.Get(t.Context(), alice, work())
	if metadata := value.Assoc(visible["metadata"]); err != nil || metadata["safe"] != "yes" || metadata["token"] != "[redacted]" || !value.Equal(visible["output"], map[string]any{"redacted": true}) {
		t.Errorf("the owner sees %v, %v", visible, err)
	}

	reader := alice
	reader.Whole = true
	for name, caller := range map[string]Caller{"manager": manager, "reader": reader} {
		whole, err := made.Get(t.Context(), caller, work())
		if err != nil || value.Text(value.Assoc(whole["metadata"])["token"]) != "x" {
			t.Errorf("the %s sees %v, %v", name, whole, err)
		}
	}
}

func TestCancelOnce(t *testing.T) {
	made := dispatching(t, &memory{open: true})
	if run, err := made.Run(t.Context(), alice, work()); err != nil || run["status"] != StatusQueued {
		t.Fatal(run, err)
	}
	for _, want := range []bool{true, false} {
		if run, err := made.Cancel(t.Context(), alice, work()); err != nil || run["cancelled"] != want || run["status"] != StatusCancelled {
			t.Errorf("cancelled = %v, %v, want %v", run, err, want)
		}
	}
}
