package task

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"inbox/agents/runtime/value"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	alice   = Caller{OwnerType: "user", OwnerKey: "alice"}
	mallory = Caller{OwnerType: "user", OwnerKey: "mallory"}
	manager = Caller{Manager: true}
)

// dispatcher has one target, which the handler serves, and tells reasons of its failures.
func dispatcher(handler Handler) (*Dispatcher, func() []string) {
	var mu sync.Mutex
	var reasons []string
	made := New(Options{
		Targets: func(context.Context) ([]any, error) { return []any{map[string]any{"id": "local"}}, nil },
		Handler: func(map[string]any, map[string]any) Handler { return handler },
		Runs:    NewMemory(),
		Failed: func(reason string, _ map[string]any) {
			mu.Lock()
			defer mu.Unlock()
			reasons = append(reasons, reason)
		},
	})
	return made, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return reasons
	}
}

func work() map[string]any {
	return map[string]any{"task": map[string]any{"id": "t"}, "run_id": "r1", "session_id": "s1"}
}

func giving(outcome any, err error) Handler {
	return func(context.Context, map[string]any, map[string]any) (any, error) { return outcome, err }
}

func TestHandlersDecideOnlyWhatIsTheirs(t *testing.T) {
	made, _ := dispatcher(func(_ context.Context, input, target map[string]any) (any, error) {
		if input["executor_id"] != "local" || target["schema"] != SchemaTarget {
			t.Errorf("input = %v, target = %v", input, target)
		}
		return map[string]any{
			"schema": "x", "run_id": "x", "session_id": "x", "executor_id": "x", "owner": map[string]any{"type": "user", "key": "x"},
			"status": " Succeeded ", "metadata": map[string]any{"own": 1, "resource_class": "mine"},
			"execution_metrics": map[string]any{"wall_time_ms": "42", "startup_time_ms": -1, "artifact_bytes": 1.9, "extra": "x", "environment": " "},
		}, nil
	})
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
		"metadata":          map[string]any{"own": 1, "resource_class": "mine", "executor_id": "local", "target_kind": "executor"},
		"execution_metrics": map[string]any{"schema": SchemaMetrics, "executor_id": "local", "wall_time_ms": 42, "artifact_bytes": 1, "extra": "x"},
	} {
		if !value.Equal(got[name], want) {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
	}
}

func TestFailures(t *testing.T) {
	for name, test := range map[string]struct {
		handler            Handler
		code, reason, left string
	}{
		"coded":      {giving(nil, &Error{Code: "no_disk", Message: "The disk is full."}), "no_disk", "no_disk", "no_disk"},
		"plain":      {giving(nil, errors.New("broken")), "", CodeFailed, CodeFailed},
		"panic":      {func(context.Context, map[string]any, map[string]any) (any, error) { panic("broken") }, "", CodeFailed, CodeFailed},
		"no object":  {giving("done", nil), CodeInvalidResult, "invalid_result", ""},
		"no handler": {nil, CodeNoHandler, "no_handler", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			made, reasons := dispatcher(test.handler)
			_, err := made.Run(t.Context(), alice, work())
			var coded *Error
			if err == nil || (test.code != "" && (!errors.As(err, &coded) || coded.Code != test.code)) {
				t.Errorf("error = %v, want code %s", err, test.code)
			}
			if got := reasons(); !cmp.Equal(got, []string{test.reason}) {
				t.Errorf("reasons = %v, want %s", got, test.reason)
			}
			run, err := made.Get(t.Context(), manager, work())
			switch {
			case test.left == "-":
				if err == nil {
					t.Errorf("a run was claimed that nobody can execute: %v", run)
				}
			case err != nil || run["status"] != StatusFailed || value.Text(value.Assoc(run["diagnostics"])["error_code"]) != test.left:
				t.Errorf("run = %v, %v", run, err)
			}
		})
	}
}

func TestRunsBelongToSomebody(t *testing.T) {
	made, _ := dispatcher(giving(map[string]any{"status": StatusSucceeded, "output": map[string]any{"token": "x"}, "metadata": map[string]any{"token": "x", "safe": "yes"}}, nil))
	if _, err := made.Run(t.Context(), alice, work()); err != nil {
		t.Fatal(err)
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
		for _, err := range []error{gotten, cancelled} {
			var coded *Error
			if !errors.As(err, &coded) || coded.Code != CodeNotFound {
				t.Errorf("%s: %v, want %s", name, err, CodeNotFound)
			}
		}
	}
	visible, err := made.Get(t.Context(), alice, work())
	if err != nil || value.Text(value.Assoc(visible["metadata"])["safe"]) != "yes" ||
		value.Text(value.Assoc(visible["metadata"])["token"]) != "[redacted]" || !value.Equal(visible["output"], map[string]any{"redacted": true}) {
		t.Errorf("the owner sees %v, %v", visible, err)
	}
	whole, err := made.Get(t.Context(), manager, work())
	if err != nil || value.Text(value.Assoc(whole["metadata"])["token"]) != "x" {
		t.Errorf("the manager sees %v, %v", whole, err)
	}
}

// TestClaimedOnce starts the same run many times at once.
func TestClaimedOnce(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		callers := rapid.IntRange(2, 16).Draw(r, "callers")
		var executed, won atomic.Int32
		made, _ := dispatcher(func(context.Context, map[string]any, map[string]any) (any, error) {
			executed.Add(1)
			return map[string]any{"status": StatusSucceeded}, nil
		})
		var group sync.WaitGroup
		for range callers {
			group.Go(func() {
				_, err := made.Run(t.Context(), alice, work())
				var coded *Error
				switch {
				case err == nil:
					won.Add(1)
				case !errors.As(err, &coded) || coded.Code != CodeAlreadyStarted:
					r.Errorf("error = %v", err)
				}
			})
		}
		group.Wait()
		if won.Load() != 1 || executed.Load() != 1 {
			r.Errorf("%d won, %d executed", won.Load(), executed.Load())
		}
	})
}

func TestCancelReachesTheHandler(t *testing.T) {
	for name, test := range map[string]struct {
		handler Handler
		status  string
	}{
		"stops": {func(ctx context.Context, _, _ map[string]any) (any, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}, StatusCancelled},
		"comes to end": {func(ctx context.Context, _, _ map[string]any) (any, error) {
			<-ctx.Done()
			return map[string]any{"status": StatusSucceeded}, nil
		}, StatusSucceeded},
		"goes on": {func(ctx context.Context, _, _ map[string]any) (any, error) {
			<-ctx.Done()
			return map[string]any{}, nil
		}, StatusCancelling},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				made, _ := dispatcher(test.handler)
				done := make(chan map[string]any)
				go func() {
					result, err := made.Run(t.Context(), alice, work())
					if err != nil {
						t.Error(err)
					}
					done <- result
				}()
				synctest.Wait()
				cancelled, err := made.Cancel(t.Context(), alice, work())
				if err != nil || !value.Equal(cancelled["cancelled"], true) || cancelled["status"] != StatusCancelling {
					t.Errorf("cancel = %v, %v", cancelled, err)
				}
				if result := <-done; result["status"] != test.status {
					t.Errorf("status = %v, want %s", result["status"], test.status)
				}
				again, err := made.Cancel(t.Context(), alice, work())
				if err != nil || again["cancelled"] != !Terminal(test.status) {
					t.Errorf("second cancel = %v, %v", again, err)
				}
			})
		})
	}
}
