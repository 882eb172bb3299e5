package task_test

import (
	"testing"

	"inbox/agents/task"
	"inbox/agents/task/tasktest"
)

func TestMemoryConforms(t *testing.T) {
	tasktest.Runs(t, func(*testing.T) task.Runs { return task.NewMemory(0, 0) })
}
