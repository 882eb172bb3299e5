package task

import (
	"testing"

	"pgregory.net/rapid"

	"inbox/agents/runtime/value"
)

func TestRunResult(t *testing.T) {
	got, err := RunResult(value.Assoc(decoded(t, `{"run_id":"r","session_id":"s","executor_id":"e","status":"failed","output":[1],
		"artifact_refs":[{"id":" a ","url":" "},{"type":""},7],"diagnostics":{"error_message":"Broken."},"updated_at":"now","metadata":{"events":1}}`)))
	if err != nil {
		t.Fatal(err)
	}
	want := decoded(t, `{"schema":"agents-api/run-result/v1","version":1,"run_id":"r","status":"failed","outputs":{},"artifact_refs":[{"id":"a"}],
		"evidence_refs":[],"logs":[],"replay":{},"provenance":{},"timestamps":{"updated_at":"now"},"cancellation":{},
		"error":{"code":"agents_task_run_failed","message":"Broken.","data":{"diagnostics":{"error_message":"Broken."}}},
		"metadata":{"session_id":"s","executor_id":"e","execution_metrics":{},"diagnostics":{"error_message":"Broken."},"events":1}}`)
	if !value.Equal(want, got) {
		t.Errorf("got  %s\nwant %s", value.EncodeText(got), value.EncodeText(want))
	}
	got, err = RunResult(map[string]any{"run_id": "r", "session_id": "s", "executor_id": "e", "status": "cancelling"})
	if err != nil || !value.Equal(got["cancellation"], map[string]any{"requested": true, "status": "cancelling"}) {
		t.Errorf("cancellation = %v, %v", got["cancellation"], err)
	}
}

// TestSelection compares the choice with the definition of the contract.
func TestSelection(t *testing.T) {
	names := []string{"a", "b", "c"}
	subset := rapid.SliceOfN(rapid.SampledFrom(names), 0, 2)
	rapid.Check(t, func(r *rapid.T) {
		var targets []map[string]any
		for _, id := range names {
			targets = append(targets, map[string]any{"id": id, "capabilities": subset.Draw(r, "capabilities"), "resource_classes": subset.Draw(r, "classes")})
		}
		placement := map[string]any{
			"preferred_target": rapid.SampledFrom(names).Draw(r, "preferred"), "allowed_targets": subset.Draw(r, "allowed"),
			"required_capabilities": subset.Draw(r, "required"), "resource_class": rapid.SampledFrom(append(names, "")).Draw(r, "class"),
		}
		suitable, chosen := Suitable(targets, placement), Select(targets, placement)
		if (chosen == nil) != (len(suitable) == 0) {
			r.Fatalf("%d suitable, chosen %v", len(suitable), chosen)
		}
		for _, target := range suitable {
			if target["id"] == placement["preferred_target"] && chosen["id"] != target["id"] {
				r.Errorf("chosen %v, want the preferred %v", chosen["id"], target["id"])
			}
		}
	})
}

func decoded(t *testing.T, text string) any {
	t.Helper()
	decoded, err := value.Decode([]byte(text), value.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}

func FuzzNormalize(f *testing.F) {
	f.Add(`{"task":{"id":7,"attachments":{"x":1}},"placement":{"allowed_targets":["a"," a ",null]},"run_id":"r","session_id":"s","executor_id":true}`)
	f.Add(`{"id":"t","task_id":" t ","run_id":1e20,"session_id":-0.5,"executor_id":"e","execution_metrics":{"wall_time_ms":"1e3","per_tool_timings_ms":[]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		decoded, err := value.Decode([]byte(text), value.Limits{})
		if err != nil {
			return
		}
		raw := value.Assoc(decoded)
		idempotent(t, raw, NormalizeInput)
		idempotent(t, raw, NormalizeRun)
		idempotent(t, raw, func(raw map[string]any) (map[string]any, error) { return NormalizeTarget(raw) })
		idempotent(t, raw, func(raw map[string]any) (map[string]any, error) { return NormalizePlacement(raw), nil })
	})
}

func idempotent(t *testing.T, raw map[string]any, normalize func(map[string]any) (map[string]any, error)) {
	t.Helper()
	once, err := normalize(raw)
	if err != nil {
		return
	}
	twice, err := normalize(once)
	if err != nil || !value.Equal(once, twice) {
		t.Errorf("not idempotent: %v\n%s\n%s", err, value.EncodeText(once), value.EncodeText(twice))
	}
}
