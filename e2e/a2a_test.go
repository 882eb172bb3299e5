package e2e

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/internal/await"
)

// a2aClient is the JavaScript SDK with one bearer token.
type a2aClient struct {
	t      *testing.T
	input  io.Writer
	mu     sync.Mutex
	next   int
	waits  map[int]chan a2aAnswer
	events map[int]chan a2aEvent // of streams that are watched
	reader *bufio.Reader
}

type a2aAnswer struct {
	ID     int
	Event  *a2aEvent // of a stream that goes on; the others are empty then
	Result json.RawMessage
	Error  *struct {
		Name    string
		Code    int
		Message string
	}
}

func newA2AClient(t *testing.T, agent, token string, options ...string) *a2aClient {
	t.Helper()
	// The SDK resolves the path of the card against the base URL, so that needs its final slash.
	input, output := node(t, "a2a/client.mjs", append([]string{"--agent", agent + "/", "--token", token}, options...)...)
	client := &a2aClient{t: t, input: input, waits: map[int]chan a2aAnswer{}, events: map[int]chan a2aEvent{}, reader: output}
	go client.read()
	return client
}

func (c *a2aClient) read() {
	for {
		line, err := c.reader.ReadBytes('\n')
		var answer a2aAnswer
		if err != nil || json.Unmarshal(line, &answer) != nil {
			c.hangUp()
			return
		}
		c.mu.Lock()
		wait, events := c.waits[answer.ID], c.events[answer.ID]
		if answer.Event == nil {
			delete(c.waits, answer.ID)
		}
		c.mu.Unlock()
		switch {
		case answer.Event == nil:
			wait <- answer
		case events != nil:
			events <- *answer.Event
		}
	}
}

func (c *a2aClient) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, wait := range c.waits {
		close(wait)
		delete(c.waits, id)
	}
}

// begin starts an operation; the channel gets its answer.
func (c *a2aClient) begin(operation string, params any) <-chan a2aAnswer {
	c.t.Helper()
	return c.start(operation, params, nil)
}

// watch starts a stream; the first channel gets its events as they come.
func (c *a2aClient) watch(operation string, params any) (<-chan a2aEvent, <-chan a2aAnswer) {
	c.t.Helper()
	events := make(chan a2aEvent, 100)
	return events, c.start(operation, params, events)
}

func (c *a2aClient) start(operation string, params any, events chan a2aEvent) <-chan a2aAnswer {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	wait := make(chan a2aAnswer, 1)
	c.waits[c.next] = wait
	if events != nil {
		c.events[c.next] = events
	}
	command, err := json.Marshal(map[string]any{"id": c.next, "operation": operation, "params": params})
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c.input, "%s\n", command); err != nil {
		c.t.Fatalf("command to the A2A client: %v", err)
	}
	return wait
}

// end waits for an answer that is no error and decodes it.
func (c *a2aClient) end(answers <-chan a2aAnswer, result any) {
	c.t.Helper()
	answer := await.Receive(c.t, answers, "the answer of the A2A client")
	if answer.ID == 0 {
		c.t.Fatal("the A2A client ended")
	}
	if answer.Error != nil {
		c.t.Fatalf("the A2A client met %+v", *answer.Error)
	}
	if err := json.Unmarshal(answer.Result, result); err != nil {
		c.t.Fatalf("answer %s: %v", answer.Result, err)
	}
}

func (c *a2aClient) do(operation string, params, result any) {
	c.t.Helper()
	c.end(c.begin(operation, params), result)
}

// fails demands an error of the SDK with this name.
func (c *a2aClient) fails(operation string, params any, name string) {
	c.t.Helper()
	answer := await.Receive(c.t, c.begin(operation, params), "the answer of the A2A client to "+operation)
	if answer.Error == nil || !strings.Contains(answer.Error.Name, name) {
		c.t.Errorf("%s gave %s, error %+v; want %s", operation, answer.Result, answer.Error, name)
	}
}

func message(id, text string, more ...any) map[string]any {
	params := map[string]any{
		"message": map[string]any{"messageId": id, "role": "ROLE_USER", "parts": []map[string]string{{"text": text}}},
	}
	for i := 0; i+1 < len(more); i += 2 {
		params[more[i].(string)] = more[i+1]
	}
	return params
}

type sendResult struct {
	Task *load.Task
}

func texts(task load.Task) string {
	var all []string
	for _, one := range task.History {
		if one.Role == "ROLE_AGENT" {
			for _, part := range one.Parts {
				all = append(all, part.Text)
			}
		}
	}
	if task.Status.Message != nil {
		for _, part := range task.Status.Message.Parts {
			all = append(all, part.Text)
		}
	}
	for _, artifact := range task.Artifacts {
		for _, part := range artifact.Parts {
			all = append(all, part.Text)
		}
	}
	return strings.Join(all, "\n")
}

const completed, canceled = "TASK_STATE_COMPLETED", "TASK_STATE_CANCELED"

// slowAgent is an agent of kind webhook that answers when it is told to.
func slowAgent(t *testing.T) (table string, asked <-chan struct{}, answer chan<- struct{}) {
	t.Helper()
	questions, release := make(chan struct{}, 100), make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(io.Discard, request.Body)
		questions <- struct{}{}
		select {
		case <-release:
			writer.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(writer, `{"parts":[{"type":"text","text":"at last"}]}`)
		case <-request.Context().Done():
		}
	}))
	t.Cleanup(service.Close)
	return fmt.Sprintf("[[agents]]\nname = \"slow\"\nkind = \"webhook\"\n[agents.webhook]\nurl = %q\nsecret = \"not-a-secret-but-long-enough\"\n", service.URL),
		questions, release
}

// TestA2AJavaScriptSDK sends, streams, reads, lists and cancels tasks with the SDK for JavaScript, on both databases.
func TestA2AJavaScriptSDK(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		table, asked, _ := slowAgent(t)
		s := start(t, instance.Settings{Database: database, Agents: "[[agents]]\nname = \"echo\"\nkind = \"echo\"\n" + table})
		token := func(name string) string {
			minted, err := s.Token(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			return minted
		}
		ann, bob := token("ann"), token("bob")
		client := newA2AClient(t, s.URL()+"/a2a/echo", ann)

		var sent sendResult
		client.do("send", message("m-1", "good morning"), &sent)
		if sent.Task == nil || sent.Task.Status.State != completed || !strings.Contains(texts(*sent.Task), "good morning") {
			t.Fatalf("send gave %+v", sent.Task)
		}
		t.Run("the same message is the same task", func(t *testing.T) {
			var again sendResult
			client.do("send", message("m-1", "good morning"), &again)
			if again.Task == nil || again.Task.ID != sent.Task.ID {
				t.Errorf("the repeated message gave %+v; want task %s", again.Task, sent.Task.ID)
			}
		})
		t.Run("stream", func(t *testing.T) { checkStream(t, client) })
		t.Run("get", func(t *testing.T) {
			var task load.Task
			client.do("get", map[string]any{"id": sent.Task.ID}, &task)
			if task.ID != sent.Task.ID || task.Status.State != completed || !strings.Contains(texts(task), "good morning") {
				t.Errorf("get gave %+v", task)
			}
		})
		t.Run("list", func(t *testing.T) { checkList(t, client, sent.Task.ID) })
		t.Run("send at once and cancel", func(t *testing.T) { checkCancel(t, s, ann, bob, asked) })
		t.Run("another principal sees none of it", func(t *testing.T) {
			checkStranger(t, newA2AClient(t, s.URL()+"/a2a/echo", bob), sent.Task.ID)
		})
		t.Run("without a good token nothing", func(t *testing.T) { checkTokens(t, s) })
	})
}

func checkStream(t *testing.T, client *a2aClient) {
	t.Helper()
	var events []a2aEvent
	client.do("stream", message("m-stream", "tell me slowly"), &events)
	if len(events) < 2 || events[0].Task == nil {
		t.Fatalf("the stream gave %d events, the first %+v; want a task first and then updates", len(events), events)
	}
	last := events[len(events)-1]
	ended := last.StatusUpdate != nil && last.StatusUpdate.Status.State == completed
	if !ended {
		t.Errorf("the stream ended with %+v; want %s", last, completed)
	}
	var task load.Task
	client.do("get", map[string]any{"id": events[0].Task.ID}, &task)
	if !strings.Contains(texts(task), "tell me slowly") {
		t.Errorf("the streamed task holds %q", texts(task))
	}
}

// a2aEvent is one event of a stream.
type a2aEvent struct {
	Task         *load.Task
	StatusUpdate *struct {
		TaskID string
		Status struct{ State string }
	}
	ArtifactUpdate *struct {
		TaskID   string
		Artifact struct{ Parts []load.A2APart }
		Append   bool
	}
	Message *load.A2AMessage
}

type taskList struct {
	Tasks     []load.Task
	TotalSize int
}

func checkList(t *testing.T, client *a2aClient, id string) {
	t.Helper()
	var listed taskList
	client.do("list", map[string]any{"pageSize": 100}, &listed)
	if len(listed.Tasks) != 2 || listed.TotalSize != 2 {
		t.Errorf("list gave %d tasks of %d; want 2", len(listed.Tasks), listed.TotalSize)
	}
	for _, task := range listed.Tasks {
		if task.ID == id {
			return
		}
	}
	t.Errorf("list does not have task %s: %+v", id, listed)
}

func checkCancel(t *testing.T, s *server, token, stranger string, asked <-chan struct{}) {
	t.Helper()
	client := newA2AClient(t, s.URL()+"/a2a/slow", token)
	var sent sendResult
	client.do("send", message("m-slow", "take your time", "configuration", map[string]any{"returnImmediately": true}), &sent)
	if sent.Task == nil || sent.Task.Status.State == completed {
		t.Fatalf("send at once gave %+v; want an unfinished task", sent.Task)
	}
	await.Receive(t, asked, "the agent to be asked")
	other := newA2AClient(t, s.URL()+"/a2a/slow", stranger)
	other.fails("cancel", map[string]any{"id": sent.Task.ID}, "TaskNotFound")

	var cancelled load.Task
	client.do("cancel", map[string]any{"id": sent.Task.ID}, &cancelled)
	if cancelled.Status.State != canceled {
		t.Errorf("cancel gave %s", cancelled.Status.State)
	}
	client.fails("cancel", map[string]any{"id": sent.Task.ID}, "TaskNotCancelable")
	var task load.Task
	client.do("get", map[string]any{"id": sent.Task.ID}, &task)
	if task.Status.State != canceled {
		t.Errorf("the cancelled task is %s", task.Status.State)
	}
}

func checkStranger(t *testing.T, stranger *a2aClient, id string) {
	t.Helper()
	var listed taskList
	stranger.do("list", map[string]any{}, &listed)
	if len(listed.Tasks) != 0 || listed.TotalSize != 0 {
		t.Errorf("a stranger lists %+v", listed)
	}
	stranger.fails("get", map[string]any{"id": id}, "TaskNotFound")
	stranger.fails("cancel", map[string]any{"id": id}, "TaskNotFound")
	continued := message("m-continue", "and?")
	continued["message"].(map[string]any)["taskId"] = id
	stranger.fails("send", continued, "TaskNotFound")

	// A message id belongs to its sender: the same id of another party is another message.
	var own sendResult
	stranger.do("send", message("m-1", "good evening"), &own)
	if own.Task == nil || own.Task.ID == id || !strings.Contains(texts(*own.Task), "good evening") {
		t.Errorf("the stranger's own message gave %+v", own.Task)
	}
}

func checkTokens(t *testing.T, s *server) {
	t.Helper()
	for _, token := range []string{"", "wrong"} {
		request, err := http.NewRequest(http.MethodPost, s.URL()+"/a2a/echo", strings.NewReader(string(load.SendBody("m", "hi", false))))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("A2A-Version", "1.0")
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized || response.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("token %q: status %d, challenge %q; want 401 with a challenge", token, response.StatusCode,
				response.Header.Get("WWW-Authenticate"))
		}
	}
}

// TestHostileNames: names that no database takes as text, and others that are none of ours, are refused like those that do
// not exist, on both databases and by each binding; they never become failures of the server.
func TestHostileNames(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		w := startWays(t, database, "[[agents]]\nname = \"memory\"\nkind = \"echo\"\n", "")
		token := w.mint("ann")
		for _, name := range []string{"\x00", "a\x00b", "\n", "' OR 1=1 --", "%", "\ufffd", strings.Repeat("x", 5000)} {
			quoted, err := json.Marshal(name)
			if err != nil {
				t.Fatal(err)
			}
			page, _ := json.Marshal(base64.RawURLEncoding.EncodeToString([]byte("1." + name + strings.Repeat("0", max(0, 36-len(name))))))
			for params, method := range map[string]string{
				`{"id":%s}`:                                 "GetTask",
				`{"id":%s,"metadata":{}}`:                   "CancelTask",
				`{"id":%s,"tenant":""}`:                     "SubscribeToTask",
				`{"taskId":%s}`:                             "ListTaskPushNotificationConfigs",
				`{"taskId":%s,"url":"https://x.test"}`:      "CreateTaskPushNotificationConfig",
				`{"contextId":%s}`:                          "ListTasks",
				`{"pageToken":` + string(page) + `,"_":%s}`: "ListTasks",
				`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"taskId":%s}}`:             "SendMessage",
				`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"referenceTaskIds":[%s]}}`: "SendMessage",
			} {
				body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":`+params+`}`, method, quoted)
				if code, answer := w.post("/a2a/memory", token, body); code != 200 || strings.Contains(answer, "-32603") ||
					!strings.Contains(answer, `"error"`) && method != "ListTasks" {
					t.Errorf("%s of %.20q: %d %s", method, name, code, answer)
				}
			}
			ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
			if _, err := w.grpc.GetTask(ctx, &pb.GetTaskRequest{Id: name}); status.Code(err) != codes.NotFound {
				t.Errorf("GetTask of %.20q by gRPC: %v", name, err)
			}
		}
	})
}
