package request_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
)

func TestIDOfARequestWithoutOne(t *testing.T) {
	made, err := request.Normalize(map[string]any{
		"tool_name": " client/pick ", "tool_call_id": "c1", "parameters": []any{1}, "run_id": "r1", "timeout_at": "2026-01-02T15:04:05Z",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"status": request.StatusPending, "request_id": request.ID("r1", " client/pick ", "c1"), "tool_name": "client/pick", "tool_call_id": "c1",
		"parameters": []any{1}, "run_id": "r1", "timeout_at": "2026-01-02T15:04:05Z", "runtime": map[string]any{}, "metadata": map[string]any{},
	}
	if difference := cmp.Diff(want, made); difference != "" {
		t.Errorf("request (-want +got):\n%s", difference)
	}
	// printf 'r1|client/pick|c1' | sha256sum
	const known = "runtime-tool-b3a2310477b02dadfba6b90be865731af2754ef5cf6f30f431f57df007550d87"
	if got := request.ID("r1", "client/pick", "c1"); got != known {
		t.Errorf("ID = %s, want %s", got, known)
	}
}

func TestResults(t *testing.T) {
	citations := []any{"no object", map[string]any{}, map[string]any{"source": " ", "score": "high"},
		map[string]any{"source": " web ", "score": "0.5", "own": true, "item_id": json.Number("7"), "excerpt": []any{}}}
	for name, test := range map[string]struct{ raw, want string }{
		"scalar":        {`{"result":7}`, `{"success":true,"metadata":{},"result":{"value":7}}`},
		"null":          {`{"result":null,"success":null}`, `{"success":true,"metadata":{},"result":{}}`},
		"list":          {`{"result":[1]}`, `{"success":true,"metadata":{},"result":[1]}`},
		"zero is false": {`{"success":0,"error":"broken"}`, `{"success":false,"metadata":{},"error":"broken"}`},
		"text is true":  {`{"success":"no"}`, `{"success":true,"metadata":{},"result":{}}`},
		"empty list":    {`{"success":[],"error":5}`, `{"success":false,"metadata":{},"error":"Runtime tool execution failed."}`},
		"metadata list": {`{"metadata":[1],"result":{}}`, `{"success":true,"metadata":[1],"result":{}}`},
		"citations": {`{"metadata":{"citations":` + value.EncodeText(citations) + `}}`,
			`{"success":true,"metadata":{"citations":[{"source":"web","score":0.5,"own":true,"item_id":"7"}]},"result":{}}`},
	} {
		got, err := request.ResultFor(pick("q1"), objectOf(t, test.raw))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := objectOf(t, test.want)
		want["status"], want["request_id"], want["tool_name"] = request.StatusSubmitted, "q1", "client/pick"
		if !value.Equal(want, got) {
			t.Errorf("%s:\nwant %v\ngot  %v", name, value.EncodeText(want), value.EncodeText(got))
		}
	}
}

func objectOf(t *testing.T, text string) map[string]any {
	t.Helper()
	given, err := value.Decode([]byte(text), value.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return value.Assoc(given)
}

func FuzzNormalize(f *testing.F) {
	f.Add(`{"tool_name":" t ","tool_call_id":"c","parameters":[1],"run_id":"r","metadata":{"turn_count":2}}`)
	f.Add(`{"tool_name":"t","tool_call_id":"c","request_id":"\u0000","timeout_at":7}`)
	f.Fuzz(func(t *testing.T, text string) {
		raw, ok := decoded(text)
		if !ok {
			return
		}
		once, err := request.Normalize(raw)
		if err != nil {
			return
		}
		twice, err := request.Normalize(once)
		if err != nil || !value.Equal(once, twice) {
			t.Errorf("not idempotent: %v\n%v\n%v", err, once, twice)
		}
	})
}

func FuzzNormalizeResult(f *testing.F) {
	f.Add(`{"request_id":"q","tool_name":"t","success":false,"error":" "}`)
	f.Add(`{"request_id":"q","tool_name":"t","result":[],"metadata":{"citations":[{"score":"1e400","source":1.5}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		raw, ok := decoded(text)
		if !ok {
			return
		}
		once, err := request.NormalizeResult(raw)
		if err != nil {
			return
		}
		if _, err := value.Encode(once); err != nil {
			t.Fatalf("the result is not JSON: %v", err)
		}
		twice, err := request.NormalizeResult(once)
		if err != nil || !value.Equal(once, twice) {
			t.Errorf("not idempotent: %v\n%v\n%v", err, value.EncodeText(once), value.EncodeText(twice))
		}
	})
}

func decoded(text string) (map[string]any, bool) {
	given, err := value.Decode([]byte(text), value.Limits{})
	if err != nil {
		return nil, false
	}
	return value.Object(given)
}
