package store_test

import (
	"testing"

	"inbox/agents/runtime/task"
	"inbox/agents/runtime/task/tasktest"
	"inbox/engine/store"
)

// TestRuntimeStores holds what is kept of the agent runtime to the runtime's own suites.
func TestRuntimeStores(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			open := func(t *testing.T) *store.Store { return openWith(t, store.Options{URL: url(t)}) }
			t.Run("task runs", func(t *testing.T) {
				tasktest.Runs(t, func(t *testing.T) task.Runs { return open(t).TaskRuns() })
			})
		})
	}
}
