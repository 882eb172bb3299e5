package task_test

import (
	"testing"

	"inbox/agents/runtime/task"
	"inbox/agents/runtime/task/tasktest"
)

func TestMemoryConforms(t *testing.T) {
	tasktest.Runs(t, func(*testing.T) task.Runs { return task.NewMemory() })
}
