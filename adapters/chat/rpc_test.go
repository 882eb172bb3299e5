package chat_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"inbox/agents/runtime/envelope/fixturetest"
	"inbox/agents/runtime/value"
	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/normalized"
)

//contract:shows channels-13 channels-15 channels-16 channels-19 channels-20 channels-21 channels-22 channels-27
func TestChatOverJSONRPC(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	for _, method := range []string{"message/send", "tasks/send"} {
		got := s.post("/v1/agent/helper", "", rpcBody(method, "t1", "", "ping")).rpc(t)
		if got.ID != float64(7) || got.Result.ID != "t1" || got.Result.Status.State != "completed" || got.text() != "pong" ||
			got.Result.Status.Message.MessageID != "t1-message" || got.Result.SessionID == "" {
			t.Errorf("%s: %+v", method, got)
		}
	}
	for _, method := range []string{"message/stream", "tasks/sendSubscribe"} {
		response := s.Open(http.MethodPost, "/v1/agent/helper", "", rpcBody(method, "t1", "", "ping"))
		if kind := response.Header.Get("Content-Type"); kind != "text/event-stream" {
			t.Errorf("%s: %s", method, kind)
		}
		events := inboxtest.Events(response)
		if len(events) != 1 || !strings.Contains(events[0].Data, `"text":"pong"`) || events[0].ID == "" || events[0].Name != "" {
			t.Errorf("%s: %v", method, events)
		}
	}
}

// TestChatRefusals goes through the checks in their order.
//
//contract:shows channels-31
func TestChatRefusals(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	ada, own := s.Token("ada"), ""
	if token, _, err := s.Operator().Tokens.Create(t.Context(), "own", "helper"); err == nil {
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

//contract:shows channels-17 channels-20 message-27
func TestChatSessions(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	ada, bob := s.Token("ada"), s.Token("bob")
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
			read := s.Open(http.MethodGet, "/v1/chat?agent=remembers", other, "", "Chat-Session", session)
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
	const id = "5e3f7a54-0a2c-4d5b-8e2e-0d3f8a9f1c11" // random: the one who knows it made it
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
	t.Parallel()
	s := newChatServer(t)
	body := func(session string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"sessionId":"` + session + `","message":{"parts":[
			{"type":"data","data":{"role":"user","text":"old question"}},{"type":"data","data":{"role":"agent","text":"old answer"}},{"type":"text","text":"new"}]}}}`
	}
	token := s.Token("ada")
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

//contract:shows channels-17 channels-36 channels-39
func TestChatToolResults(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	s := newChatServer(t)
	token := s.Token("ada")
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
//
//contract:shows channels-23 channels-24
func TestChatResume(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	body := rpcBody("message/stream", "5e3f7a54-0a2c-4d5b-8e2e-0d3f8a9f1c11", "", "go")
	first := s.Open(http.MethodPost, "/v1/agent/slow", "", body)
	event, ok := inboxtest.NextEvent(bufio.NewReader(first.Body))
	if !ok || !strings.Contains(event.Data, `"content":"Hel"`) || !strings.Contains(event.Data, `"method":"message/delta"`) {
		t.Fatalf("first event %+v", event)
	}
	_ = first.Body.Close()
	close(s.goOn)
	rest := inboxtest.Events(s.Open(http.MethodPost, "/v1/agent/slow", "", body, "Last-Event-ID", event.ID))
	last := rest[len(rest)-1]
	for _, one := range rest[:len(rest)-1] {
		if strings.Contains(one.Data, "Hel") || !strings.Contains(one.Data, `"lo"`) {
			t.Errorf("the rest has %s", one.Data)
		}
	}
	if !strings.Contains(last.Data, `"text":"Hello"`) || !strings.Contains(last.Data, `"completed"`) || s.asked.Load() != 1 {
		t.Errorf("last event %+v after %d runs", last, s.asked.Load())
	}
	whole := inboxtest.Events(s.Open(http.MethodPost, "/v1/agent/slow", "", body))
	if len(whole) < 2 || !strings.Contains(whole[0].Data, "Hel") || whole[len(whole)-1] != last {
		t.Errorf("from the beginning: %v", whole)
	}
	silent := strings.Replace(body, `"jsonrpc"`, `"tokenStreaming":false,"jsonrpc"`, 1)
	if events := inboxtest.Events(s.Open(http.MethodPost, "/v1/agent/slow", "", silent)); len(events) != 1 {
		t.Errorf("without tokens: %v", events)
	}
}

// TestRecordedChatOverHTTP plays the recorded requests against a whole server: what the frame says is the same, but for
// the id of the session, which is a secret of ours.
func TestRecordedChatOverHTTP(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	played := 0
	fixturetest.Run(t, "jsonrpc-chat", func(c fixturetest.Case) (any, error) {
		recorded := value.Assoc(c.Expected)
		if c.Op != "dispatch" {
			return recorded["ok"], nil
		}
		if value.Assoc(c.Object())["handler"] != nil {
			return c.Expected, nil // of agents that a server cannot have: adapters/chat/contract plays them
		}
		played++
		input := c.Object()
		body := value.EncodeText(input["body"])
		token := s.Token(fmt.Sprint("recorded-", played))
		reply := s.post("/v1/agent/"+value.Scalar(input["agent_id"]), token, body)
		if reply.status != http.StatusOK {
			return nil, fmt.Errorf("%d %s", reply.status, reply.body)
		}
		got, err := value.Decode([]byte(reply.body), value.Limits{Bytes: 1 << 20})
		if task := value.Assoc(value.Assoc(got)["result"]); task["sessionId"] != nil {
			task["sessionId"] = value.Assoc(value.Assoc(recorded["response"])["result"])["sessionId"]
		}
		return map[string]any{"response": got, "chat_input": recorded["chat_input"]}, err
	})
	if played == 0 {
		t.Error("nothing was played")
	}
}

// TestChatRequestIDs: a string or an integer is echoed, everything else is null (agent runtime contract, section 6.5).
//
//contract:shows channels-15
func TestChatRequestIDs(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	for id, want := range map[string]string{
		`7`: `7`, `-3`: `-3`, `"a"`: `"a"`, `""`: `""`, `null`: `null`, `1.5`: `null`, `true`: `null`, `{}`: `null`, `[1]`: `null`,
	} {
		for _, method := range []string{"message/send", "no"} {
			body := strings.Replace(rpcBody(method, "", "", "x"), `"id":7`, `"id":`+id, 1)
			if got := s.post("/v1/agent/helper", "", body); !strings.Contains(got.body, `"id":`+want+`,`) {
				t.Errorf("%s with id %s: %s", method, id, got.body)
			}
		}
	}
	for name, body := range map[string]string{
		"a notification": strings.Replace(rpcBody("message/send", "", "", "x"), `"id":7,`, "", 1),
		"a batch":        "[" + rpcBody("message/send", "", "", "x") + "]", "an empty batch": "[]", "a text": `"x"`, "null": "null", "nothing": "",
		"two values": rpcBody("message/send", "", "", "x") + "{}",
	} {
		if got := s.post("/v1/agent/helper", "", body); got.status != http.StatusOK || !strings.Contains(got.body, `"id":null,`) {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
}

// TestChatMethodsOfHTTP tells what an address takes.
func TestChatMethodsOfHTTP(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	for request, want := range map[string]struct {
		status int
		allow  string
	}{
		"GET /v1/agent/helper": {405, "POST, OPTIONS"}, "HEAD /v1/agent/helper": {405, "POST, OPTIONS"}, "DELETE /v1/agent/helper": {405, "POST, OPTIONS"},
		"OPTIONS /v1/agent/helper": {204, "POST, OPTIONS"}, "PUT /v1/chat": {405, ""}, "OPTIONS /v1/chat": {204, ""},
		"GET /v1/chat": {400, ""}, "GET /v1/chat?agent=nobody": {404, ""}, "GET /v1/chat?agent=helper": {400, ""}, "POST /@helper/chat": {405, "GET, HEAD"},
		"HEAD /@helper/chat": {200, ""}, "HEAD /chat.js": {200, ""},
	} {
		method, path, _ := strings.Cut(request, " ")
		response := s.Open(method, path, "", "", "Accept", "text/event-stream")
		_ = response.Body.Close()
		if allow := response.Header.Get("Allow"); response.StatusCode != want.status || want.allow != "" && allow != want.allow {
			t.Errorf("%s: %d, Allow %q", request, response.StatusCode, allow)
		}
	}
}

// TestChatReadersOfOneStream: two read it at once and both get all of it; who comes after the end gets the end; an event of
// another party and one that never was are told alike.
func TestChatReadersOfOneStream(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	ada, bob := s.Token("ada"), s.Token("bob")
	body := rpcBody("message/stream", "r1", "s1", "go")
	first, second := s.Open(http.MethodPost, "/v1/agent/slow", ada, body), s.Open(http.MethodPost, "/v1/agent/slow", ada, body)
	readers := []*bufio.Reader{bufio.NewReader(first.Body), bufio.NewReader(second.Body)}
	defer func() { _, _ = first.Body.Close(), second.Body.Close() }()
	var seen [2][]inboxtest.Event
	next := func(i int) bool {
		event, ok := inboxtest.NextEvent(readers[i])
		if ok {
			seen[i] = append(seen[i], event)
		}
		return ok
	}
	if !next(0) || !next(1) {
		t.Fatal("a stream is empty")
	}
	close(s.goOn)
	for i := range readers {
		for next(i) {
		}
	}
	if fmt.Sprint(seen[0]) != fmt.Sprint(seen[1]) || s.asked.Load() != 1 {
		t.Errorf("two readers of one stream: %v and %v", seen[0], seen[1])
	}
	last := seen[0][len(seen[0])-1]
	for name, from := range map[string]string{"after the end": last.ID, "beyond the end": last.ID + "00"} {
		if events := inboxtest.Events(s.Open(http.MethodPost, "/v1/agent/slow", ada, body, "Last-Event-ID", from)); len(events) != 1 || events[0] != last {
			t.Errorf("%s: %v", name, events)
		}
	}
	never := "01a2008f-1168-77f8-8482-9c57098e1a11.3"
	foreign, missing := s.post("/v1/agent/slow", bob, body, "Last-Event-ID", last.ID), s.post("/v1/agent/slow", bob, body, "Last-Event-ID", never)
	if foreign.body != missing.body || foreign.rpc(t).Error.Code != -32603 {
		t.Errorf("an event of somebody else %s, one that never was %s", foreign.body, missing.body)
	}
	for _, junk := range []string{"junk", "x.y", never[:36] + ".-1", never[:36] + ".x", strings.Repeat("9", 300), never[:36]} {
		if refused := s.post("/v1/agent/slow", ada, body, "Last-Event-ID", junk).rpc(t).Error; refused == nil || refused.Code != -32602 {
			t.Errorf("Last-Event-ID %s: %+v", junk, refused)
		}
	}
}

// TestGuestsShareNoRun: two guests who call their first messages the same have two runs.
func TestGuestsShareNoRun(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	body := `{"jsonrpc":"2.0","id":7,"method":"message/send","params":{"message":{"messageId":"m1","parts":[{"type":"text","text":"ping"}]}}}`
	one, other := s.post("/v1/agent/helper", "", body).rpc(t), s.post("/v1/agent/helper", "", body).rpc(t)
	if one.Result.ID == other.Result.ID || one.Result.SessionID == other.Result.SessionID {
		t.Errorf("%+v and %+v", one.Result, other.Result)
	}
}

// TestChatStop ends a run of one's own session, once, and no one else's.
func TestChatStop(t *testing.T) {
	t.Parallel()
	s := newChatServer(t)
	stream := s.Open(http.MethodPost, "/v1/chat", "", `{"agent":"slow","message":"go"}`, "Accept", "text/event-stream")
	defer func() { _ = stream.Body.Close() }()
	reader := bufio.NewReader(stream.Body)
	begin, _ := inboxtest.NextEvent(reader)
	var started struct {
		Session string `json:"session"`
		RunID   string `json:"run_id"`
	}
	if err := json.Unmarshal([]byte(begin.Data), &started); err != nil {
		t.Fatal(begin, err)
	}
	if delta, _ := inboxtest.NextEvent(reader); delta.Name != "delta" {
		t.Fatalf("the run does not speak: %v", delta)
	}
	stop := func(token, session, run string) chatReply {
		body, _ := json.Marshal(map[string]string{"agent": "slow", "session": session, "run_id": run})
		return s.post("/v1/chat/stop", token, string(body))
	}
	for name, got := range map[string]chatReply{
		"no session": stop("", "", started.RunID), "another guest": stop("", "5e3f7a54-0a2c-4d5b-8e2e-0d3f8a9f1c11", started.RunID),
		"a token": stop(s.Token("bob"), started.Session, started.RunID), "another run": stop("", started.Session, "r9"),
	} {
		if got.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	for name, got := range map[string]chatReply{"no JSON": s.post("/v1/chat/stop", "", "["), "no agent": s.post("/v1/chat/stop", "", "{}")} {
		if got.status != http.StatusBadRequest && got.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	for range 2 {
		if got := stop("", started.Session, started.RunID); got.status != http.StatusOK || !strings.Contains(got.body, `"status":"cancelled"`) {
			t.Errorf("stopped: %d %s", got.status, got.body)
		}
	}
	for {
		last, ok := inboxtest.NextEvent(reader)
		if !ok {
			t.Fatal("the stream ends without its last event")
		}
		if last.Name == "reply" {
			if !strings.Contains(last.Data, `"status":"cancelled"`) {
				t.Errorf("the stream ends with %s", last.Data)
			}
			break
		}
	}
	close(s.goOn)
}
