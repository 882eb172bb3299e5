package tasks_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"inbox/engine/store/storetest"
	"inbox/inboxtest"
)

// working is a server with targets, for tests over the wire: echo answers at once, workers give their tasks to programs.
type working struct {
	*inboxtest.Server

	tasks, results, admin, worker string // tokens
}

const settings = `
[federation]
allow_private = true
[[agents]]
name = "echo"
kind = "echo"
[[agents]]
name = "workers"
kind = "pull"
[[targets]]
id = "local"
label = "Here"
agent = "echo"
capabilities = ["text"]
[[targets]]
id = "pool"
kind = "pull"
agent = "workers"
capabilities = ["gpu", "linux", "text"]
resource_classes = ["accelerated", "generic"]
metadata = ["region=eu"]
`

// onBoth runs a test with a server on each database.
func onBoth(t *testing.T, test func(w *working)) {
	t.Helper()
	for name, address := range map[string]func(testing.TB) string{"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newWorking(t, address(t)))
		})
	}
}

func newWorking(t *testing.T, database string) *working {
	t.Helper()
	file := filepath.Join(t.TempDir(), "inbox.toml")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}

	w := &working{Server: inboxtest.New(t, file, "INBOX_DATABASE_URL="+database).Serve()}
	tokens, ctx := w.Operator().Tokens, t.Context()
	var errs [4]error
	w.tasks, _, errs[0] = tokens.CreateTasks(ctx, "nightly", "", false)
	w.results, _, errs[1] = tokens.CreateTasks(ctx, "reader", "", true)
	w.admin, _, errs[2] = tokens.CreateAdmin(ctx, "desk")
	w.worker, _, errs[3] = tokens.CreatePull(ctx, "laptop", "workers")
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return w
}

type object = map[string]any

// call sends a request and demands a status; body nil = none.
func (w *working) call(token, method, path string, body any, want int) object {
	w.Helper()
	text := ""
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			w.Fatal(err)
		}
		text = string(encoded)
	}

	status, _, raw := w.Read(method, path, token, text, "Content-Type", "application/json")
	if status != want {
		w.Fatalf("%s %s answered %d, want %d: %s", method, path, status, want, raw)
	}
	answer := object{}
	if raw != "" {
		if err := json.Unmarshal([]byte(raw), &answer); err != nil {
			w.Fatalf("%s %s: %v: %s", method, path, err, raw)
		}
	}
	return answer
}

// refused is call for an error of which the code is demanded.
func (w *working) refused(token, method, path string, body any, status int, code string) {
	w.Helper()
	if told := member(w.call(token, method, path, body, status), "error"); told["code"] != code {
		w.Errorf("%s %s: code %v, want %s", method, path, told["code"], code)
	}
}

func member(of object, name string) object {
	found, _ := of[name].(object)
	return found
}

// task is an input with ids.
func taskInput(run string, placement object) object {
	return object{
		"task":   object{"id": "t-" + run, "instructions": "do " + run, "input": object{"month": 7}},
		"run_id": run, "session_id": "s1", "placement": placement,
	}
}

func at(run string) string { return "/v1/tasks/" + run + "?session_id=s1" }

// take lets a program with labels lease the next turn; nil = none came in time.
func (w *working) take(labels, wait string, want int) *lease {
	w.Helper()
	answer := w.call(w.worker, http.MethodPost, "/v1/pull/workers/take?wait="+wait+"&labels="+url.QueryEscape(labels), nil, want)
	if want == http.StatusNoContent {
		return nil
	}
	turn, leased := member(answer, "turn"), member(answer, "lease")
	return &lease{w, answer, "/v1/pull/workers/" + turn["id"].(string) + "/", "?lease=" + leased["id"].(string)}
}

// lease is a turn that a program has.
type lease struct {
	w        *working
	document object
	at, key  string
}

func (l *lease) answer(body object) {
	l.w.Helper()
	l.w.call(l.w.worker, http.MethodPost, l.at+"answer"+l.key, body, http.StatusOK)
}

// says is the text of the turn's message.
func (l *lease) says() string {
	parts, _ := member(l.document, "message")["parts"].([]any)
	if len(parts) == 0 {
		return ""
	}
	first, _ := parts[0].(object)
	text, _ := first["content"].(string)
	return text
}
