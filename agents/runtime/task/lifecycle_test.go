package task

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"inbox/agents/runtime/envelope/fixturetest"
	"inbox/agents/runtime/value"
)

func decode(t *testing.T, text string) any {
	t.Helper()
	given, err := value.Decode([]byte(text), value.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return given
}

// play runs operations against one store and compares each outcome: every row is an operation, its input and the outcome in the form of
// the recorded cases.
func play(t *testing.T, setup string, rows [][3]string) {
	t.Helper()
	runs := newRecording(value.Assoc(decode(t, setup)))
	for i, row := range rows {
		got := fixturetest.Outcome(runs.do(context.Background(), row[0], decode(t, row[1])))
		want := value.Assoc(decode(t, row[2]))
		for _, side := range []map[string]any{got, want} {
			if failure := value.Assoc(side["error"]); failure != nil {
				delete(failure, "message")
			}
		}
		if differences := fixturetest.Compare(want, got); len(differences) > 0 {
			t.Errorf("%d: %s %s:\n\t%s", i+1, row[0], row[1], strings.Join(differences, "\n\t"))
		}
	}
}

// TestTargetForms covers section 7 for declarations of every form.
func TestTargetForms(t *testing.T) {
	target := func(members string) string {
		all := value.Assoc(decode(t, `{"schema":"agents-api/executor-target/v1","label":"e","kind":"executor","description":"","capabilities":[],"resource_classes":[],"metadata":{},"id":"e"}`))
		maps.Copy(all, value.Assoc(decode(t, members)))
		return `{"ok":` + value.EncodeText(all) + `}`
	}
	play(t, `{}`, [][3]string{
		{"target", `{"id":" e "}`, target(`{}`)},
		{"target", `{"id":7}`, target(`{"id":"7","label":"7"}`)},
		{"target", `{"id":"e","label":" E ","kind":" runtime ","description":" d "}`, target(`{"label":"E","kind":"runtime","description":"d"}`)},
		{"target", `{"id":"e","label":"","kind":null}`, target(`{}`)},
		{"target", `{"id":"e","capabilities":"one","resource_classes":["a"," a ","",null,5]}`, target(`{"capabilities":["one"],"resource_classes":["a","5"]}`)},
		{"target", `{"id":"e","metadata":{"z":1},"unknown":1,"schema":" x "}`, target(`{"metadata":{"z":1},"schema":"x"}`)},
		{"target", `{"id":" "}`, `{"error":{"code":"agents_execution_target_invalid"}}`},
		{"target", `{}`, `{"error":{"code":"agents_execution_target_invalid"}}`},
		{"target", `"e"`, `{"error":{"code":"agents_execution_targets_invalid"}}`},
		{"target", `null`, `{"error":{"code":"agents_execution_targets_invalid"}}`},
	})

	broken := `{"targets":[{"id":"a"},{"label":"no id"}]}`
	play(t, broken, [][3]string{
		{"list_targets", `{}`, `{"error":{"code":"agents_execution_target_invalid"}}`},
		{"run", `{"task":{"id":"t"},"run_id":"r","session_id":"s"}`, `{"error":{"code":"agents_execution_target_invalid"}}`},
	})
}

const (
	address  = `{"run_id":"r","session_id":"s"}`
	notThere = `{"error":{"code":"agents_task_run_not_found"}}`
	taken    = `{"error":{"code":"agents_task_run_already_started"}}`
)

// stored is the outcome of a run with the given status and members.
func stored(t *testing.T, status, members string) string {
	t.Helper()
	all := value.Assoc(decode(t, fmt.Sprintf(`{"schema":"agents-api/task-result/v1","run_id":"r","session_id":"s","executor_id":"local","status":%q,
		"owner":{"type":"user","key":"5"},"execution_metrics":{},"artifact_refs":[],"diagnostics":{},"events":[],"provenance":{},"output":null,
		"started_at":"","updated_at":"<timestamp>","metadata":{}}`, status)))
	maps.Copy(all, value.Assoc(decode(t, members)))
	return `{"ok":` + value.EncodeText(all) + `}`
}

// TestStartGetCancel covers a run that another process executes.
func TestStartGetCancel(t *testing.T) {
	started := `"started_at":"<timestamp>","metadata":{"m":1}`
	play(t, `{}`, [][3]string{
		{"get", address, notThere},
		{"cancel", address, notThere},
		{"start", `{"run_id":"r","session_id":"s","owner":{"type":"user","key":"5"},"metadata":{"m":1}}`, stored(t, "running", `{`+started+`}`)},
		{"start", `{"run_id":"r","session_id":"other"}`, taken},
		{"run", `{"task":{"id":"t"},"run_id":"r","session_id":"s"}`, taken},
		{"get", address, stored(t, "running", `{`+started+`}`)},
		{"get", `{"run_id":"r","session_id":"other"}`, notThere},
		{"get", `{"run_id":"r"}`, notThere},
		{"cancel", `{"run_id":"r","session_id":"other"}`, notThere},
		{"cancel", address, stored(t, "cancelling", `{"cancelled":true,`+started+`}`)},
		{"cancel", address, stored(t, "cancelling", `{"cancelled":true,`+started+`}`)},
		{"get", address, stored(t, "cancelling", `{`+started+`}`)},
		{"start", `{"run_id":"r2","session_id":"s","executor_id":"gpu","metadata":{"started_at":"2026-01-02T03:04:05+00:00"}}`,
			stored(t, "running", `{"run_id":"r2","executor_id":"gpu","owner":{},"started_at":"2026-01-02T03:04:05+00:00","metadata":{"started_at":"2026-01-02T03:04:05+00:00"}}`)},
		{"start", `{"session_id":"s"}`, `{"error":{"code":"invalid_argument"}}`},
		{"start", `{"run_id":"r3"}`, `{"error":{"code":"invalid_argument"}}`},
	})
}

// TestRunThenGetAndCancel covers each outcome of a handler.
func TestRunThenGetAndCancel(t *testing.T) {
	const run = `{"task":{"id":"t"},"run_id":"r","session_id":"s"}`
	for name, test := range map[string]struct{ handler, outcome, kept, cancelled string }{
		"default": {`{}`, stored(t, "succeeded", `{"output":{"n":1},"diagnostics":{"summary":"completed"}}`),
			stored(t, "succeeded", `{"output":{"n":1},"diagnostics":{"summary":"completed"}}`),
			stored(t, "succeeded", `{"output":{"n":1},"diagnostics":{"summary":"completed"},"cancelled":false}`)},
		"claims of the handler": {`{"ok":{"status":" FAILED ","run_id":"x","session_id":"x","executor_id":"x","schema":"x","owner":{"type":"user","key":"9"},"started_at":"2026-01-02T03:04:05+00:00","metadata":{"m":1}}}`,
			stored(t, "failed", `{"started_at":"2026-01-02T03:04:05+00:00","metadata":{"m":1}}`),
			stored(t, "failed", `{"started_at":"2026-01-02T03:04:05+00:00","metadata":{"m":1}}`),
			stored(t, "failed", `{"started_at":"2026-01-02T03:04:05+00:00","metadata":{"m":1},"cancelled":false}`)},
		"still running": {`{"ok":{"status":"queued"}}`, stored(t, "queued", `{}`), stored(t, "queued", `{}`), stored(t, "cancelling", `{"cancelled":true}`)},
		"an error": {`{"error":{"code":"boom","message":"Runtime failed"}}`, `{"error":{"code":"boom"}}`,
			stored(t, "failed", `{"diagnostics":{"error_code":"boom","error_message":"Runtime failed"}}`),
			stored(t, "failed", `{"diagnostics":{"error_code":"boom","error_message":"Runtime failed"},"cancelled":false}`)},
		"no object": {`{"ok":"text"}`, `{"error":{"code":"agents_task_invalid_result"}}`, stored(t, "failed", `{}`), stored(t, "failed", `{"cancelled":false}`)},
		"nothing":   {`{"ok":null}`, `{"error":{"code":"agents_task_invalid_result"}}`, stored(t, "failed", `{}`), stored(t, "failed", `{"cancelled":false}`)},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, `{"handler":`+test.handler+`}`, [][3]string{
				{"run", run, test.outcome}, {"run", run, taken}, {"get", address, test.kept}, {"cancel", address, test.cancelled},
			})
		})
	}

	play(t, `{"handler":"none"}`, [][3]string{
		{"run", run, `{"error":{"code":"agents_task_no_handler"}}`}, {"get", address, notThere}, {"cancel", address, notThere},
	})
}
