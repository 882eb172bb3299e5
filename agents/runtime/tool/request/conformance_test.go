package request_test

import (
	"testing"

	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/tool/request/requesttest"
)

func TestMemoryConforms(t *testing.T) {
	requesttest.Store(t, func(*testing.T) (request.Store, func(map[string]any) map[string]any) {
		return new(requesttest.Memory), nil
	})
}
