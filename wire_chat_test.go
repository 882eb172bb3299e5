package inbox

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"inbox/internal/await"
	"inbox/normalized"
)

func TestChatOverJSONRPC(t *testing.T) {
	s := newChatServer(t)
	for _, method := range []string{"message/send", "tasks/send"} {
		got := s.post("/v1/agent/helper", "", rpcBody(method, "t1", "", "ping")).rpc(t)
		if got.ID != float64(7) || got.Result.ID != "t1" || got.Result.Status.State != "completed" || got.text() != "pong" ||
			got.Result.Status.Message.MessageID != "t1-message" || got.Result.SessionID == "" {
			t.Errorf("%s: %+v", method, got)
		}
	}
	for _, method := range []string{"message/stream", "tasks/sendSubscribe"} {
		response := s.open(http.MethodPost, "/v1/agent/helper", "", rpcBody(method, "t1", "", "ping"))
		if kind := response.Header.Get("Content-Type"); kind != "text/event-stream" {
			t.Errorf("%s: %s", method, kind)
		}
		events := allEvents(response)
		if len(events) != 1 || !strings.Contains(events[0].data, `"text":"pong"`) || events[0].id == "" || events[0].name != "" {
			t.Errorf("%s: %v", method, events)
		}
	}
}

// TestChatRefusals goes through the checks in their order.
func TestChatRefusals(t *testing.T) {
	s := newChatServer(t)
	ada, own := s.token("ada"), ""
	if token, _, err := s.server.Operator().Tokens.Create(t.Context(), "own", "helper"); err == nil {
		own = token
	}
	ping := rpcBody("message/send", "", "", "ping")
	for name, test := range map[string]struct {
		agent, token, body string
		status, code       int
	}{
		"no JSON":                     {"helper", ada, `{`, 200, -32700},
		"no version":                  {"helper", ada, `{"id":1,"method":"message/send"}`, 200, -32600},
		"params before method":        {"helper", ada, `{"jsonrpc":"2.0","id":1,"method":"no","params":{}}`, 200, -32602},
		"method":                      {"helper", ada, rpcBody("no", "", "", "x"), 200, -32601},
		"agent":                       {"nobody", ada, ping, 200, -32603},
		"wrong token":                 {"helper", ada + "x", ping, 401, 0},
		"unknown token":               {"helper", "inbox_" + strings.Repeat("x", 43), ping, 401, 0},
		"token before the body":       {"helper", "x", `{`, 401, 0},
		"guest at a closed agent":     {"closed", "", `{`, 403, 0},
		"token for another agent":     {"closed", own, ping, 403, 0},
		"too large":                   {"helper", ada, rpcBody("message/send", "", "", strings.Repeat("x", 1<<20)), 413, 0},
		"a control character in ids":  {"helper", ada, rpcBody("message/send", "a\x01b", "", "x"), 200, -32602},
		"a session of somebody else":  {"helper", ada, rpcBody("message/send", "", "01a2008f-1168-77f8-8482-9c57098e1a11.0123456789abcdef", "x"), 200, -32603},
		"a file that is nowhere":      {"helper", ada, `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"parts":[{"type":"text","text":"x"},{"type":"file","file":{}}]}}}`, 200, -32602},
		"an event of nobody":          {"helper", ada, rpcBody("message/stream", "", "", "x"), 200, -32603},
		"a file that is not base64":   {"helper", ada, `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"parts":[{"type":"text","text":"x"},{"type":"file","file":{"bytes":"§"}}]}}}`, 200, -32602},
		"a file that may not be read": {"helper", ada, `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"parts":[{"type":"text","text":"x"},{"type":"file","file":{"uri":"file:///etc/passwd"}}]}}}`, 200, -32602},
	} {
		header := []string{}
		if name == "an event of nobody" {
			header = []string{"Last-Event-ID", "01a2008f-1168-77f8-8482-9c57098e1a11.3"}
		}
		got := s.post("/v1/agent/"+test.agent, test.token, test.body, header...)
		if got.status != test.status {
			t.Errorf("%s: %d %s, want %d", name, got.status, got.body, test.status)
			continue
		}
		if answer := got; test.code != 0 {
			if refused := answer.rpc(t).Error; refused == nil || refused.Code != test.code {
				t.Errorf("%s: %s, want %d", name, got.body, test.code)
			}
		}
		if test.status == 401 && got.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: nothing says how to authenticate", name)
		}
	}
	if asked := s.asked.Load(); asked != 0 {
		t.Errorf("%d of the refused messages reached an agent", asked)
	}
}

func TestChatSessions(t *testing.T) {
	s := newChatServer(t)
	ada, bob := s.token("ada"), s.token("bob")
	told := func(want ...string) {
		t.Helper()
		if got := s.wasTold(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the agent was told %q, want %q", got, want)
		}
	}
	for _, token := range []string{ada, ""} {
		first := s.post("/v1/agent/remembers", token, rpcBody("message/send", "", "", "one")).rpc(t)
		told()
		session := first.Result.SessionID
		if again := s.post("/v1/agent/remembers", token, rpcBody("message/send", "", session, "two")).rpc(t); again.Result.SessionID != session {
			t.Errorf("session %q becomes %q", session, again.Result.SessionID)
		}
		told("user: one", "assistant: yes")
		for _, other := range []string{bob, ada, ""} {
			if other == token {
				continue
			}
			refused := s.post("/v1/agent/remembers", other, rpcBody("message/send", "", session, "three")).rpc(t).Error
			if refused == nil || refused.Code != -32603 || refused.Message != "The session was not found." {
				t.Errorf("somebody else's session: %+v", refused)
			}
			read := s.open(http.MethodGet, "/v1/chat?agent=remembers", other, "", "Chat-Session", session)
			if read.StatusCode != http.StatusNotFound {
				t.Errorf("somebody else's session reads %d", read.StatusCode)
			}
			_ = read.Body.Close()
		}
	}
	// One name that two choose is two conversations; a guest who brings a name that others guess gets a session of its own.
	for _, token := range []string{ada, bob, "", ""} {
		answer := s.post("/v1/agent/remembers", token, rpcBody("message/send", "", "mine", "x")).rpc(t)
		told()
		if same := answer.Result.SessionID == "mine"; same != (token != "") {
			t.Errorf("session %q", answer.Result.SessionID)
		}
	}
	const id = "5e3f7a54-0a2c-4d5b-8e2e-0d3f8a9f1c11" // random: whoever knows it made it
	for range 2 {
		if answer := s.post("/v1/agent/remembers", "", rpcBody("message/send", "", id, "x")).rpc(t); answer.Result.SessionID != id {
			t.Errorf("session %q", answer.Result.SessionID)
		}
	}
	told()
	told("user: x", "assistant: yes")
}

// TestChatHistoryOfTheClient is used until the session is kept here, and then never again.
func TestChatHistoryOfTheClient(t *testing.T) {
	s := newChatServer(t)
	body := func(session string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"sessionId":"` + session + `","message":{"parts":[
			{"type":"data","data":{"role":"user","text":"old question"}},{"type":"data","data":{"role":"agent","text":"old answer"}},{"type":"text","text":"new"}]}}}`
	}
	token := s.token("ada")
	for _, want := range [][]string{
		{"user: old question", "assistant: old answer"},
		{"user: old question", "assistant: old answer", "user: new", "assistant: yes"},
	} {
		s.post("/v1/agent/remembers", token, body("s")).rpc(t)
		if got := s.wasTold(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the agent was told %q, want %q", got, want)
		}
	}
}

func TestChatToolResults(t *testing.T) {
	s := newChatServer(t)
	s.post("/v1/agent/tools", "", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"metadata":{"page":"/a"},"message":{"parts":[
		{"type":"data","data":{"toolCallId":"c1","toolId":"map","arguments":{"q":"Rome"}}},{"type":"data","data":{"toolCallId":"c1","result":null}},
		{"type":"data","data":{"clientContext":{"room":"blue"}}},{"type":"file","file":{"name":"a.txt","mimeType":"text/plain","bytes":"aGk="}}]}}}`).rpc(t)
	turn := await.Receive(t, s.requests, "the run")
	call, file := turn.Message.Parts[0], turn.Message.Parts[1]
	if call.Kind != normalized.PartToolCall || call.ID != "c1" || call.Name != "map" || string(call.Args) != `{"q":"Rome"}` {
		t.Errorf("call %+v", call)
	}
	if content, err := file.BytesRef.Bytes(); file.Name != "a.txt" || string(content) != "hi" || err != nil {
		t.Errorf("file %+v, %v", file, err)
	}
	said := string(turn.Message.Sender.Profile.Extensions["dev.inbox.chat"])
	for _, want := range []string{`"room":"blue"`, `"source":"jsonrpc"`, `"page":"/a"`} {
		if !strings.Contains(said, want) {
			t.Errorf("context %s lacks %s", said, want)
		}
	}
	if turn.Message.ReceivedVia != normalized.ViaA2A || turn.Message.Sender.Verified || len(turn.Message.Sender.Identities) > 0 {
		t.Errorf("sender %+v", turn.Message.Sender)
	}
}

// TestChatRepeats sends one message often, at once and after its answer: one run.
func TestChatRepeats(t *testing.T) {
	s := newChatServer(t)
	token := s.token("ada")
	named := `{"jsonrpc":"2.0","id":7,"method":"message/send","params":{"message":{"messageId":"m1","parts":[{"type":"text","text":"ping"}]}}}`
	for name, test := range map[string]struct{ token, body string }{
		"run of a token":     {token, rpcBody("message/send", "r1", "", "ping")},
		"run of a guest":     {"", rpcBody("message/send", "5e3f7a54-0a2c-4d5b-8e2e-0d3f8a9f1c11", "", "ping")},
		"message of a token": {token, named},
	} {
		s.asked.Store(0)
		var answers sync.Map
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() { answers.Store(s.post("/v1/agent/helper", test.token, test.body).body, true) })
		}
		await.Done(t, group.Wait, "the answers to all repeats")
		different := 0
		answers.Range(func(any, any) bool { different++; return true })
		if s.asked.Load() != 1 || different != 1 {
			t.Errorf("%s: %d runs, %d different answers", name, s.asked.Load(), different)
		}
	}
	if refused := s.post("/v1/agent/helper", token, rpcBody("message/send", "r1", "", "other")).rpc(t).Error; refused == nil || refused.Code != -32603 {
		t.Errorf("a run with another message: %+v", refused)
	}
}

// TestChatResume cuts a stream off after its first words and goes on where it ended.
func TestChatResume(t *testing.T) {
	s := newChatServer(t)
	body := rpcBody("message/stream", "5e3f7a54-0a2c-4d5b-8e2e-0d3f8a9f1c11", "", "go")
	first := s.open(http.MethodPost, "/v1/agent/slow", "", body)
	event, ok := nextEvent(bufio.NewReader(first.Body))
	if !ok || !strings.Contains(event.data, `"content":"Hel"`) || !strings.Contains(event.data, `"method":"message/delta"`) {
		t.Fatalf("first event %+v", event)
	}
	_ = first.Body.Close()
	close(s.goOn)
	rest := allEvents(s.open(http.MethodPost, "/v1/agent/slow", "", body, "Last-Event-ID", event.id))
	last := rest[len(rest)-1]
	for _, one := range rest[:len(rest)-1] {
		if strings.Contains(one.data, "Hel") || !strings.Contains(one.data, `"lo"`) {
			t.Errorf("the rest has %s", one.data)
		}
	}
	if !strings.Contains(last.data, `"text":"Hello"`) || !strings.Contains(last.data, `"completed"`) || s.asked.Load() != 1 {
		t.Errorf("last event %+v after %d runs", last, s.asked.Load())
	}
	whole := allEvents(s.open(http.MethodPost, "/v1/agent/slow", "", body))
	if len(whole) < 2 || !strings.Contains(whole[0].data, "Hel") || whole[len(whole)-1] != last {
		t.Errorf("from the beginning: %v", whole)
	}
	silent := strings.Replace(body, `"jsonrpc"`, `"tokenStreaming":false,"jsonrpc"`, 1)
	if events := allEvents(s.open(http.MethodPost, "/v1/agent/slow", "", silent)); len(events) != 1 {
		t.Errorf("without tokens: %v", events)
	}
}
