package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/operator"
)

// shownTurn is what inbox show tells about a message.
func (s *server) shownTurn(id string) operator.Shown {
	s.t.Helper()
	var shown operator.Shown
	if err := json.Unmarshal([]byte(s.inbox("show", "--json", id)), &shown); err != nil {
		s.t.Fatal(err)
	}
	return shown
}

// result reads the conversation result of a turn over the operator API and holds it to the contract; query may name a run.
func (s *server) result(turnID, query string) (operator.ShownResult, map[string]any) {
	s.t.Helper()
	status, body := s.api(http.MethodGet, "/turns/"+turnID+"/result"+query, s.adminToken())
	if status != http.StatusOK {
		s.t.Fatalf("the result: %d %s", status, body)
	}
	var shown operator.ShownResult
	if err := json.Unmarshal([]byte(body), &shown); err != nil {
		s.t.Fatal(err)
	}
	return shown, s.valid(shown.Result)
}

// valid holds a document to the contract: the package's own normalizer takes it and has nothing to add.
func (s *server) valid(document []byte) map[string]any {
	s.t.Helper()
	given, err := value.Decode(document, value.Limits{Bytes: len(document) + 1, Depth: 128})
	if err != nil {
		s.t.Fatal(err)
	}
	result, err := envelope.NormalizeResult(given)
	if err != nil || !value.Equal(result, given) {
		s.t.Fatalf("the result is not normal (%v): %s", err, document)
	}
	return result
}

// recordedMembers returns the members that recorded results, and the entries of a list in them, always have.
func recordedMembers(t *testing.T, list string) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "agents", "testdata", "agents-api", "loop-traces.json"))
	if err != nil {
		t.Fatal(err)
	}
	var recorded struct {
		Cases []struct {
			Name     string
			Expected struct{ OK map[string]any }
		}
	}
	if err := json.Unmarshal(content, &recorded); err != nil {
		t.Fatal(err)
	}
	for _, one := range recorded.Cases {
		if one.Name != "mediated call then natural finish" {
			continue
		}
		if list == "" {
			return slices.Sorted(maps.Keys(one.Expected.OK))
		}
		return membersOf(one.Expected.OK[list])
	}
	t.Fatal("the recorded run is gone")
	return nil
}

// membersOf returns the members of the first entry of a list.
func membersOf(list any) []string {
	entries, _ := value.List(list)
	if len(entries) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(value.Assoc(entries[0])))
}

// lifecycle returns the contract's names of what happened to tool requests, in their order on the timeline.
func lifecycle(events []exchange.Event) (names []string) {
	for _, event := range events {
		var body struct{ Event string }
		if strings.HasPrefix(event.Kind, "tool.") && json.Unmarshal(event.Body, &body) == nil && body.Event != "" {
			names = append(names, strings.TrimPrefix(body.Event, "agents_api_runtime_tool_"))
		}
	}
	return names
}

// onceInLog demands that the log tells each event of a request once.
func (s *server) onceInLog(names ...string) {
	s.t.Helper()
	for _, name := range names {
		if count := strings.Count(s.Log(), `"agents_api_runtime_tool_`+name+`"`) + strings.Count(s.Log(), "event=agents_api_runtime_tool_"+name+" "); count != 1 {
			s.t.Errorf("the log has %s %d times", name, count)
		}
	}
}

//contract:shows runtime-16 runtime-18 runtime-19 runtime-59 runtime-82
func TestResultOfAnAnswerByA2A(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		provider := startModel(t, looksUp)
		s := start(t, instance.Settings{Database: database, Agents: shelf(provider, "1h", "")})
		peer, program := s.a2aPeer("memory", "ann"), s.desk("memory")
		task, err := peer.Send(t.Context(), load.SendBody("milk", "is there milk?", true))
		if err != nil {
			t.Fatal(err)
		}
		program.call(http.MethodPost, "/"+program.next()+"/submit", three)
		awaitTask(t, peer, task.ID, completed)

		message := s.shownTurn("milk")
		first, waited := s.result(message.Turn.ID, "?run=1")
		if waited["status"] != envelope.StatusRuntimeToolPending || len(first.Runs) != 2 {
			t.Errorf("the first run of %+v: %s", first.Runs, first.Result)
		}
		last, result := s.result(message.Turn.ID, "")
		if last.Run != 2 || last.Status != envelope.StatusCompleted || last.TurnID != message.Turn.ID || !strings.Contains(value.Text(result["final_content"]), "there are three") {
			t.Errorf("the last run: %s", last.Result)
		}

		if got, want := slices.Sorted(maps.Keys(result)), recordedMembers(t, ""); !slices.Equal(got, want) {
			t.Errorf("the result has %v; want %v", got, want)
		}
		for _, list := range []string{"tool_audit_events", "tool_events"} {
			if got, want := membersOf(result[list]), recordedMembers(t, list); !slices.Equal(got, want) {
				t.Errorf("%s has %v; want %v", list, got, want)
			}
		}
		if audit := value.EncodeText(result["tool_audit_events"]); strings.Contains(audit, "milk") || !strings.Contains(audit, `"parameters_sha256":"sha256:`) {
			t.Errorf("the audit is %s", audit)
		}

		summary := s.inbox("show", "--result", "milk")
		for _, want := range []string{"run 1  ", "runtime_tool_pending", "Run       2 of turn " + message.Turn.ID, "Outcome   completed, stopped: natural", "client__look_up", "sha256:", "there are three"} {
			if !strings.Contains(summary, want) {
				t.Errorf("inbox show --result lacks %q:\n%s", want, summary)
			}
		}
		if document := s.valid([]byte(s.inbox("show", "--result", "--json", "milk"))); !value.Equal(document, result) {
			t.Error("inbox show --result --json is another document")
		}

		if got, want := lifecycle(message.Events), []string{"request_created", "result_submitted", "request_resumed"}; !slices.Equal(got, want) {
			t.Errorf("the timeline has %v; want %v", got, want)
		}
		s.onceInLog("request_created", "result_submitted", "request_resumed")
		if status, _ := s.api(http.MethodGet, "/turns/"+message.Turn.ID+"/result", peer.Token); status != http.StatusForbidden {
			t.Errorf("a peer reads the result: %d", status)
		}
	})
}

func TestTimedOutRequestIsTold(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		provider := startModel(t, looksUp)
		s := start(t, instance.Settings{Database: database, Agents: shelf(provider, "1s", "")})
		if text := answered(t, s.a2aPeer("memory", "ann"), "is there milk?"); !strings.Contains(text, "did not answer") {
			t.Errorf("the task is answered %q", text)
		}
		message := s.shownTurn("message-is there milk?")
		if got, want := lifecycle(message.Events), []string{"request_created", "request_timed_out", "request_resumed"}; !slices.Equal(got, want) {
			t.Errorf("the timeline has %v; want %v", got, want)
		}
		s.onceInLog("request_created", "request_timed_out", "request_resumed")
		_, result := s.result(message.Turn.ID, "")
		if audit := value.EncodeText(result["tool_audit_events"]); !strings.Contains(audit, `"result_status":"error"`) {
			t.Errorf("the audit is %s", audit)
		}
	})
}

// A run that was lost between two calls of its model leaves no result; that of the next run has its calls.
//
//contract:shows runtime-29
func TestResultOfALostRun(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		asked, gone := make(chan struct{}), make(chan struct{})
		var once sync.Once
		provider := startModel(t, func(request modelRequest) string {
			results := 0
			for _, message := range request.Messages {
				if strings.Contains(string(message), `"role":"tool"`) {
					results++
				}
			}
			switch {
			case len(request.Tools) == 0:
				return saidHello
			case results == 0:
				return calling("call_1", "notes__list_notes", `{}`)
			}
			once.Do(func() {
				close(asked)
				<-gone
			})
			return saidHello
		})
		notes := filepath.Join(t.TempDir(), "notes.jsonl")
		s := start(t, instance.Settings{Database: database, Agents: noteTaker(t, provider, notes, "")})
		peer := s.a2aPeer("memory", "ann")
		task, err := peer.Send(t.Context(), load.SendBody("lost", "please note: buy milk", true))
		if err != nil {
			t.Fatal(err)
		}
		<-asked
		s.killed()
		close(gone)
		awaitTask(t, peer, task.ID, completed)

		shown, result := s.result(s.shownTurn("lost").Turn.ID, "")
		if len(shown.Runs) != 1 || shown.Run < 2 || shown.Status != envelope.StatusCompleted {
			t.Errorf("the results are %+v", shown.Runs)
		}
		for _, list := range []string{"tool_audit_events", "tool_execution_results"} {
			calls, _ := value.List(result[list])
			got, want := membersOf(result[list]), recordedMembers(t, list)
			got = slices.DeleteFunc(got, func(member string) bool { return member == "runtime" }) // where its declaration has one
			if len(calls) != 1 || !slices.Equal(got, want) {
				t.Errorf("%d %s with %v; want one with %v", len(calls), list, got, want)
			}
		}
	})
}

// sessions calls the routes of sessions.
func (s *server) sessions(method, path, token, body string) (status int, answer map[string]any) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.URL()+"/v1"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if len(content) > 0 && json.Unmarshal(content, &answer) != nil {
		s.t.Fatalf("%s %s: %d %s", method, path, response.StatusCode, content)
	}
	return response.StatusCode, answer
}

// The owner of a session reads which tools were called and nothing that they returned; erasing the session erases the results.
func TestResultsOfASession(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		provider := startModel(t, looksUp)
		s := start(t, instance.Settings{Database: database, Agents: shelf(provider, "1h", "")})
		token, program := s.a2aPeer("memory", "ann").Token, s.desk("memory")
		_, session := s.sessions(http.MethodPost, "/sessions", token, `{"agent":"memory"}`)
		path := "/sessions/" + fmt.Sprint(session["session_id"])
		_, run := s.sessions(http.MethodPost, path+"/messages", token, `{"message":"is there milk?"}`)
		id := fmt.Sprint(run["run_id"])
		program.call(http.MethodPost, "/"+program.next()+"/submit", three)
		eventually(t, "the run ends", func() bool {
			_, run := s.sessions(http.MethodGet, "/runs/"+id, token, "")
			return run["status"] == "completed"
		})

		_, exported := s.sessions(http.MethodGet, path+"/export", token, "")
		runs, _ := value.List(exported["runs"])
		if len(runs) != 2 {
			t.Fatalf("the export has %v", exported)
		}
		for i, want := range []string{envelope.StatusRuntimeToolPending, envelope.StatusCompleted} {
			told := value.Assoc(runs[i])
			audits, _ := value.List(told["tool_audit_events"])
			if told["run_id"] != id || told["status"] != want || len(audits) != i {
				t.Errorf("run %d is told as %v", i+1, told)
			}
		}
		if text := value.EncodeText(runs); strings.Contains(text, "in_stock") || strings.Contains(text, "milk") || !strings.Contains(text, "parameters_sha256") {
			t.Errorf("the runs are told as %s", text)
		}
		s.result(id, "")

		if status, answer := s.sessions(http.MethodDelete, path, token, ""); status >= http.StatusBadRequest {
			t.Fatalf("delete: %d %v", status, answer)
		}
		if status, body := s.api(http.MethodGet, "/turns/"+id+"/result", s.adminToken()); status != http.StatusNotFound {
			t.Errorf("after the session was deleted: %d %s", status, body)
		}
		if left := s.rows()["run_results"]; left != 0 {
			t.Errorf("%d results are left", left)
		}
	})
}

// badTools is an MCP server with a tool that cannot be declared.
func badTools(t *testing.T, tools string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		var call struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Version string `json:"protocolVersion"`
			} `json:"params"`
		}
		if request.Method != http.MethodPost || json.NewDecoder(request.Body).Decode(&call) != nil {
			writer.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if len(call.ID) == 0 { // a notification
			writer.WriteHeader(http.StatusAccepted)
			return
		}
		answer := `"error":{"code":-32601,"message":"no such method"}`
		switch call.Method {
		case "initialize":
			answer = fmt.Sprintf(`"result":{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"bad","version":"1"}}`, call.Params.Version)
		case "tools/list":
			answer = `"result":{"tools":` + tools + `}`
		}
		writer.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(writer, `{"jsonrpc":"2.0","id":%s,%s}`, call.ID, answer)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

//contract:shows runtime-43 runtime-44 runtime-104
func TestBadDeclarationIsTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tools string
		want  []string
	}{
		"one of two": {
			`[{"name":"good","description":"d","inputSchema":{"type":"object"}},{"name":"broken","description":"d","inputSchema":{"type":"string"}}]`,
			[]string{`tool_declarations_rejected {"accepted_count":1,"rejected":[{"name":"bad/broken","reason":"read schema: it is not of type object"}],"rejected_count":1}`},
		},
		"the only one": {
			`[{"name":"broken","description":"d","inputSchema":{"type":"string"}}]`,
			[]string{
				`tool_declarations_rejected {"accepted_count":0,"rejected":[{"name":"bad/broken",`,
				`tool_mediation_disabled {"reason":"all_declarations_rejected","rejected":[{"name":"bad/broken",`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBothDatabases(t, func(t *testing.T, database string) {
				provider := startModel(t, func(modelRequest) string { return saidHello })
				s := start(t, instance.Settings{Database: database, Agents: fmt.Sprintf(`[[agents]]
name = "memory"
kind = "llm"
access = "public"
[[agents.rules]]
effect = "allow"
purposes = ["tool:bad/good"]
[agents.llm]
base_url = %q
model = "scripted"
[[agents.mcp]]
name = "bad"
url = %q
`, provider.URL, badTools(t, c.tools))})
				answered(t, s.a2aPeer("memory", "ann"), "hello")
				var rows []string
				for _, event := range s.shownTurn("message-hello").Events {
					if strings.HasPrefix(event.Kind, "tool_") {
						var body bytes.Buffer
						if err := json.Compact(&body, event.Body); err != nil {
							t.Error(err)
						}
						rows = append(rows, event.Kind+" "+body.String())
					}
				}
				if !slices.EqualFunc(rows, c.want, strings.HasPrefix) {
					t.Errorf("the timeline has %q; want %q", rows, c.want)
				}
				shown := s.inbox("show", "message-hello")
				for _, want := range c.want {
					event, _, _ := strings.Cut(want, " ")
					if !strings.Contains(shown, event) || !strings.Contains(s.Log(), event) || !strings.Contains(s.Log(), "bad/broken") {
						t.Errorf("show or the log lack %s:\n%s", event, shown)
					}
				}
			})
		})
	}
}
