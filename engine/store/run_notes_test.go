package store_test

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"inbox/agents/runtime/value"
	"inbox/engine/store"
)

// TestRunNotes keeps, changes and claims notes on both databases.
func TestRunNotes(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			runNotes(t, func(t *testing.T) *store.RunNotes { return openWith(t, store.Options{URL: url(t)}).RunNotes() })
		})
	}
}

// runNotes runs the suite; every test gets an empty store.
func runNotes(t *testing.T, empty func(t *testing.T) *store.RunNotes) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, *store.RunNotes){
		"lets one claim win": notesClaim, "keeps a note": notesKeep, "changes a note": notesChange, "changes nothing after an error": notesKeepOnError,
		"changes a note by many at once": notesTogether, "knows nothing of others": notesUnknown,
	} {
		t.Run(name, func(t *testing.T) { test(t, empty(t)) })
	}
}

func noteOf(id string) map[string]any {
	return map[string]any{
		"schema": "agents-api/task-result/v1", "run_id": id, "session_id": "s", "executor_id": "e", "status": "running",
		"output": map[string]any{"text": "a<b>\u2028"}, "count": 0,
	}
}

func mustNote(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func claimNote(t *testing.T, runs *store.RunNotes, id string) bool {
	t.Helper()
	claimed, err := runs.Claim(t.Context(), noteOf(id))
	mustNote(t, err)
	return claimed
}

func notesClaim(t *testing.T, runs *store.RunNotes) {
	var wins atomic.Int32
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			claimed, err := runs.Claim(t.Context(), noteOf("one"))
			if err != nil {
				t.Error(err)
			}
			if claimed {
				wins.Add(1)
			}
		})
	}

	group.Wait()
	if wins.Load() != 1 || claimNote(t, runs, "one") || !claimNote(t, runs, "two") {
		t.Errorf("%d claims won", wins.Load())
	}
}

func notesKeep(t *testing.T, runs *store.RunNotes) {
	claimNote(t, runs, "one")
	got, err := runs.Get(t.Context(), "one")
	mustNote(t, err)

	if !value.Equal(noteOf("one"), got) {
		t.Errorf("kept %s", value.EncodeText(got))
	}

	got["status"] = "changed"
	if again, err := runs.Get(t.Context(), "one"); err != nil || again["status"] != "running" {
		t.Errorf("the store gave its own record away: %v, %v", again, err)
	}
}

func notesChange(t *testing.T, runs *store.RunNotes) {
	claimNote(t, runs, "one")
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

func notesKeepOnError(t *testing.T, runs *store.RunNotes) {
	claimNote(t, runs, "one")
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

func notesTogether(t *testing.T, runs *store.RunNotes) {
	claimNote(t, runs, "one")
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
	mustNote(t, err)

	if count, _ := value.Integer(got["count"]); count != writers {
		t.Errorf("%s changes of %d are kept", strconv.FormatInt(count, 10), writers)
	}
}

func notesUnknown(t *testing.T, runs *store.RunNotes) {
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
