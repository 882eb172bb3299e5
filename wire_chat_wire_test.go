package inbox

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"inbox/agents/runtime/envelope/fixturetest"
	"inbox/agents/runtime/value"
)

// TestRecordedChatOverHTTP plays the recorded requests against a whole server: what the frame says is the same, but for
// the id of the session, which is a secret of ours.
func TestRecordedChatOverHTTP(t *testing.T) {
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
		token := s.token(fmt.Sprint("recorded-", played))
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
func TestChatRequestIDs(t *testing.T) {
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
		response := s.open(method, path, "", "", "Accept", "text/event-stream")
		_ = response.Body.Close()
		if allow := response.Header.Get("Allow"); response.StatusCode != want.status || want.allow != "" && allow != want.allow {
			t.Errorf("%s: %d, Allow %q", request, response.StatusCode, allow)
		}
	}
}

// TestChatReadersOfOneStream: two read it at once and both get all of it; who comes after the end gets the end; an event of
// somebody else and one that never was are told alike.
func TestChatReadersOfOneStream(t *testing.T) {
	s := newChatServer(t)
	ada, bob := s.token("ada"), s.token("bob")
	body := rpcBody("message/stream", "r1", "s1", "go")
	first, second := s.open(http.MethodPost, "/v1/agent/slow", ada, body), s.open(http.MethodPost, "/v1/agent/slow", ada, body)
	readers := []*bufio.Reader{bufio.NewReader(first.Body), bufio.NewReader(second.Body)}
	defer func() { _, _ = first.Body.Close(), second.Body.Close() }()
	var seen [2][]sseEvent
	next := func(i int) bool {
		event, ok := nextEvent(readers[i])
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
	for name, from := range map[string]string{"after the end": last.id, "beyond the end": last.id + "00"} {
		if events := allEvents(s.open(http.MethodPost, "/v1/agent/slow", ada, body, "Last-Event-ID", from)); len(events) != 1 || events[0] != last {
			t.Errorf("%s: %v", name, events)
		}
	}
	never := "01a2008f-1168-77f8-8482-9c57098e1a11.3"
	foreign, missing := s.post("/v1/agent/slow", bob, body, "Last-Event-ID", last.id), s.post("/v1/agent/slow", bob, body, "Last-Event-ID", never)
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
	s := newChatServer(t)
	body := `{"jsonrpc":"2.0","id":7,"method":"message/send","params":{"message":{"messageId":"m1","parts":[{"type":"text","text":"ping"}]}}}`
	one, other := s.post("/v1/agent/helper", "", body).rpc(t), s.post("/v1/agent/helper", "", body).rpc(t)
	if one.Result.ID == other.Result.ID || one.Result.SessionID == other.Result.SessionID {
		t.Errorf("%+v and %+v", one.Result, other.Result)
	}
}

// TestChatStop ends a run of one's own session, once, and nobody else's.
func TestChatStop(t *testing.T) {
	s := newChatServer(t)
	stream := s.open(http.MethodPost, "/v1/chat", "", `{"agent":"slow","message":"go"}`, "Accept", "text/event-stream")
	defer func() { _ = stream.Body.Close() }()
	reader := bufio.NewReader(stream.Body)
	begin, _ := nextEvent(reader)
	var started struct {
		Session string `json:"session"`
		RunID   string `json:"run_id"`
	}
	if err := json.Unmarshal([]byte(begin.data), &started); err != nil {
		t.Fatal(begin, err)
	}
	if delta, _ := nextEvent(reader); delta.name != "delta" {
		t.Fatalf("the run does not speak: %v", delta)
	}
	stop := func(token, session, run string) chatReply {
		body, _ := json.Marshal(map[string]string{"agent": "slow", "session": session, "run_id": run})
		return s.post("/v1/chat/stop", token, string(body))
	}
	for name, got := range map[string]chatReply{
		"no session": stop("", "", started.RunID), "another guest": stop("", "5e3f7a54-0a2c-4d5b-8e2e-0d3f8a9f1c11", started.RunID),
		"a token": stop(s.token("bob"), started.Session, started.RunID), "another run": stop("", started.Session, "r9"),
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
		last, ok := nextEvent(reader)
		if !ok {
			t.Fatal("the stream ends without its last event")
		}
		if last.name == "reply" {
			if !strings.Contains(last.data, `"status":"cancelled"`) {
				t.Errorf("the stream ends with %s", last.data)
			}
			break
		}
	}
	close(s.goOn)
}
