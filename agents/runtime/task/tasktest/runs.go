// Package tasktest is the conformance suite of task.Runs: what a dispatcher relies on, whatever keeps the runs. It is for
// tests only.
package tasktest

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"inbox/agents/runtime/task"
	"inbox/agents/runtime/value"
)

// Runs runs the suite; every test gets an empty store.
func Runs(t *testing.T, empty func(t *testing.T) task.Runs) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, task.Runs){
		"lets one claim win": claims, "keeps a run": keeps, "changes a run": updates, "changes nothing after an error": keepsOnError,
		"changes a run by many at once": together, "knows nothing of others": unknown,
	} {
		t.Run(name, func(t *testing.T) { test(t, empty(t)) })
	}
}

func run(id string) map[string]any {
	return map[string]any{
		"schema": task.SchemaResult, "run_id": id, "session_id": "s", "executor_id": "e", "status": "running",
		"output": map[string]any{"text": "a<b>\u2028"}, "count": 0,
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func claim(t *testing.T, runs task.Runs, id string) bool {
	t.Helper()
	claimed, err := runs.Claim(t.Context(), run(id))
	must(t, err)
	return claimed
}

func claims(t *testing.T, runs task.Runs) {
	var wins atomic.Int32
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			claimed, err := runs.Claim(t.Context(), run("one"))
			if err != nil {
				t.Error(err)
			}
			if claimed {
				wins.Add(1)
			}
		})
	}

	group.Wait()
	if wins.Load() != 1 || claim(t, runs, "one") || !claim(t, runs, "two") {
		t.Errorf("%d claims won", wins.Load())
	}
}

func keeps(t *testing.T, runs task.Runs) {
	claim(t, runs, "one")
	got, err := runs.Get(t.Context(), "one")
	must(t, err)

	if !value.Equal(run("one"), got) {
		t.Errorf("kept %s", value.EncodeText(got))
	}

	got["status"] = "changed"
	if again, err := runs.Get(t.Context(), "one"); err != nil || again["status"] != "running" {
		t.Errorf("the store gave its own record away: %v, %v", again, err)
	}
}

func updates(t *testing.T, runs task.Runs) {
	claim(t, runs, "one")
	changed, err := runs.Update(t.Context(), "one", func(run map[string]any) (map[string]any, error) {
		run["status"] = "succeeded"
		return run, nil
	})
	if err != nil || changed["status"] != "succeeded" {
		t.Fatalf("changed %v, %v", changed, err)
	}

	if got, err := runs.Get(t.Context(), "one"); err != nil || got["status"] != "succeeded" {
		t.Errorf("kept %v, %v", got, err)
	}
}

func keepsOnError(t *testing.T, runs task.Runs) {
	claim(t, runs, "one")
	refused := errors.New("no")
	_, err := runs.Update(t.Context(), "one", func(run map[string]any) (map[string]any, error) {
		run["status"] = "failed"
		return run, refused
	})
	if !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
	if got, err := runs.Get(t.Context(), "one"); err != nil || got["status"] != "running" {
		t.Errorf("kept %v, %v", got, err)
	}
}

func together(t *testing.T, runs task.Runs) {
	claim(t, runs, "one")
	const writers = 8
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			_, err := runs.Update(t.Context(), "one", func(run map[string]any) (map[string]any, error) {
				count, _ := value.Integer(run["count"])
				run["count"] = count + 1
				return run, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}

	group.Wait()
	got, err := runs.Get(t.Context(), "one")
	must(t, err)

	if count, _ := value.Integer(got["count"]); count != writers {
		t.Errorf("%s changes of %d are kept", strconv.FormatInt(count, 10), writers)
	}
}

func unknown(t *testing.T, runs task.Runs) {
	for _, id := range []string{"none", "", "with\x00nul"} {
		got, err := runs.Get(t.Context(), id)
		if got != nil || err != nil {
			t.Errorf("get %q: %v, %v", id, got, err)
		}
		changed, err := runs.Update(t.Context(), id, func(run map[string]any) (map[string]any, error) { return run, nil })
		if changed != nil || err != nil {
			t.Errorf("update %q: %v, %v", id, changed, err)
		}
	}
}
