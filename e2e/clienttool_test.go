package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/children"
)

// looksUp asks the shelf about milk and says what it heard.
func looksUp(request modelRequest) string {
	results, asked, heard := 0, false, ""
	for _, message := range request.Messages {
		asked = asked || strings.Contains(string(message), "is there milk")
		if strings.Contains(string(message), `"role":"tool"`) {
			results++
			heard = string(message)
		}
	}
	said := "The shelf said something else: " + heard
	switch {
	case len(request.Tools) == 0 || !asked:
		return saidHello
	case results == 0:
		return calling("call_1", "client__look_up", `{"item":"milk"}`)
	case results > 1:
		said = "There are two answers."
	case strings.Contains(heard, "in_stock") && strings.Contains(heard, "3"):
		said = "Yes, there are three."
	case strings.Contains(heard, "timed out"):
		said = "The shelf did not answer."
	}
	text, err := json.Marshal(said)
	if err != nil {
		panic(err) // texts can always be written
	}
	return strings.NewReplacer(`"from the model."`, string(text), "Hello ", "Well: ").Replace(saidHello)
}

// shelf is the configuration of a model with a tool that a program outside executes.
func shelf(provider *model, timeout, more string) string {
	return fmt.Sprintf(`[[agents]]
name = "memory"
kind = "llm"
access = "public"
%s
[[agents.rules]]
effect = "allow"
purposes = ["tool:client/look_up"]
[agents.llm]
base_url = %q
model = "scripted"
[[agents.client_tools]]
name = "look_up"
description = "Says how many of an item are on the shelf."
parameters = '{"type":"object","properties":{"item":{"type":"string"}},"required":["item"]}'
timeout = %q
`, more, provider.URL, timeout)
}

// desk is a program that executes the tools of an agent, by hand.
type desk struct {
	server *server
	agent  string
	token  string
}

func (s *server) desk(agent string) desk {
	s.t.Helper()
	return desk{s, agent, strings.TrimSpace(lastLine(s.inbox("tokens", "create", "--agent", agent, "--tools", "desk-"+agent)))}
}

// call asks the server; path follows …/requests.
func (d desk) call(method, path, body string) (status int, answer map[string]any) {
	d.server.t.Helper()
	request, err := http.NewRequestWithContext(d.server.t.Context(), method, d.server.URL()+"/v1/tools/"+d.agent+"/requests"+path, strings.NewReader(body))
	if err != nil {
		d.server.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+d.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		d.server.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		d.server.t.Fatal(err)
	}
	if err := json.Unmarshal(content, &answer); err != nil {
		d.server.t.Fatalf("%s %s: %d %s", method, path, response.StatusCode, content)
	}
	return response.StatusCode, answer
}

// next waits for the one request that is open and returns its id.
func (d desk) next() string {
	d.server.t.Helper()
	for range 3 {
		_, answer := d.call(http.MethodGet, "?wait=20s", "")
		list, _ := answer["requests"].([]any)
		if len(list) == 1 {
			request, _ := list[0].(map[string]any)
			if parameters, _ := request["parameters"].(map[string]any); parameters["item"] != "milk" || request["tool_name"] != "client/look_up" {
				d.server.t.Errorf("the program is asked %v", request)
			}
			return fmt.Sprint(request["request_id"])
		}
	}
	d.server.t.Fatal("no tool was asked for")
	return ""
}

const three = `{"result":{"in_stock":3}}`

// oneReply demands that all mails in answer to a message are one and the same.
func (p *post) oneReply(id string) {
	p.t.Helper()
	ids := map[string]bool{}
	replies, _ := p.outbox.repliesTo(id)
	for _, one := range replies {
		ids[one.Field("Message-ID")] = true
	}
	if len(ids) != 1 {
		p.t.Errorf("%d different replies to %s; want one", len(ids), id)
	}
}

// timeline counts the rows of a kind.
func (s *server) timeline(id, kind string) int {
	s.t.Helper()
	var shown struct{ Events []exchange.Event }
	if err := json.Unmarshal([]byte(s.inbox("show", "--json", id)), &shown); err != nil {
		s.t.Fatal(err)
	}
	count := 0
	for _, event := range shown.Events {
		if event.Kind == kind {
			count++
		}
	}
	return count
}

//contract:shows runtime-34 runtime-51 runtime-56
func TestProgramOutsideExecutesATool(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		provider := startModel(t, looksUp)
		p := startPostWith(t, database, shelf(provider, "1h", ""))
		token := p.desk("memory").token
		program := exec.Command("/usr/bin/python3", filepath.Join(examplesDirectory(t), "clienttool", "client.py"))
		program.Env = append(os.Environ(), "INBOX_URL="+p.URL(), "INBOX_AGENT=memory", "INBOX_TOKEN="+token)
		if err := children.Start(program); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = program.Process.Signal(syscall.SIGTERM)
			_ = await.Result(t, program.Wait, "the end of the program")
		})
		const id = "milk@sender.test"
		if text := plain(p.ask(id, "is there milk?").Raw); !strings.Contains(text, "there are three") {
			t.Errorf("the reply is %s", text)
		}
		p.oneReply(id)
		shown := p.inbox("show", id)
		for _, want := range []string{"tool.requested", "tool.submitted", "client/look_up", `"in_stock":3`, "runtime_tool_completed", "turn.waiting"} {
			if !strings.Contains(shown, want) {
				t.Errorf("inbox show lacks %s:\n%s", want, shown)
			}
		}
	})
}

//contract:shows runtime-56 runtime-57 runtime-58
func TestToolIsAnsweredOnceWhateverDies(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		provider := startModel(t, looksUp)
		p := startPostWith(t, database, shelf(provider, "1h", ""))
		program := p.desk("memory")
		const id = "killed@sender.test"
		p.sendAs("memory", id, "is there milk?")
		asked := program.next()
		p.killed() // between request and submit
		if again := program.next(); again != asked {
			t.Errorf("the request is %s after the start, %s before", again, asked)
		}
		if replies, _ := p.outbox.repliesTo(id); len(replies) > 0 {
			t.Errorf("somebody answered for the tool: %s", replies[0].Raw)
		}
		status, answer := program.call(http.MethodPost, "/"+asked+"/submit", three)
		p.killed() // right after it
		if status != http.StatusOK || fmt.Sprintf("%v %v", answer["duplicate"], answer["status"]) != "false runtime_tool_submitted" {
			t.Errorf("submitted: %d %v", status, answer)
		}
		if text := plain(p.outbox.await(t, id).Raw); !strings.Contains(text, "there are three") {
			t.Errorf("the reply is %s", text)
		}
		status, answer = program.call(http.MethodPost, "/"+asked+"/submit", `{"result":{"in_stock":7}}`)
		if result, _ := answer["result"].(map[string]any); status != http.StatusOK || fmt.Sprint(answer["duplicate"], result["result"]) != "true map[in_stock:3]" {
			t.Errorf("submitted again: %d %v", status, answer)
		}
		p.oneReply(id)
		if requested, submitted := p.timeline(id, exchange.EventToolRequested), p.timeline(id, exchange.EventToolSubmitted); requested != 1 || submitted != 1 {
			t.Errorf("the timeline has %d requests and %d results; want one each", requested, submitted)
		}
	})
}

//contract:shows runtime-54
func TestToolThatNobodyExecutesTimesOut(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		provider := startModel(t, looksUp)
		p := startPostWith(t, database, shelf(provider, "2s", ""))
		program := p.desk("memory")
		const id = "late@sender.test"
		p.sendAs("memory", id, "is there milk?")
		asked := program.next()
		p.killed()
		if text := plain(p.outbox.await(t, id).Raw); !strings.Contains(text, "The shelf did not answer.") {
			t.Errorf("the reply is %s", text)
		}
		status, answer := program.call(http.MethodPost, "/"+asked+"/submit", three)
		if status != http.StatusConflict || !strings.Contains(fmt.Sprint(answer), "request is not pending") {
			t.Errorf("submitted too late: %d %v", status, answer)
		}
		p.oneReply(id)
	})
}

//contract:shows runtime-72
func TestForeignProgramsSeeNoToolRequests(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		provider := startModel(t, looksUp)
		tables := shelf(provider, "1h", "") + strings.Replace(shelf(provider, "1h", ""), `"memory"`, `"other"`, 1)
		s := start(t, instance.Settings{Database: database, Agents: tables})
		peer, mine, foreign := s.a2aPeer("memory", "ann"), s.desk("memory"), s.desk("other")
		task, err := peer.Send(t.Context(), load.SendBody("milk", "is there milk?", true))
		if err != nil {
			t.Fatal(err)
		}
		asked := mine.next()
		if task = awaitTask(t, peer, task.ID, "TASK_STATE_WORKING"); len(task.Artifacts) > 0 {
			t.Errorf("the peer sees %v", task.Artifacts)
		}
		for name, d := range map[string]desk{
			"no token": {s, "memory", ""}, "a wrong token": {s, "memory", "inbox_wrong"}, "a caller's token": {s, "memory", peer.Token},
			"the token of another agent": {s, "memory", foreign.token}, "an operator's token": {s, "memory", s.adminToken()},
			"a token for an agent that is not there": {s, "nobody", mine.token},
		} {
			for _, call := range [][2]string{{http.MethodGet, ""}, {http.MethodGet, "/" + asked}, {http.MethodPost, "/" + asked + "/submit"}, {http.MethodPost, "/" + asked + "/cancel"}} {
				if status, answer := d.call(call[0], call[1], three); status != http.StatusUnauthorized || strings.Contains(fmt.Sprint(answer), "milk") {
					t.Errorf("%s: %s %s gives %d %v", name, call[0], call[1], status, answer)
				}
			}
		}
		if _, answer := foreign.call(http.MethodGet, "", ""); fmt.Sprint(answer["requests"]) != "[]" {
			t.Errorf("another agent's program sees %v", answer)
		}
		for _, operation := range []string{"submit", "timeout", "cancel"} {
			status, answer := foreign.call(http.MethodPost, "/"+asked+"/"+operation, three)
			if status != http.StatusNotFound || !strings.Contains(fmt.Sprint(answer), "request not found") {
				t.Errorf("%s by another agent's program: %d %v", operation, status, answer)
			}
		}
		if status, _ := foreign.call(http.MethodGet, "/"+asked, ""); status != http.StatusNotFound {
			t.Errorf("another agent's program reads the request: %d", status)
		}
		if status, _ := mine.call(http.MethodPost, "/"+asked+"/submit", `{"result":"`+strings.Repeat("x", 1<<20)+`"}`); status != http.StatusRequestEntityTooLarge {
			t.Errorf("a result over 1 MiB: %d", status)
		}
		s.inbox("tool-requests", "submit", asked, three)
		if text := texts(awaitTask(t, peer, task.ID, completed)); !strings.Contains(text, "there are three") {
			t.Errorf("the task is answered %q", text)
		}
		if listed := s.inbox("tool-requests", "list", "--all", "--json"); !strings.Contains(listed, asked) || !strings.Contains(listed, "runtime_tool_completed") {
			t.Errorf("the operator reads %s", listed)
		}
		if status, body := s.api(http.MethodGet, "/tool-requests?status=all", s.adminToken()); status != http.StatusOK || !strings.Contains(body, asked) {
			t.Errorf("the operator API says %d %s", status, body)
		}
		if status, _ := s.api(http.MethodPost, "/tool-requests/"+asked+"/cancel", peer.Token); status != http.StatusForbidden {
			t.Errorf("a peer cancels by the operator API: %d", status)
		}
	})
}

// TestToolOfTheControlPlaneStaysWithTheOperator: a program with a token for the agent's tools neither sees nor ends its calls.
//
//contract:shows runtime-69
func TestToolOfTheControlPlaneStaysWithTheOperator(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		provider := startModel(t, looksUp)
		s := start(t, instance.Settings{Database: database, Agents: shelf(provider, "1h", "") + "capability_scope = \"control_plane\"\n"})
		peer, program := s.a2aPeer("memory", "ann"), s.desk("memory")
		task, err := peer.Send(t.Context(), load.SendBody("milk", "is there milk?", true))
		if err != nil {
			t.Fatal(err)
		}
		var asked string
		eventually(t, "the call waits", func() bool {
			var open []exchange.ToolRequest
			if err := decodeList(s.inbox("tool-requests", "list", "--json"), &open); err != nil {
				t.Fatal(err)
			}
			for _, one := range open {
				asked = one.ID
			}
			return asked != ""
		})
		if _, answer := program.call(http.MethodGet, "?wait=1s", ""); fmt.Sprint(answer["requests"]) != "[]" {
			t.Errorf("a program reads %v", answer)
		}
		if status, answer := program.call(http.MethodPost, "/"+asked+"/submit", three); status != http.StatusNotFound {
			t.Errorf("submitted by a program: %d %v", status, answer)
		}
		s.inbox("tool-requests", "submit", asked, three)
		if text := texts(awaitTask(t, peer, task.ID, completed)); !strings.Contains(text, "there are three") {
			t.Errorf("the task is answered %q", text)
		}
	})
}
