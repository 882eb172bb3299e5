package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"inbox/agents/hook"
	"inbox/agents/runtime/value"
	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/internal/webhooksignature"
)

const hookSecret = "a secret that only the hook and the server know"

// watcher is a program of the operator behind [agents.llm.hooks]. It refuses what the server did not sign.
type watcher struct {
	URL    string
	decide func(question hook.Question) string // the body of an answer; empty = 503
	hold   chan struct{}                       // while it is open, events are not answered

	mu     sync.Mutex
	asked  []hook.Question
	events []hook.Event // as often as they came
}

func startWatcher(t *testing.T, decide func(hook.Question) string) *watcher {
	t.Helper()
	w := &watcher{decide: decide}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.URL = server.URL
	return w
}

func (w *watcher) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil || !webhooksignature.Verify(hookSecret, body, request.Header.Get(webhooksignature.Header), webhooksignature.Form{}) {
		http.Error(writer, "not signed by the server", http.StatusUnauthorized)
		return
	}
	var question hook.Question
	var told hook.Events
	if json.Unmarshal(body, &question) != nil || json.Unmarshal(body, &told) != nil || request.Header.Get("Idempotency-Key") != question.ID {
		http.Error(writer, "not readable", http.StatusBadRequest)
		return
	}
	if question.Hook == hook.KindEvents {
		w.mu.Lock()
		w.events = append(w.events, told.Events...)
		hold := w.hold
		w.mu.Unlock()
		if hold != nil {
			select {
			case <-hold:
			case <-request.Context().Done():
			}
		}
		return
	}
	w.mu.Lock()
	w.asked = append(w.asked, question)
	w.mu.Unlock()
	answer := w.decide(question)
	if answer == "" {
		writer.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = io.WriteString(writer, answer)
}

func (w *watcher) questions() []hook.Question {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]hook.Question(nil), w.asked...)
}

func (w *watcher) heard() []hook.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]hook.Event(nil), w.events...)
}

// repeatsTools calls both tools of the notes and says what it heard of them.
func repeatsTools(request modelRequest) string {
	var heard []string
	asked := false
	for _, message := range request.Messages {
		asked = asked || strings.Contains(string(message), "please note")
		if strings.Contains(string(message), `"role":"tool"`) {
			heard = append(heard, string(message))
		}
	}
	switch {
	case len(request.Tools) == 0 || !asked:
		return saidHello
	case len(heard) == 0:
		return calling("call_1", "notes__list_notes", `{}`)
	case len(heard) == 1:
		return calling("call_2", "notes__add_note", `{"text":"buy milk"}`)
	}
	text, err := json.Marshal("I heard " + strings.Join(heard, " and "))
	if err != nil {
		panic(err) // texts can always be written
	}
	return strings.NewReplacer(`"from the model."`, string(text), "Hello ", "Well: ").Replace(saidHello)
}

// hookedTaker is noteTaker with a table of hooks.
func hookedTaker(t *testing.T, provider *model, notes, url, secret, lines string) string {
	t.Helper()
	table := fmt.Sprintf("[agents.llm.hooks]\nurl = %q\nsecret = %q\ntimeout = \"2s\"\n%s[[agents.mcp]]", url, secret, lines)
	return strings.Replace(noteTaker(t, provider, notes, ""), "[[agents.mcp]]", table, 1)
}

func noted(t *testing.T, notes string) int {
	t.Helper()
	content, err := os.ReadFile(notes)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(content), "buy milk")
}

// TestHookMediatesTools: one program denies a call, replaces a result, asks for a person and hands a call to a program outside.
//
//contract:shows runtime-45 runtime-47 runtime-48 runtime-49 runtime-70
func TestHookMediatesTools(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		provider := startModel(t, repeatsTools)
		notes := filepath.Join(t.TempDir(), "notes.jsonl")
		program := startWatcher(t, func(question hook.Question) string {
			request := ""
			for _, message := range question.Call.Messages {
				request += message.Content
			}
			switch list := question.Call.ToolName == "notes__list_notes"; {
			case list && strings.Contains(request, "replaced"):
				return `{"action":"replace_result","result":{"success":true,"result":"only old notes","runtime":{"shelf":"old","api_token":"t0p"}}}`
			case !list && strings.Contains(request, "denied"):
				return `{"action":"reject","error":"Notes are closed today."}`
			case !list && strings.Contains(request, "approved"):
				return `{"action":"require_approval"}`
			case !list && strings.Contains(request, "outside"):
				return `{"action":"pending","timeout_seconds":600}`
			}
			return `{"action":"proceed"}`
		})
		s := start(t, instance.Settings{Database: database, Agents: hookedTaker(t, provider, notes, program.URL, hookSecret, "mediator = true\n")})
		peer := s.a2aPeer("memory", "ann")

		if text := answered(t, peer, "please note: denied"); !strings.Contains(text, "Notes are closed today.") || noted(t, notes) != 0 {
			t.Errorf("a denied call: %d notes, %s", noted(t, notes), text)
		}
		if text := answered(t, peer, "please note: replaced"); !strings.Contains(text, "only old notes") || noted(t, notes) != 1 {
			t.Errorf("a replaced result: %d notes, %s", noted(t, notes), text)
		}
		replaced, _ := s.result(s.shownTurn("message-please note: replaced").Turn.ID, "")
		if text := string(replaced.Result); strings.Contains(text, "t0p") || !strings.Contains(text, `"runtime":{"api_token":"[redacted]","shelf":"old"}`) {
			t.Errorf("the runtime of a replaced result: %s", text)
		}

		task, err := peer.Send(t.Context(), load.SendBody("message-approved", "please note: approved", true))
		if err != nil {
			t.Fatal(err)
		}
		var open []exchange.Approval
		eventually(t, "somebody is asked to approve", func() bool { open = s.approvals(); return len(open) == 1 })
		if noted(t, notes) != 1 {
			t.Error("the tool ran before anybody approved")
		}
		s.inbox("approvals", "approve", "--yes", open[0].ID)
		awaitTask(t, peer, task.ID, completed)
		if noted(t, notes) != 2 {
			t.Errorf("after the approval there are %d notes; want 2", noted(t, notes))
		}

		d := s.desk("memory")
		if task, err = peer.Send(t.Context(), load.SendBody("message-outside", "please note: outside", true)); err != nil {
			t.Fatal(err)
		}
		_, listed := d.call(http.MethodGet, "?wait=20s", "")
		requests, _ := listed["requests"].([]any)
		if len(requests) != 1 {
			t.Fatalf("a program outside reads %v", listed)
		}
		request, _ := requests[0].(map[string]any)
		if request["tool_name"] != "notes/add_note" || fmt.Sprint(request["parameters"]) != "map[text:buy milk]" {
			t.Errorf("a program outside is asked %v", request)
		}
		if status, answer := d.call(http.MethodPost, "/"+fmt.Sprint(request["request_id"])+"/submit", `{"result":"written on paper"}`); status != http.StatusOK {
			t.Errorf("submitted: %d %v", status, answer)
		}
		if text := texts(awaitTask(t, peer, task.ID, completed)); !strings.Contains(text, "written on paper") || noted(t, notes) != 2 {
			t.Errorf("a call that was handed outside: %d notes, %s", noted(t, notes), text)
		}

		shown := s.inbox("show", "message-please note: denied")
		for _, want := range []string{"hook.decided       tool_call reject for notes/add_note", "tool.called        notes/add_note rejected"} {
			if !strings.Contains(shown, want) {
				t.Errorf("the timeline lacks %q:\n%s", want, shown)
			}
		}
		first := program.questions()[0]
		if first.Run.Agent != "memory" || first.Principal.Channel != "a2a" || len(first.Principal.Evidence) != 1 || first.Principal.Evidence[0].Subject == "" {
			t.Errorf("the mediator was told %+v", first)
		}
	})
}

// TestHookFailsClosed: without an answer of the mediator no tool is called, whatever the reason.
func TestHookFailsClosed(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		gone := httptest.NewServer(nil)
		gone.Close()
		program := startWatcher(t, func(question hook.Question) string {
			if strings.HasSuffix(question.Run.MessageID, "busy") {
				return ""
			}
			return `{"action":"proceed"}`
		})
		provider := startModel(t, repeatsTools)
		for name, test := range map[string]struct {
			url, secret, lines, text, row string
			notes                         int
		}{
			"nobody listens":      {gone.URL, hookSecret, "", "gone", "the hook cannot be reached", 0},
			"the wrong signature": {program.URL, "another secret", "", "forged", "it answered 401", 0},
			"it is busy":          {program.URL, hookSecret, "", "busy", "the hook answered 503", 0},
			"it may be down":      {gone.URL, hookSecret, "on_failure = \"proceed\"\n", "open", "the hook cannot be reached", 1},
		} {
			notes := filepath.Join(t.TempDir(), "notes.jsonl")
			s := start(t, instance.Settings{Database: database, Agents: hookedTaker(t, provider, notes, test.url, test.secret, test.lines+"mediator = true\n")})
			text := answered(t, s.a2aPeer("memory", "ann"), "please note: "+test.text)
			if noted(t, notes) != test.notes || strings.Contains(text, "could not be checked") != (test.notes == 0) {
				t.Errorf("%s: %d notes, %s", name, noted(t, notes), text)
			}
			if shown := s.inbox("show", "message-please note: "+test.text); !strings.Contains(shown, "hook.failed") || !strings.Contains(shown, test.row) {
				t.Errorf("%s: the timeline is\n%s", name, shown)
			}
			s.stop()
		}
	})
}

// TestObserverHearsEveryEventOnceWhateverDies: the server dies while the observer has not answered yet and the model is at work. What comes
// again has the same number and the same bytes.
func TestObserverHearsEveryEventOnceWhateverDies(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		second, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		provider := startModel(t, func(request modelRequest) string {
			for _, message := range request.Messages {
				if strings.Contains(string(message), `"role":"tool"`) {
					once.Do(func() { close(second) })
					<-goOn
				}
			}
			return repeatsTools(request)
		})
		notes := filepath.Join(t.TempDir(), "notes.jsonl")
		program := startWatcher(t, func(hook.Question) string { return "" })
		program.hold = make(chan struct{})
		s := start(t, instance.Settings{
			Database: database, Lease: "2s", Agents: hookedTaker(t, provider, notes, program.URL, hookSecret, "observer = true\n"),
		})
		peer := s.a2aPeer("memory", "ann")
		task, err := peer.Send(t.Context(), load.SendBody("observed", "please note: observed", true))
		if err != nil {
			t.Fatal(err)
		}
		<-second
		eventually(t, "the observer is told of the first turn", func() bool { return len(program.heard()) > 0 })
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		program.mu.Lock()
		close(program.hold)
		program.hold = nil
		program.mu.Unlock()
		close(goOn)
		s.start()
		awaitTask(t, peer, task.ID, completed)

		known, order, again := map[string]string{}, []string{}, 0
		for _, event := range program.heard() {
			encoded, err := json.Marshal(event)
			if err != nil {
				t.Fatal(err)
			}
			before, repeated := known[event.ID]
			switch {
			case repeated && before != string(encoded):
				t.Errorf("an event came as %s and as %s", before, encoded)
			case repeated:
				again++
			default:
				if event.Sequence != int64(len(order)+1) {
					t.Errorf("event %d comes after %d others", event.Sequence, len(order))
				}
				order = append(order, event.Type)
			}
			known[event.ID] = string(encoded)
		}
		want := "turn_started tool_call tool_result turn_started " + // what the first attempt kept before it asked the model again
			"turn_started tool_call tool_result turn_started completed"
		if got := strings.Join(order, " "); got != want || again == 0 {
			t.Errorf("the observer heard %s, %d of them again; want %s", got, again, want)
		}
		if shown := s.inbox("show", "observed"); strings.Contains(shown, "hook.failed") {
			t.Errorf("the timeline is\n%s", shown)
		}
	})
}

//contract:shows runtime-32 runtime-36 runtime-37 runtime-38
func TestCompletionHookStopsAndContinues(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		provider := startModel(t, func(request modelRequest) string {
			last := string(request.Messages[len(request.Messages)-1])
			switch {
			case strings.Contains(last, "No more tools"):
				return strings.Replace(saidHello, "from the model.", "that was enough.", 1)
			case strings.Contains(last, "Be polite."):
				return strings.Replace(saidHello, "from the model.", "please and thank you.", 1)
			case strings.Contains(last, "Be exact."):
				return strings.Replace(saidHello, "from the model.", "exactly one.", 1)
			}
			return repeatsTools(request)
		})
		notes := filepath.Join(t.TempDir(), "notes.jsonl")
		program := startWatcher(t, func(question hook.Question) string {
			switch more := strings.HasSuffix(question.Run.MessageID, "more"); {
			case more && question.Hook == hook.KindResult && question.Result.ToolName == "notes__list_notes":
				return `{"complete":false}`
			case more && question.Hook == hook.KindResult:
				return `{"complete":false,"message":"Be exact."}`
			case !more && question.Hook == hook.KindTurn && !strings.Contains(question.Answer.Content, "please"):
				return `{"complete":false,"message":"Be polite."}`
			}
			return `{"complete":true}`
		})
		s := start(t, instance.Settings{Database: database, Agents: hookedTaker(t, provider, notes, program.URL, hookSecret, "completion = true\n")})
		peer := s.a2aPeer("memory", "ann")
		if text := answered(t, peer, "good morning"); !strings.Contains(text, "please and thank you.") {
			t.Errorf("a run that goes on: %s", text)
		}
		if text := answered(t, peer, "please note: something"); !strings.Contains(text, "that was enough.") || noted(t, notes) != 0 {
			t.Errorf("a run that is stopped: %d notes, %s", noted(t, notes), text)
		}
		if text := answered(t, peer, "please note: more"); !strings.Contains(text, "exactly one.") || noted(t, notes) != 1 {
			t.Errorf("a run that goes on without words, then with some: %d notes, %s", noted(t, notes), text)
		}
		_, result := s.result(s.shownTurn("message-please note: more").Turn.ID, "")
		if events := value.EncodeText(result["events"]); strings.Count(events, "completion_policy_continue") != 1 {
			t.Errorf("the events of the result are %s", events)
		}

		shown := s.inbox("show", "message-good morning") + s.inbox("show", "message-please note: something")
		for _, want := range []string{"hook.decided       turn continue", "hook.decided       tool_result complete for notes/list_notes"} {
			if !strings.Contains(shown, want) {
				t.Errorf("the timeline lacks %q:\n%s", want, shown)
			}
		}
	})
}

//contract:shows runtime-101
func TestBudgetStopsARunByName(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		provider := startModel(t, repeatsTools)
		for name, test := range map[string]struct{ table, state, text, row string }{
			"tokens":   {"tokens = 20", "TASK_STATE_FAILED", "would have to spend more", `budget_exceeded    {"budget":"tokens","ceiling":20,"current":26`},
			"one tool": {"[[agents.llm.budgets.tools]]\nname = \"notes/list_notes\"\ncalls = 1", "TASK_STATE_INPUT_REQUIRED", "Hello from the model.", `"budget":"tool_calls_notes__list_notes","ceiling":1,"current":1`},
		} {
			notes := filepath.Join(t.TempDir(), "notes.jsonl")
			table := strings.Replace(noteTaker(t, provider, notes, ""), "[[agents.mcp]]", "[agents.llm.budgets]\n"+test.table+"\n[[agents.mcp]]", 1)
			if name == "one tool" {
				provider.answer = func(request modelRequest) string {
					if strings.Contains(string(request.Messages[len(request.Messages)-1]), "No more tools") {
						return saidHello
					}
					return repeatsTools(request)
				}
			}
			s := start(t, instance.Settings{Database: database, Agents: table})
			peer := s.a2aPeer("memory", "ann")
			task, err := peer.Send(t.Context(), load.SendBody("budget of "+name, "please note: much", true))
			if err != nil {
				t.Fatal(err)
			}
			if text := texts(awaitTask(t, peer, task.ID, test.state)); !strings.Contains(text, test.text) {
				t.Errorf("%s: the sender reads %q", name, text)
			}
			if shown := s.inbox("show", "budget of "+name); !strings.Contains(shown, test.row) {
				t.Errorf("%s: the timeline lacks %q:\n%s", name, test.row, shown)
			}
			s.stop()
		}
	})
}
