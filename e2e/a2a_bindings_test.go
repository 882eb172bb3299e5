package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/internal/await"
)

// promptedAgent is an agent of kind webhook that does what the question says: "wait NAME" holds the answer back until NAME
// is released, "slowly NAME" does so in the middle of the answer, anything else is repeated.
type promptedAgent struct {
	table string

	mu    sync.Mutex
	gates map[string]*heldQuestion
}

// heldQuestion is one question that waits.
type heldQuestion struct{ asked, open chan struct{} }

func newPromptedAgent(t *testing.T, name string) *promptedAgent {
	t.Helper()
	a := &promptedAgent{gates: map[string]*heldQuestion{}}
	service := httptest.NewServer(a)
	t.Cleanup(service.Close)
	a.table = webhookAgent(name, service.URL, "not-a-secret-but-long-enough")
	return a
}

func (a *promptedAgent) gate(name string) *heldQuestion {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gates[name] == nil {
		a.gates[name] = &heldQuestion{make(chan struct{}), make(chan struct{})}
	}
	return a.gates[name]
}

func (a *promptedAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var question struct {
		Message struct{ Parts []map[string]any }
	}
	if err := json.NewDecoder(r.Body).Decode(&question); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var text, kinds, files []string
	for _, part := range question.Message.Parts {
		kinds = append(kinds, fmt.Sprint(part["kind"]))
		if bytes, has := part["bytes_ref"].(map[string]any); has {
			files = append(files, fmt.Sprint(bytes["data_base64"]))
		}
		if content, is := part["content"].(string); is {
			text = append(text, content)
		}
	}
	asked := strings.Join(text, " ")
	how, name, _ := strings.Cut(asked, " ")
	w.Header().Set("Content-Type", "text/event-stream")
	delta := func(text string) {
		encoded, _ := json.Marshal(map[string]string{"kind": "text", "text": text})
		_, _ = fmt.Fprintf(w, "data: %s\n\n", encoded)
		_ = http.NewResponseController(w).Flush()
	}
	switch how {
	case "slowly":
		delta("The beginning, ")
		a.gate(name).hold(r)
		delta("and the end.")
	case "wait":
		a.gate(name).hold(r)
		delta("at last")
	default:
		delta(strings.Join(kinds, "+") + ": " + asked + " " + strings.Join(files, ","))
	}
}

func (g *heldQuestion) hold(r *http.Request) {
	close(g.asked)
	select {
	case <-g.open:
	case <-r.Context().Done():
	}
}

// hooked is one call of a webhook.
type hooked struct {
	path   string
	header http.Header
	body   []byte
}

// hookReceiver keeps the calls by path.
type hookReceiver struct {
	url   string
	calls chan hooked
}

func newHookReceiver(t *testing.T) *hookReceiver {
	t.Helper()
	r := &hookReceiver{calls: make(chan hooked, 1000)}
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			t.Errorf("read webhook: %v", err)
		}
		r.calls <- hooked{request.URL.Path, request.Header.Clone(), body}
	}))
	t.Cleanup(service.Close)
	r.url = service.URL
	return r
}

// await returns all calls of a path up to the one whose body says that the task completed.
func (r *hookReceiver) await(t *testing.T, path string) []hooked {
	t.Helper()
	var got []hooked
	timeout := time.After(patience)
	for {
		select {
		case call := <-r.calls:
			state := hookState(call.body)
			ended := state == completed || state == "completed"
			switch {
			case call.path == path:
				got = append(got, call)
				if ended {
					return got
				}
			case ended: // before it was deleted a webhook may have heard of the beginning
				t.Errorf("webhook %s was called: %s", call.path, call.body)
			}
		case <-timeout:
			t.Fatalf("the webhook %s did not hear of the end; it heard %d calls", path, len(got))
		}
	}
}

// hookState reads a StreamResponse of 1.0 or a task of 0.3.
func hookState(body []byte) string {
	var event struct {
		Task, StatusUpdate *struct{ Status struct{ State string } }
		Status             struct{ State string }
	}
	if json.Unmarshal(body, &event) != nil {
		return ""
	}
	switch {
	case event.Task != nil:
		return event.Task.Status.State
	case event.StatusUpdate != nil:
		return event.StatusUpdate.Status.State
	}
	return event.Status.State
}

// spoken is one way to speak A2A with the JavaScript SDK.
type spoken struct{ protocol, binding string }

func (s spoken) String() string { return s.protocol + "-" + strings.ReplaceAll(s.binding, "+", "-") }

// TestA2ASDKEverywhere calls every operation by every binding in both versions, with the SDK of 1.0, with its
// compatibility with 0.3, and with the last SDK of 0.3.
func TestA2ASDKEverywhere(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		agent, hooks := newPromptedAgent(t, "helper"), newHookReceiver(t)
		address, err := instance.FreeAddress()
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, instance.Settings{Database: database, Agents: agent.table, More: fmt.Sprintf("[a2a]\ngrpc_listen = %q\n", address)})
		for _, protocol := range []string{"1.0", "0.3-compat", "0.3"} {
			for _, binding := range []string{"JSONRPC", "HTTP+JSON", "GRPC"} {
				way := spoken{protocol, binding}
				t.Run(way.String(), func(t *testing.T) {
					token, err := s.Token(t.Context(), way.String())
					if err != nil {
						t.Fatal(err)
					}
					session := &sdkSession{way: way, agent: agent, hooks: hooks,
						a2aClient: newA2AClient(t, s.URL()+"/a2a/helper", token, "--binding", binding, "--protocol", protocol)}
					session.everything()
				})
			}
		}
	})
}

// sdkSession is one client with tasks of its own.
type sdkSession struct {
	*a2aClient
	way   spoken
	agent *promptedAgent
	hooks *hookReceiver
	tasks []string
}

func (s *sdkSession) everything() {
	s.t.Helper()
	var version string
	s.do("version", nil, &version)
	if !strings.HasPrefix(s.way.protocol, version) {
		s.t.Fatalf("the client speaks %s; want %s", version, s.way.protocol)
	}
	s.sendBlocking()
	s.streamWhileItGrows()
	s.subscribeToRunningTask()
	s.cancelRunningTask()
	s.manageHooks()
	s.hookWithMessage()
	if s.way.protocol == "1.0" {
		s.listAll() // 0.3 has no list in the SDKs
	}
	var card struct {
		Name   string
		Skills []struct{ ID string }
	}
	s.do("extendedCard", nil, &card)
	if card.Name != "helper" || len(card.Skills) == 0 {
		s.t.Errorf("the extended card is %+v", card)
	}
	missing := "01890000-0000-7000-8000-000000000000"
	for _, operation := range []string{"get", "cancel", "subscribe"} {
		s.fails(operation, map[string]any{"id": missing}, "TaskNotFound")
	}
}

func (s *sdkSession) sendBlocking() {
	s.t.Helper()
	question := message("m-send", "good morning")
	question["message"].(map[string]any)["parts"] = []any{
		map[string]any{"text": "good morning"}, map[string]any{"data": map[string]any{"answer": 42}},
		map[string]any{"raw": "dGVzdA==", "mediaType": "application/octet-stream", "filename": "test.bin"},
		map[string]any{"url": "https://files.example/a.bin", "mediaType": "application/octet-stream", "filename": "a.bin"},
	}
	var sent, again sendResult
	s.do("send", question, &sent)
	if sent.Task == nil || sent.Task.Status.State != completed || !strings.Contains(texts(*sent.Task), "file") || !strings.Contains(texts(*sent.Task), ": good morning") {
		s.t.Fatalf("send gave %+v", sent.Task)
	}
	// Its four bytes could be base64 themselves, which must not be read twice on any way.
	if !strings.Contains(texts(*sent.Task), ",dGVzdA==,") || fileOf(sent.Task) != "dGVzdA==" {
		s.t.Errorf("the file came to the agent and back as %+v", sent.Task)
	}
	s.do("send", question, &again)
	if again.Task == nil || again.Task.ID != sent.Task.ID {
		s.t.Errorf("the repeated message gave %+v; want task %s", again.Task, sent.Task.ID)
	}
	s.tasks = append(s.tasks, sent.Task.ID)
	var read load.Task
	s.do("get", map[string]any{"id": sent.Task.ID}, &read)
	if read.Status.State != completed || texts(read) != texts(*sent.Task) || len(read.History) == 0 || len(read.History[0].Parts) != 4 {
		s.t.Errorf("get gave %+v", read)
	}
	// A task in the same context, which the answer of the first named.
	next := message("m-next", "and?")
	next["message"].(map[string]any)["contextId"] = sent.Task.ContextID
	s.do("send", next, &again)
	if again.Task == nil || again.Task.ID == sent.Task.ID || again.Task.ContextID != sent.Task.ContextID {
		s.t.Fatalf("the next message gave %+v", again.Task)
	}
	s.tasks = append(s.tasks, again.Task.ID)
}

// fileOf is the base64 of the first file in the history of a task.
func fileOf(task *load.Task) string {
	for _, one := range task.History {
		for _, part := range one.Parts {
			if part.Raw != "" {
				return part.Raw
			}
		}
	}
	return ""
}

func (s *sdkSession) streamWhileItGrows() {
	s.t.Helper()
	events, end := s.watch("stream", message("m-stream", "slowly "+s.gateName("m-stream")))
	first := s.event(events)
	if first.Task == nil {
		s.t.Fatalf("the stream began with %+v; want the task", first)
	}
	s.reached("m-stream")
	for grown := ""; !strings.Contains(grown, "beginning"); { // while the agent holds the rest back
		event := s.event(events)
		if event.ArtifactUpdate != nil {
			grown += event.ArtifactUpdate.Artifact.Parts[0].Text
		}
	}
	s.release("m-stream")
	s.checkStreamEnd(first.Task.ID, end)
	s.tasks = append(s.tasks, first.Task.ID)
}

// gateName tells the questions of the clients apart.
func (s *sdkSession) gateName(id string) string { return s.way.String() + "-" + id }

// reached waits until the agent has the question.
func (s *sdkSession) reached(id string) {
	s.t.Helper()
	select {
	case <-s.agent.gate(s.gateName(id)).asked:
	case <-time.After(patience):
		s.t.Fatalf("the agent was not asked %s", id)
	}
}

func (s *sdkSession) release(id string) { close(s.agent.gate(s.gateName(id)).open) }

func (s *sdkSession) event(events <-chan a2aEvent) a2aEvent {
	s.t.Helper()
	select {
	case event := <-events:
		return event
	case <-time.After(patience):
		s.t.Fatal("no event came")
		return a2aEvent{}
	}
}

// checkStreamEnd demands one final status, last.
func (s *sdkSession) checkStreamEnd(task string, end <-chan a2aAnswer) {
	s.t.Helper()
	var all []a2aEvent
	s.end(end, &all)
	for i, event := range all {
		last := i == len(all)-1
		final := event.StatusUpdate != nil && event.StatusUpdate.Status.State == completed
		switch {
		case final != last:
			s.t.Errorf("event %d of %d is %+v; want %s last and once", i+1, len(all), event, completed)
		case event.StatusUpdate != nil && event.StatusUpdate.TaskID != task, event.ArtifactUpdate != nil && event.ArtifactUpdate.TaskID != task:
			s.t.Errorf("event %d is of another task than %s: %+v", i+1, task, event)
		case event.Task != nil && i > 0:
			s.t.Errorf("event %d is a task", i+1)
		}
	}
}

// sendWaiting sends a message whose task goes on until it is released.
func (s *sdkSession) sendWaiting(id string) string {
	s.t.Helper()
	var sent sendResult
	s.do("send", message(id, "wait "+s.gateName(id), "configuration", map[string]any{"returnImmediately": true}), &sent)
	if sent.Task == nil || sent.Task.Status.State == completed {
		s.t.Fatalf("send at once gave %+v; want an unfinished task", sent.Task)
	}
	s.reached(id)
	s.tasks = append(s.tasks, sent.Task.ID)
	return sent.Task.ID
}

func (s *sdkSession) subscribeToRunningTask() {
	s.t.Helper()
	id := s.sendWaiting("m-subscribe")
	events, end := s.watch("subscribe", map[string]any{"id": id})
	if first := s.event(events); first.Task == nil || first.Task.ID != id || first.Task.Status.State == completed {
		s.t.Errorf("the subscription began with %+v; want task %s before its end", first.Task, id)
	}
	s.release("m-subscribe")
	s.checkStreamEnd(id, end)
	var task load.Task
	s.do("get", map[string]any{"id": id}, &task)
	if task.Status.State != completed || !strings.Contains(texts(task), "at last") {
		s.t.Errorf("the task is %+v", task)
	}
	if answer := await.Receive(s.t, s.begin("subscribe", map[string]any{"id": id}), "the refusal of the subscription"); answer.Error == nil {
		s.t.Errorf("a task that has ended was subscribed to: %s", answer.Result)
	}
}

func (s *sdkSession) cancelRunningTask() {
	s.t.Helper()
	id := s.sendWaiting("m-cancel")
	var task load.Task
	s.do("cancel", map[string]any{"id": id}, &task)
	if task.Status.State != canceled {
		s.t.Errorf("cancel gave %s", task.Status.State)
	}
	s.fails("cancel", map[string]any{"id": id}, "TaskNotCancelable")
}

type pushConfig struct {
	ID, URL, Token string
	TaskID         string
	Authentication *struct{ Scheme, Credentials string }
}

func (s *sdkSession) hook(name string) map[string]any {
	return map[string]any{
		"id": name, "url": s.hooks.url + "/" + name, "token": "token of " + name,
		"authentication": map[string]any{"scheme": "Bearer", "credentials": "credentials-of-" + name},
	}
}

func (s *sdkSession) manageHooks() {
	s.t.Helper()
	id := s.sendWaiting("m-hooks")
	for _, name := range []string{"kept", "dropped"} {
		hook := s.hook(name)
		hook["taskId"] = id
		var created, read pushConfig
		s.do("createHook", hook, &created)
		s.do("getHook", map[string]any{"taskId": id, "id": name}, &read)
		for _, config := range []pushConfig{created, read} {
			secret := config.Token != "" || config.Authentication != nil && config.Authentication.Credentials != ""
			if config.ID != name || config.TaskID != id || config.URL != hook["url"] || secret {
				s.t.Errorf("the webhook is %+v; want %s of task %s without its secrets", config, name, id)
			}
		}
	}
	list := func() (names []string) {
		var listed struct{ Configs []pushConfig }
		s.do("listHooks", map[string]any{"taskId": id}, &listed)
		for _, config := range listed.Configs {
			names = append(names, config.ID)
		}
		slices.Sort(names)
		return names
	}
	if names := list(); !slices.Equal(names, []string{"dropped", "kept"}) {
		s.t.Errorf("the webhooks are %q", names)
	}
	var nothing any
	s.do("deleteHook", map[string]any{"taskId": id, "id": "dropped"}, &nothing)
	if names := list(); !slices.Equal(names, []string{"kept"}) {
		s.t.Errorf("after deleting one the webhooks are %q", names)
	}
	s.release("m-hooks")
	s.checkHook("kept", id)
	s.do("deleteHook", map[string]any{"taskId": id, "id": "kept"}, &nothing)
	if names := list(); len(names) != 0 {
		s.t.Errorf("after deleting all the webhooks are %q", names)
	}
}

func (s *sdkSession) hookWithMessage() {
	s.t.Helper()
	name := "inline"
	var sent sendResult
	s.do("send", message("m-inline", "hello", "configuration", map[string]any{"taskPushNotificationConfig": s.hook(name)}), &sent)
	if sent.Task == nil {
		s.t.Fatal("no task")
	}
	s.tasks = append(s.tasks, sent.Task.ID)
	s.checkHook(name, sent.Task.ID)
}

// checkHook waits for the end of the task as its webhook hears it.
func (s *sdkSession) checkHook(name, task string) {
	s.t.Helper()
	for _, call := range s.hooks.await(s.t, "/"+name) {
		for header, want := range map[string]string{
			"X-A2A-Notification-Token": "token of " + name, "A2A-Notification-Token": "token of " + name, "Authorization": "Bearer credentials-of-" + name,
		} {
			if got := call.header.Get(header); got != want {
				s.t.Errorf("the webhook got %s %q; want %q", header, got, want)
			}
		}
		if !strings.Contains(string(call.body), task) {
			s.t.Errorf("the webhook heard of another task than %s: %s", task, call.body)
		}
		old := s.way.protocol != "1.0"
		if bare := strings.Contains(string(call.body), `"kind":"task"`); bare != old {
			s.t.Errorf("the webhook of a client of %s got %s", s.way, call.body)
		}
	}
}

func (s *sdkSession) listAll() {
	s.t.Helper()
	var seen []string
	for token := ""; ; {
		var page struct {
			Tasks         []load.Task
			TotalSize     int
			NextPageToken string
		}
		s.do("list", map[string]any{"pageSize": 2, "pageToken": token}, &page)
		if page.TotalSize != len(s.tasks) || len(page.Tasks) > 2 {
			s.t.Fatalf("a page of %d tasks of %d; want 2 of %d", len(page.Tasks), page.TotalSize, len(s.tasks))
		}
		for _, task := range page.Tasks {
			seen = append(seen, task.ID)
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	want := slices.Sorted(slices.Values(s.tasks))
	if slices.Sort(seen); !slices.Equal(seen, want) {
		s.t.Errorf("the pages hold %q; want %q", seen, want)
	}
}
