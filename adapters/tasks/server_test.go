package tasks_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"inbox/agents/runtime/task"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/await"
)

//contract:shows runtime-2 runtime-3 runtime-5 runtime-6 runtime-9
func TestTargetsArePlaced(t *testing.T) {
	onBoth(t, func(w *working) {
		ids := func(query string) (list []string) {
			targets, _ := w.call(w.tasks, http.MethodGet, "/v1/targets"+query, nil, http.StatusOK)["targets"].([]any)
			for _, one := range targets {
				list = append(list, one.(object)["id"].(string))
			}
			return list
		}
		for query, want := range map[string]string{
			"": "local,pool", "?required_capabilities=gpu,text": "pool", "?required_capabilities=moon": "", "?allowed_targets=local": "local",
			"?resource_class=accelerated": "local,pool", "?resource_class=huge": "local",
		} {
			if got := strings.Join(ids(query), ","); got != want {
				t.Errorf("%s: %s, want %s", query, got, want)
			}
		}

		listed, _ := w.call(w.tasks, http.MethodGet, "/v1/targets?allowed_targets=pool", nil, http.StatusOK)["targets"].([]any)
		pool := object{
			"id": "pool", "label": "pool", "kind": "pull", "capabilities": []string{"gpu", "linux", "text"},
			"resource_classes": []string{"accelerated", "generic"}, "metadata": object{"agent": "workers", "region": "eu"},
		}
		for name, want := range pool {
			if len(listed) != 1 || !value.Equal(listed[0].(object)[name], want) {
				t.Errorf("%s of a target: %v, want %v", name, listed, want)
			}
		}

		for run, test := range map[string]struct {
			placement object
			executor  string
		}{
			"first":      {nil, "local"},
			"preferred":  {object{"preferred_target": "pool"}, "pool"},
			"capable":    {object{"required_capabilities": []string{"gpu"}}, "pool"},
			"unsuitable": {object{"preferred_target": "pool", "resource_class": "huge"}, "local"},
		} {
			if got := w.call(w.tasks, http.MethodPost, "/v1/tasks", taskInput(run, test.placement), http.StatusAccepted); got["executor_id"] != test.executor {
				t.Errorf("%s: on %v, want %s", run, got["executor_id"], test.executor)
			}
		}

		w.refused(w.tasks, http.MethodPost, "/v1/tasks", taskInput("x", object{"required_capabilities": []string{"moon"}}), http.StatusConflict, task.CodeNoHandler)
		w.refused(w.tasks, http.MethodPost, "/v1/tasks", object{"run_id": "x"}, http.StatusBadRequest, task.CodeInvalidInput)
	})
}

// TestRunToItsEnd runs a task, reads it as its owner, its manager and others, and holds it to the recorded form.
//
//contract:shows runtime-4 runtime-7
func TestRunToItsEnd(t *testing.T) {
	onBoth(t, func(w *working) {
		done := w.call(w.results, http.MethodPost, "/v1/tasks?wait=20s", taskInput("r1", nil), http.StatusOK)
		if done["status"] != task.StatusSucceeded || !strings.Contains(member(done, "output")["text"].(string), "do r1") || done["executor_id"] != "local" {
			t.Fatalf("run = %v", done)
		}
		recordedForm(t, done)

		if metrics := member(done, "execution_metrics"); metrics["schema"] != task.SchemaMetrics || metrics["executor_id"] != "local" || metrics["wall_time_ms"] == nil {
			t.Errorf("metrics = %v", metrics)
		}
		if about := member(done, "provenance"); about["agent"] != "echo" || about["turn_id"] == nil {
			t.Errorf("provenance = %v", about)
		}
		if metadata := member(done, "metadata"); metadata["task_id"] != "t-r1" || metadata["target_kind"] != "agent" || done["started_at"] == "" {
			t.Errorf("what was known at the start is lost: %v", done)
		}
		if events, _ := done["events"].([]any); len(events) == 0 || events[len(events)-1].(object)["type"] != "run_finished" {
			t.Errorf("events = %v", done["events"])
		}

		if again := w.call(w.results, http.MethodGet, at("r1"), nil, http.StatusOK); !value.Equal(again, done) {
			t.Errorf("read again: %v", again)
		}
		if whole := w.call(w.admin, http.MethodGet, at("r1"), nil, http.StatusOK); !value.Equal(whole, done) {
			t.Errorf("the operator reads %v", whole)
		}
		envelope := w.call(w.results, http.MethodGet, "/v1/tasks/r1/result?session_id=s1", nil, http.StatusOK)
		if envelope["schema"] != task.SchemaRunResult || !value.Equal(envelope["outputs"], done["output"]) {
			t.Errorf("envelope = %v", envelope)
		}

		w.refused(w.results, http.MethodPost, "/v1/tasks", taskInput("r1", nil), http.StatusConflict, task.CodeAlreadyStarted)
		w.refused(w.tasks, http.MethodPost, "/v1/tasks", taskInput("r1", nil), http.StatusConflict, task.CodeAlreadyStarted)
		for name, path := range map[string]string{"other session": "/v1/tasks/r1?session_id=s2", "no session": "/v1/tasks/r1", "other run": at("r2")} {
			t.Log(name)
			w.refused(w.results, http.MethodGet, path, nil, http.StatusNotFound, task.CodeNotFound)
		}
		w.refused(w.tasks, http.MethodGet, at("r1"), nil, http.StatusNotFound, task.CodeNotFound)
		w.refused(w.tasks, http.MethodPost, "/v1/tasks/r1/cancel", object{"session_id": "s1"}, http.StatusNotFound, task.CodeNotFound)
		for _, token := range []string{"", "wrong", w.worker, w.Token("peer")} {
			w.refused(token, http.MethodGet, at("r1"), nil, http.StatusUnauthorized, "unauthenticated")
		}
	})
}

// recordedForm compares a run with what the reference gave.
func recordedForm(t *testing.T, run object) {
	t.Helper()
	content, err := os.ReadFile("../../agents/testdata/agents-api/task-execution.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Cases []struct {
			Name     string
			Expected struct{ OK json.RawMessage }
		}
	}
	if err := json.Unmarshal(content, &recorded); err != nil {
		t.Fatal(err)
	}

	for _, one := range recorded.Cases {
		if one.Name != "run prefers target" {
			continue
		}
		var expected object
		if err := json.Unmarshal(one.Expected.OK, &expected); err != nil {
			t.Fatal(err)
		}
		if want, got := slices.Sorted(maps.Keys(expected)), slices.Sorted(maps.Keys(run)); !slices.Equal(want, got) {
			t.Errorf("members %v, recorded are %v", got, want)
		}
		if run["schema"] != expected["schema"] {
			t.Errorf("schema %v", run["schema"])
		}
	}

	normal, err := task.NormalizeRun(run)
	if err != nil || !value.Equal(normal, run) {
		t.Errorf("not normal: %v, %v", normal, err)
	}
}

func TestOwnersWithoutResultsReadThemRedacted(t *testing.T) {
	onBoth(t, func(w *working) {
		run := w.call(w.tasks, http.MethodPost, "/v1/tasks?wait=20s", taskInput("r1", nil), http.StatusOK)
		for name, want := range map[string]any{
			"status": task.StatusSucceeded, "output": object{"redacted": true}, "provenance": object{"redacted": true}, "diagnostics": object{"redacted": true},
		} {
			if !value.Equal(run[name], want) {
				t.Errorf("%s = %v, want %v", name, run[name], want)
			}
		}

		w.call(w.results, http.MethodPost, "/v1/tasks?wait=20s", taskInput("r2", nil), http.StatusOK)
		list := func(token, query string) (ids []string, next string) {
			answer := w.call(token, http.MethodGet, "/v1/tasks"+query, nil, http.StatusOK)
			runs, _ := answer["runs"].([]any)
			for _, one := range runs {
				ids = append(ids, one.(object)["run_id"].(string))
			}
			next, _ = answer["next"].(string)
			return ids, next
		}
		if own, _ := list(w.tasks, ""); !slices.Equal(own, []string{"r1"}) {
			t.Errorf("own runs are %v", own)
		}
		first, next := list(w.admin, "?limit=1")
		rest, end := list(w.admin, "?limit=1&before="+next)
		if !slices.Equal(append(first, rest...), []string{"r2", "r1"}) || end != "" {
			t.Errorf("all runs are %v and %v", first, rest)
		}
	})
}

// TestCancel ends a run that waits for a program, and one that a program has: its answer comes too late.
//
//contract:shows runtime-8
func TestCancel(t *testing.T) {
	onBoth(t, func(w *working) {
		pool := object{"preferred_target": "pool"}
		for _, run := range []string{"waits", "runs"} {
			w.call(w.results, http.MethodPost, "/v1/tasks", taskInput(run, pool), http.StatusAccepted)
			var leased *lease
			if run == "runs" {
				leased = w.take("", "20s", http.StatusOK)
				await.Until(t, "the run that a program has is running", func() bool {
					return w.call(w.results, http.MethodGet, at(run), nil, http.StatusOK)["status"] == task.StatusRunning
				})
			}

			for _, want := range []bool{true, false} {
				got := w.call(w.results, http.MethodPost, "/v1/tasks/"+run+"/cancel", object{"session_id": "s1"}, http.StatusOK)
				if got["cancelled"] != want || got["status"] != task.StatusCancelled {
					t.Errorf("%s: cancelled %v, status %v", run, got["cancelled"], got["status"])
				}
			}
			if leased != nil {
				late := `{"parts":[{"kind":"text","mime":"text/plain","content":"late"}]}`
				if status, _, body := w.Read(http.MethodPost, leased.at+"answer"+leased.key, w.worker, late); status != http.StatusConflict && status != http.StatusOK {
					t.Errorf("a late answer gets %d %s", status, body) // 200 where the program is faster than the word that no one wants it
				}
			}
			if got := w.call(w.results, http.MethodGet, at(run)+"&wait=20s", nil, http.StatusOK); got["status"] != task.StatusCancelled || got["output"] != nil {
				t.Errorf("%s: %v", run, got)
			}
		}
	})
}

// TestProgramsGetWhatTheirLabelsMeet: a run waits while no program has the labels, and those behind it do not.
func TestProgramsGetWhatTheirLabelsMeet(t *testing.T) {
	onBoth(t, func(w *working) {
		run := func(id string, required ...string) {
			placement := object{"allowed_targets": []string{"pool"}, "required_capabilities": required}
			w.call(w.results, http.MethodPost, "/v1/tasks", taskInput(id, placement), http.StatusAccepted)
		}
		text := func(content string) object {
			return object{"parts": []any{object{"kind": "text", "mime": "text/plain", "content": content}}}
		}
		run("gpu", "gpu", "linux")
		run("any")

		plain := w.take("linux", "20s", http.StatusOK)
		if plain.says() != "do any" {
			t.Fatalf("a program without gpu got %q", plain.says())
		}
		plain.answer(text("done without"))
		w.take("linux", "1s", http.StatusNoContent)
		if got := w.call(w.results, http.MethodGet, at("gpu"), nil, http.StatusOK); got["status"] == task.StatusFailed || task.Terminal(got["status"].(string)) {
			t.Errorf("nobody could take it, and it is %v", got["status"])
		}

		able := w.take("text,linux,gpu", "20s", http.StatusOK)
		if able.says() != "do gpu" {
			t.Fatalf("the program with gpu got %q", able.says())
		}
		able.answer(text("done with"))
		for id, want := range map[string]string{"gpu": "done with", "any": "done without"} {
			got := w.call(w.results, http.MethodGet, at(id)+"&wait=20s", nil, http.StatusOK)
			if member(got, "output")["text"] != want || got["status"] != task.StatusSucceeded {
				t.Errorf("%s: %v", id, got)
			}
		}
		w.call(w.worker, http.MethodPost, "/v1/pull/workers/take?labels=a%20b", nil, http.StatusBadRequest)
	})
}

// TestWhatExecutorsBring reads files, data and results of executors that know the contract.
//
//contract:shows runtime-4 runtime-9 runtime-10
func TestWhatExecutorsBring(t *testing.T) {
	w := newWorking(t, "sqlite")
	file := func(name, mime, content string) object {
		return object{"kind": "file", "mime": mime, "name": name, "bytes_ref": object{"kind": "inline", "data_base64": base64.StdEncoding.EncodeToString([]byte(content))}}
	}
	ran := func(id string, answer object) object {
		w.call(w.results, http.MethodPost, "/v1/tasks", taskInput(id, object{"preferred_target": "pool"}), http.StatusAccepted)
		w.take("", "20s", http.StatusOK).answer(answer)
		return w.call(w.results, http.MethodGet, at(id)+"&wait=20s", nil, http.StatusOK)
	}

	files := ran("files", object{"parts": []any{
		object{"kind": "text", "mime": "text/plain", "content": "see there"}, file("numbers.json", "application/json", `{"sum":3}`), file("plot.png", "image/png", "png"),
	}})
	if output := member(files, "output"); output["text"] == nil || !value.Equal(output["data"], object{"sum": 3}) {
		t.Errorf("output = %v", files["output"])
	}
	references, _ := files["artifact_refs"].([]any)
	if len(references) != 2 || references[1].(object)["label"] != "plot.png" || references[1].(object)["sha256"] == nil {
		t.Fatalf("files = %v", references)
	}
	address, _ := references[1].(object)["url"].(string)
	if at := strings.Index(address, "/media/"); at < 0 {
		t.Errorf("the file is at %q", address)
	} else if status, _, body := w.Read(http.MethodGet, address[at:], "", ""); status != http.StatusOK || body != "png" {
		t.Errorf("its address gives %d %q", status, body)
	}

	own := ran("own", object{"parts": []any{file("task-result.json", "application/json",
		`{"status":"failed","owner":{"type":"user","key":"x"},"run_id":"x","output":{"n":1},"diagnostics":{"error_code":"no_disk","error_message":"full"},"execution_metrics":{"tool_call_count":4}}`)}})
	if own["status"] != task.StatusFailed || member(own, "diagnostics")["error_code"] != "no_disk" || own["run_id"] != "own" || member(own, "owner")["key"] == "x" ||
		!value.Equal(own["output"], object{"n": 1}) || !value.Equal(member(own, "execution_metrics")["tool_call_count"], 4) {
		t.Errorf("own result: %v", own)
	}

	for id, content := range map[string]string{"no-object": `[1]x`, "goes-on": `{"status":"running"}`} {
		if bad := ran(id, object{"parts": []any{file("task-result.json", "application/json", content)}}); bad["status"] != task.StatusFailed || member(bad, "diagnostics")["error_code"] != task.CodeInvalidResult {
			t.Errorf("%s: %v", id, bad)
		}
	}

	failed := ran("failed", object{"status": "failed", "error": object{"code": "no-such-order", "message": "I do not know this order."}})
	if diagnostics := member(failed, "diagnostics"); failed["status"] != task.StatusFailed || diagnostics["error_code"] != "no-such-order" || diagnostics["error_message"] != "I do not know this order." {
		t.Errorf("failed: %v", failed)
	}
	asked := ran("asked", object{"status": "input_required", "parts": []any{object{"kind": "text", "mime": "text/plain", "content": "Which one?"}}})
	if diagnostics := member(asked, "diagnostics"); asked["status"] != task.StatusFailed || diagnostics["error_code"] != "input_required" {
		t.Errorf("asked back: %v", asked)
	}
	if silent := ran("silent", object{"silent": true}); silent["status"] != task.StatusSucceeded || silent["output"] != nil {
		t.Errorf("silent: %v", silent)
	}
}

// TestInputReachesTheExecutor gives everything that an input may have but ids of its own, and reads what the program gets.
//
//contract:shows runtime-1 runtime-2
func TestInputReachesTheExecutor(t *testing.T) {
	w := newWorking(t, "sqlite")
	begun := w.call(w.results, http.MethodPost, "/v1/tasks", object{
		"task": object{
			"id": "t-1", "instructions": "Render it.", "input": object{"month": 7},
			"attachments": []any{object{"name": "plan.txt", "mime_type": "text/plain", "data_base64": base64.StdEncoding.EncodeToString([]byte("plan"))}},
		},
		"client_context": object{"page": "report"}, "metadata": object{"ticket": "T-7"},
		"placement": object{
			"preferred_target": "pool", "allowed_targets": []string{"pool"}, "resource_class": "accelerated",
			"required_capabilities": []string{"gpu"}, "metadata": object{"why": "large"},
		},
	}, http.StatusAccepted)
	run, _ := begun["run_id"].(string)
	session, _ := begun["session_id"].(string)
	if !strings.HasPrefix(run, "task_run_") || !strings.HasPrefix(session, "task_session_") || begun["executor_id"] != "pool" {
		t.Fatalf("begun: %v", begun)
	}

	taken, err := json.Marshal(w.take("gpu", "20s", http.StatusOK).document)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Render it.", base64.StdEncoding.EncodeToString([]byte(`{"month":7}`)), base64.StdEncoding.EncodeToString([]byte("plan")), `"plan.txt"`,
		`"client_context":{"page":"report"}`, `"metadata":{"ticket":"T-7"}`, `"metadata":{"why":"large"}`, `"resource_class":"accelerated"`, run, session,
	} {
		if !strings.Contains(string(taken), want) {
			t.Errorf("the program did not get %s: %s", want, taken)
		}
	}
}

// TestTokensOfOneAgent open its targets alone.
func TestTokensOfOneAgent(t *testing.T) {
	w := newWorking(t, "sqlite")
	token, _, err := w.Operator().Tokens.CreateTasks(t.Context(), "narrow", "echo", false)
	if err != nil {
		t.Fatal(err)
	}
	if targets, _ := w.call(token, http.MethodGet, "/v1/targets", nil, http.StatusOK)["targets"].([]any); len(targets) != 1 {
		t.Errorf("targets = %v", targets)
	}
	w.refused(token, http.MethodPost, "/v1/tasks", taskInput("r", object{"allowed_targets": []string{"pool"}}), http.StatusConflict, task.CodeNoHandler)
	w.refused(w.tasks, http.MethodPost, "/v1/tasks", taskInput("r", object{"allowed_targets": []string{"pool"}, "preferred_target": 7, "required_capabilities": "gpu", "resource_class": "moon"}), http.StatusConflict, task.CodeNoHandler)

	bad := taskInput("bad", nil)
	bad["task"].(object)["attachments"] = []any{object{"name": "nothing"}}
	w.refused(w.tasks, http.MethodPost, "/v1/tasks", bad, http.StatusBadRequest, "malformed")
	w.refused(w.tasks, http.MethodPost, "/v1/tasks", json.RawMessage(`{"run_id":"one","run_id":"two"}`), http.StatusBadRequest, "malformed")
	w.refused(w.tasks, http.MethodGet, "/v1/tasks?limit=0", nil, http.StatusBadRequest, "malformed")
	w.refused(w.tasks, http.MethodPost, "/v1/tasks?wait=soon", taskInput("bad", nil), http.StatusBadRequest, "malformed")
	long := taskInput(strings.Repeat("x", 600), nil)
	w.refused(w.tasks, http.MethodPost, "/v1/tasks", long, http.StatusBadRequest, "malformed")
}

// TestOneRunOfAnID begins the same run many times at once, by two owners.
func TestOneRunOfAnID(t *testing.T) {
	onBoth(t, func(w *working) {
		body, err := json.Marshal(taskInput("same", object{"preferred_target": "pool"}))
		if err != nil {
			t.Fatal(err)
		}

		statuses := make(chan int, 12)
		for i := range cap(statuses) {
			go func() {
				status, _, _ := w.Read(http.MethodPost, "/v1/tasks", []string{w.tasks, w.results}[i%2], string(body), "Content-Type", "application/json")
				statuses <- status
			}()
		}

		won := 0
		for range cap(statuses) {
			switch status := await.Receive(t, statuses, "an answer"); status {
			case http.StatusAccepted:
				won++
			case http.StatusConflict:
			default:
				t.Errorf("status %d", status)
			}
		}
		if won != 1 {
			t.Errorf("%d of the same run began", won)
		}
		w.take("", "20s", http.StatusOK)
		w.take("", "1s", http.StatusNoContent)
	})
}

// TestRunsThatWaitForATool say so, and who waits for their end hears it after the tool has given its result.
func TestRunsThatWaitForATool(t *testing.T) {
	s, _ := inboxtest.NewWithTools(t)
	w := &working{Server: s.Serve()}
	var err error
	if w.results, _, err = w.Operator().Tokens.CreateTasks(t.Context(), "reader", "", true); err != nil {
		t.Fatal(err)
	}

	ended := make(chan object, 1)
	w.call(w.results, http.MethodPost, "/v1/tasks", taskInput("a/b ü", object{"preferred_target": "tools"}), http.StatusAccepted)
	path := at(url.PathEscape("a/b ü"))
	await.Until(t, "the run waits for the tool", func() bool {
		run := w.call(w.results, http.MethodGet, path, nil, http.StatusOK)
		return run["status"] == task.StatusRunning && member(run, "metadata")["waiting_for"] == "runtime_tool_pending"
	})
	go func() {
		_, _, raw := w.Read(http.MethodGet, path+"&wait=20s", w.results, "")
		run := object{}
		_ = json.Unmarshal([]byte(raw), &run)
		ended <- run
	}()

	requests, err := w.Operator().Tools.Requests(t.Context(), exchange.ToolRequestFilter{Limit: 10})
	if err != nil || len(requests) != 1 {
		t.Fatal(requests, err)
	}
	if _, err := w.Operator().Tools.Submit(t.Context(), requests[0].ID, "desk", []byte(`{"success":true,"result":{"in_stock":3}}`)); err != nil {
		t.Fatal(err)
	}
	run := await.Receive(t, ended, "the end of the run")
	if usage := member(member(run, "execution_metrics"), "usage"); run["status"] != task.StatusSucceeded || !value.Equal(usage["model_calls"], 2) {
		t.Errorf("run = %v", run)
	}
}
