package envelope_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
)

func TestCitations(t *testing.T) {
	given, err := value.Decode([]byte(`[7,{},{"source":" ","score":"high"},{"source":" web ","score":"0.5","own":true,"item_id":7},{"score":"1e999","x":null},{"score":2}]`), value.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := []any{map[string]any{"source": "web", "score": 0.5, "own": true, "item_id": "7"}, map[string]any{"x": nil}, map[string]any{"score": 2.0}}
	if difference := cmp.Diff(want, envelope.Citations(given)); difference != "" {
		t.Error(difference)
	}
	if none := envelope.Citations("x"); none == nil || len(none) != 0 {
		t.Error(none)
	}
}
