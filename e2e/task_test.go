package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/normalized"
)

// tasked is a server with targets, that is killed while they work.
type tasked struct {
	*server

	token, worker string
	folder        string // where the program of the target "slow" notes its starts and waits for the file "go"
}

// newTasked starts the server; more are further tables of its settings.
func newTasked(t *testing.T, database, more string) *tasked {
	t.Helper()
	folder := t.TempDir()
	program := `echo x >> "` + folder + `/starts"; until [ -e "` + folder + `/go" ]; do sleep 0.05; done; cat > /dev/null; echo "slow and steady"`
	w := &tasked{folder: folder, server: start(t, instance.Settings{Database: database, Lease: "2s", Agents: fmt.Sprintf(`
[[agents]]
name = "echo"
kind = "echo"
[[agents]]
name = "slow"
kind = "command"
[agents.command]
program = "/bin/sh"
arguments = ["-c", %q]
output = "text"
[[agents]]
name = "workers"
kind = "pull"
[agents.pull]
lease = "20s"
[[targets]]
id = "local"
agent = "echo"
[[targets]]
id = "slow"
agent = "slow"
[[targets]]
id = "pool"
kind = "pull"
agent = "workers"
capabilities = ["gpu", "linux"]
`, program) + more})}
	w.token = w.mint("--tasks", "--results", "nightly")
	w.worker = w.mint("--agent", "workers", "--pull", "laptop")
	return w
}

// mint makes a token; it stands on the last line.
func (w *tasked) mint(arguments ...string) string {
	w.t.Helper()
	lines := strings.Fields(w.inbox(append([]string{"tokens", "create"}, arguments...)...))
	return lines[len(lines)-1]
}

// ask sends a request; status 0 = the server did not answer.
func (w *tasked) ask(token, method, path, body string) (status int, answer map[string]any) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, w.URL()+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, nil
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = response.Body.Close() }()

	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil
	}
	_ = json.Unmarshal(raw, &answer)
	return response.StatusCode, answer
}

func taskBody(run, target string) string {
	return fmt.Sprintf(`{"task":{"id":"t","instructions":"do %s"},"run_id":%q,"session_id":"s","placement":{"preferred_target":%q,"allowed_targets":[%q]}}`, run, run, target, target)
}

// begin runs a task and demands that the server took it.
func (w *tasked) begin(run, target string) {
	w.t.Helper()
	if status, answer := w.ask(w.token, http.MethodPost, "/v1/tasks", taskBody(run, target)); status != http.StatusAccepted {
		w.t.Fatalf("%s: %d %v", run, status, answer)
	}
}

func (w *tasked) run(run string) map[string]any {
	w.t.Helper()
	_, answer := w.ask(w.token, http.MethodGet, "/v1/tasks/"+url.PathEscape(run)+"?session_id=s", "")
	return answer
}

// ends waits for the end of a run and demands that it came once: one answer, one row of the end, and what the executor said.
func (w *tasked) ends(run, said string) {
	w.t.Helper()
	eventually(w.t, run+" succeeds", func() bool { return w.run(run)["status"] == "succeeded" })
	whole := w.run(run)
	output, _ := whole["output"].(map[string]any)
	if text, _ := output["text"].(string); !strings.Contains(text, said) {
		w.t.Errorf("%s brought %v, want %q", run, whole["output"], said)
	}

	likeTheRecordedRun(w.t, whole)
	finished := 0
	events, _ := whole["events"].([]any)
	for _, one := range events {
		if event, _ := one.(map[string]any); event["type"] == "run_finished" {
			finished++
		}
	}
	if finished != 1 {
		w.t.Errorf("%s ended %d times: %v", run, finished, events)
	}
}

// likeTheRecordedRun holds a run that has ended to the one that the reference recorded: the same schema and the same members, of which those
// that are texts there are texts here.
func likeTheRecordedRun(t *testing.T, run map[string]any) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "agents", "testdata", "agents-api", "task-execution.json"))
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

	var want map[string]any
	for _, one := range recorded.Cases {
		if one.Name == "run prefers target" {
			if err := json.Unmarshal(one.Expected.OK, &want); err != nil {
				t.Fatal(err)
			}
		}
	}
	if has, wanted := slices.Sorted(maps.Keys(run)), slices.Sorted(maps.Keys(want)); !slices.Equal(has, wanted) || len(wanted) == 0 {
		t.Errorf("the members of a run are %v, recorded are %v", has, wanted)
	}
	if run["schema"] != want["schema"] || run["status"] != want["status"] {
		t.Errorf("schema %v and status %v, recorded are %v and %v", run["schema"], run["status"], want["schema"], want["status"])
	}
	for name, value := range want {
		if _, text := value.(string); text && reflect.TypeOf(run[name]) != reflect.TypeOf(value) {
			t.Errorf("%s is %v, recorded is %v", name, run[name], value)
		}
	}
}

// TestTasksGoOnAfterAKill kills the server while one run works here, one at an agent elsewhere, one is with a program and one waits for a
// program. All of them go on after the restart and end once, and the program that worked notices nothing.
//
//contract:shows runtime-3 runtime-4 runtime-7
func TestTasksGoOnAfterAKill(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		goOn := make(chan struct{})
		hook := startScripted(t, func(normalized.Message) normalized.Response {
			select {
			case <-goOn:
			case <-time.After(patience):
			}
			return say("from elsewhere")
		})
		far := start(t, instance.Settings{Agents: hook.table("hook", "")})
		w := newTasked(t, database, fmt.Sprintf(`
[[agents]]
name = "far"
kind = "remote"
[agents.remote]
card_url = %q
token = %q
[[targets]]
id = "far"
kind = "a2a"
agent = "far"
`, far.URL()+"/a2a/hook/.well-known/agent-card.json", far.peerToken("near")))
		w.begin("here", "slow")
		w.begin("away", "far")
		eventually(t, "the agent elsewhere is asked", func() bool { return len(hook.questions()) == 1 })
		w.begin("leased", "pool")
		take := "/v1/pull/workers/take?wait=20s&labels=gpu,linux"
		status, taken := w.ask(w.worker, http.MethodPost, take, "")
		if status != http.StatusOK {
			t.Fatalf("take: %d %v", status, taken)
		}
		w.begin("waiting", "pool")
		starts := func() int {
			noted, _ := os.ReadFile(filepath.Join(w.folder, "starts"))
			return bytes.Count(noted, []byte("x"))
		}
		eventually(t, "the program starts", func() bool { return starts() == 1 })

		w.killed()
		eventually(t, "the program starts again", func() bool { return starts() == 2 })
		if err := os.WriteFile(filepath.Join(w.folder, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		w.ends("here", "slow and steady")
		close(goOn)
		w.ends("away", "from elsewhere")
		if asked := len(hook.questions()); asked != 1 {
			t.Errorf("the agent elsewhere was asked %d times", asked)
		}

		turn, lease := taken["turn"].(map[string]any), taken["lease"].(map[string]any)
		answer := func(turn, lease map[string]any, text string) {
			body := `{"parts":[{"kind":"text","mime":"text/plain","content":"` + text + `"}]}`
			path := fmt.Sprintf("/v1/pull/workers/%v/answer?lease=%v", turn["id"], lease["id"])
			eventually(t, "the answer is taken", func() bool { status, _ := w.ask(w.worker, http.MethodPost, path, body); return status == http.StatusOK })
		}
		answer(turn, lease, "by the first program")
		w.ends("leased", "by the first program")

		eventually(t, "the other run is leased", func() bool {
			status, taken = w.ask(w.worker, http.MethodPost, take, "")
			return status == http.StatusOK
		})
		answer(taken["turn"].(map[string]any), taken["lease"].(map[string]any), "by the second")
		w.ends("waiting", "by the second")
		w.judgeRows()
	})
}

// TestAcknowledgedTasksEndOnce kills the server again and again while programs begin runs and repeat what was not acknowledged.
func TestAcknowledgedTasksEndOnce(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		w := newTasked(t, database, "")
		const programs, each, kills = 4, 30, 3
		var all sync.WaitGroup
		for p := range programs {
			all.Go(func() {
				for i := range each {
					body := taskBody(fmt.Sprintf("r-%d-%d", p, i), "local")
					for {
						status, answer := w.ask(w.token, http.MethodPost, "/v1/tasks", body)
						if status == http.StatusAccepted || status == http.StatusOK || status == http.StatusConflict {
							break
						}
						if status != 0 && status != http.StatusServiceUnavailable {
							t.Errorf("%d %v", status, answer)
							return
						}
						<-time.After(20 * time.Millisecond)
					}
					<-time.After(rand.N(60 * time.Millisecond))
				}
			})
		}
		for range kills {
			<-time.After(100*time.Millisecond + rand.N(200*time.Millisecond))
			w.killed()
		}
		all.Wait()

		for p := range programs {
			for i := range each {
				run := fmt.Sprintf("r-%d-%d", p, i)
				w.ends(run, "do "+run)
			}
		}
		w.judgeRows()
	})
}

// judgeRows demands one turn and one answer for each run.
func (w *tasked) judgeRows() {
	w.t.Helper()
	for what, query := range map[string]string{
		"runs without a turn": `SELECT id FROM task_runs WHERE turn_id <> '' AND turn_id NOT IN (SELECT id FROM turns)`,
		"turns without a run": `SELECT id FROM turns WHERE channel = 'task' AND id NOT IN (SELECT turn_id FROM task_runs)`,
		"turns with two":      `SELECT turn_id FROM task_runs WHERE turn_id <> '' GROUP BY turn_id HAVING COUNT(*) > 1`,
		"several answers":     `SELECT turn_id FROM replies GROUP BY turn_id HAVING COUNT(*) <> 1`,
		"turns that go on":    `SELECT id FROM turns WHERE state <> 'answered'`,
	} {
		found, err := w.Column(w.t.Context(), query)
		if err != nil || len(found) > 0 {
			w.t.Errorf("%s: %v, %v", what, found, err)
		}
	}
}

// TestTaskCommands runs, follows, lists and cancels with the commands, as an operator on the machine of the server.
//
//contract:shows runtime-6 runtime-7 runtime-8
func TestTaskCommands(t *testing.T) {
	w := newTasked(t, "", "")
	if targets := w.inbox("tasks", "targets"); !strings.Contains(targets, "pool") || !strings.Contains(targets, "gpu,linux") {
		t.Errorf("targets:\n%s", targets)
	}
	if shown := w.inbox("tasks", "run", "--target", "local", "--run", "named", "--wait", "hello", "there"); !strings.Contains(shown, "succeeded") || !strings.Contains(shown, "hello there") {
		t.Errorf("run --wait:\n%s", shown)
	}

	var begun struct {
		ID     string `json:"run_id"`
		Status string `json:"status"`
	}
	printed := w.inbox("tasks", "run", "--require", "gpu", "--input", `{"a":1}`, "--json", "render")
	if err := json.Unmarshal([]byte(printed), &begun); err != nil || begun.Status != "queued" {
		t.Fatalf("%v:\n%s", err, printed)
	}
	if list := w.inbox("tasks", "list"); !strings.Contains(list, begun.ID) || !strings.Contains(list, "named") {
		t.Errorf("list:\n%s", list)
	}
	if said := w.inbox("tasks", "cancel", begun.ID); !strings.Contains(said, "is cancelled") {
		t.Errorf("cancel: %s", said)
	}
	if said := w.inbox("tasks", "cancel", begun.ID); !strings.Contains(said, "had ended before: cancelled") {
		t.Errorf("cancel again: %s", said)
	}
	if shown := w.inbox("tasks", "show", begun.ID); !strings.Contains(shown, "cancelled on pool") {
		t.Errorf("show:\n%s", shown)
	}
	if _, err := w.Run(t.Context(), "tasks", "run", "--require", "moon", "x"); err == nil || !strings.Contains(err.Error(), "No executor target fits") {
		t.Errorf("nowhere to run: %v", err)
	}
}
