package inbox

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"inbox/agents/channel"
	"inbox/agents/envelope"
	"inbox/exchange"
)

// traffic calls a server and holds every request and every answer to its description.
type traffic struct {
	*testing.T
	url    string
	doc    *description
	called map[string]bool // operations that succeeded
}

// call sends a request and gives the decoded answer. want is its status.
func (c *traffic) call(method, path, token, body string, want int, header ...string) map[string]any {
	c.Helper()
	request, err := http.NewRequestWithContext(c.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	template := c.template(method, request.URL.Path)
	what := method + " " + path
	if response.StatusCode != want {
		content, _ := io.ReadAll(response.Body)
		c.Fatalf("%s: %d %s, want %d", what, response.StatusCode, content, want)
	}
	place := []string{"paths", template, strings.ToLower(method)}
	for name := range request.URL.Query() {
		if !c.parameter(place, name) {
			c.Errorf("%s: the parameter %s is not described", what, name)
		}
	}
	if want < 400 {
		c.called[method+" "+template] = true
		if body != "" && request.Header.Get("Content-Type") == "application/json" {
			c.doc.check(what+": request", []byte(body), append(place, "requestBody", "content", "application/json", "schema")...)
		}
	}
	return c.answer(what, response, place)
}

// template finds the path of the document for an address.
func (c *traffic) template(method, path string) string {
	c.Helper()
	asked := strings.Split(path, "/")
	for _, template := range slices.Sorted(maps.Keys(c.doc.find("paths").(map[string]any))) { // letters come before {
		steps := strings.Split(template, "/")
		fits := len(steps) == len(asked) && c.doc.find("paths", template, strings.ToLower(method)) != nil
		for i := range steps {
			fits = fits && (strings.HasPrefix(steps[i], "{") || steps[i] == asked[i])
		}
		if fits {
			return template
		}
	}
	c.Fatalf("%s %s is not described", method, path)
	return ""
}

func (c *traffic) parameter(place []string, name string) bool {
	list, _ := c.doc.find(append(slices.Clone(place), "parameters")...).([]any)
	return slices.ContainsFunc(list, func(one any) bool { return one.(map[string]any)["name"] == name })
}

// answer checks the body by the status and the media type that the server chose.
func (c *traffic) answer(what string, response *http.Response, place []string) (answer map[string]any) {
	c.Helper()
	place = append(slices.Clone(place), "responses", strconv.Itoa(response.StatusCode))
	described, is := c.doc.find(place...).(map[string]any)
	if !is {
		c.Errorf("%s: the status %d is not described", what, response.StatusCode)
		return nil
	}
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch content, _ := described["content"].(map[string]any); {
	case content == nil:
		if response.StatusCode != http.StatusNoContent {
			c.Errorf("%s: the answer is not described", what)
		}
		return nil
	case content[media] == nil:
		c.Errorf("%s: the media type %s is not described", what, media)
		return nil
	}
	if response.StatusCode >= 400 {
		reference := c.doc.document["paths"].(map[string]any)[place[1]].(map[string]any)[place[2]].(map[string]any)["responses"].(map[string]any)[place[4]].(map[string]any)["$ref"].(string)
		place = strings.Split(strings.TrimPrefix(reference, "#/"), "/")
	}
	if media == "text/event-stream" {
		return c.events(what, response, append(place, "content", media, "x-events"))
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.Fatal(err)
	}
	c.doc.check(what+": answer", body, append(place, "content", media, "schema")...)
	if err := json.Unmarshal(body, &answer); err != nil {
		c.Fatal(err)
	}
	return answer
}

// events checks the data of the events up to the one after which such a stream says nothing for a while, and gives that one.
func (c *traffic) events(what string, response *http.Response, place []string) (answer map[string]any) {
	c.Helper()
	reader := bufio.NewReader(response.Body)
	for {
		event, more := nextEvent(reader)
		if !more {
			return answer
		}
		name := event.name
		if name == "" {
			name = "message"
		}
		if event.data == "[DONE]" {
			return answer
		}
		if c.doc.find(append(slices.Clone(place), name)...) == nil {
			c.Errorf("%s: the event %s is not described", what, name)
			continue
		}
		c.doc.check(what+": event "+name, []byte(event.data), append(slices.Clone(place), name)...)
		if err := json.Unmarshal([]byte(event.data), &answer); err != nil {
			c.Fatal(err)
		}
		if slices.Contains([]string{"item", "request", "turn", "done", "reply"}, name) {
			return answer
		}
	}
}

// TestTraffic calls the routes of a server as programs do, and holds what both sides say to the document.
func TestTraffic(t *testing.T) {
	s, _ := newShelfServer(t)
	c := &traffic{T: t, url: s.url, doc: describedBy(t, s.server.routes, true), called: map[string]bool{}}
	c.chats(s)
	c.bridges(s)
	c.sessions(s)
	c.tools(s)
	c.pulls(s)
	c.operates(s)
	routes := operations()
	for key := range routes {
		if !c.called[key] && !slices.Contains(notCalled, key) {
			t.Errorf("%s is not called", key)
		}
	}
	t.Logf("%d of %d operations called", len(c.called), len(routes))
}

// notCalled need states of a server that other tests make.
var notCalled = []string{
	"POST /api/v1/held/{turn}/release", "POST /api/v1/held/{turn}/drop", "GET /api/v1/approvals/{approval}", "POST /api/v1/approvals/{approval}/approve",
	"POST /api/v1/approvals/{approval}/deny", "POST /api/v1/approvals/{approval}/edit", "DELETE /api/v1/replies/{reply}", "PUT /api/v1/replies/{reply}",
	"DELETE /api/v1/people", "DELETE /api/v1/mail/suppressed", "DELETE /api/v1/stops", "POST /api/v1/blocks/import", "POST /api/v1/allows/import",
	"POST /api/v1/tool-requests/{request}/submit",
}

const stream = "text/event-stream"

func (c *traffic) chats(s *chatServer) {
	c.Helper()
	token := s.token("typed")
	said := c.call("POST", "/v1/chat", token, `{"agent":"echo","message":"Hello","run_id":"r1"}`, 200)
	c.call("POST", "/v1/chat", token, `{"agent":"echo","message":"Hello again"}`, 200, "Accept", stream)
	c.call("GET", "/v1/chat?agent=echo", token, "", 200, "Chat-Session", fmt.Sprint(said["session"]))
	c.call("POST", "/v1/chat/stop", token, `{"agent":"echo","session":"`+fmt.Sprint(said["session"])+`","run_id":"r1"}`, 200)
	c.call("POST", "/v1/chat", token, `{"agent":"nobody","message":"Hello"}`, 404)
	c.call("POST", "/v1/chat", token, `{"agent":"echo","message":"another","run_id":"r1"}`, 409)
	c.call("DELETE", "/v1/chat?agent=echo", token, "", 204, "Chat-Session", fmt.Sprint(said["session"]))
	c.call("POST", "/v1/agent/echo", token, rpcBody("message/send", "", "", "Hello"), 200)
	c.call("POST", "/v1/agent/echo", token, rpcBody("message/stream", "", "", "Hello"), 200)
	c.call("GET", "/v1/models", token, "", 200)
	c.call("GET", "/v1/models/echo", token, "", 200)
	c.call("GET", "/v1/models/nobody", token, "", 404)
	c.call("GET", "/v1/models", "sk-wrong", "", 401)
	c.call("GET", "/v1/models", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.", "", 401)
	const question = `{"model":"echo","messages":[{"role":"user","content":"Hello"}]%s}`
	c.call("POST", "/v1/chat/completions", token, fmt.Sprintf(question, ""), 200)
	c.call("POST", "/v1/chat/completions", token, fmt.Sprintf(question, `,"stream":true,"stream_options":{"include_usage":true}`), 200)
	c.call("POST", "/v1/chat/completions", token, fmt.Sprintf(question, `,"n":2`), 400)
	c.call("POST", "/v1/chat/completions", token, toolBody("asks", "", question1), 200)
}

func (c *traffic) bridges(s *chatServer) {
	c.Helper()
	token, _, err := s.server.operator().CreateBridgeToken(c.Context(), "relay", "", exchange.AllBridgeScopes())
	if err != nil {
		c.Fatal(err)
	}
	c.call("GET", "/v1/bridge/client", token, "", 404)
	c.call("POST", "/v1/bridge/register", token, `{"connector_id":"matrix","context":{"a":1}}`, 200)
	c.call("GET", "/v1/bridge/client", token, "", 200)
	c.call("POST", "/v1/bridge/send", token, `{"message":"Hello","agent":"echo","external_conversation_id":"room","external_message_id":"m1","sender_id":"ann","wait":"20s"}`, 200)
	c.call("POST", "/v1/bridge/send", token, `{"message":"Hello again","agent":"echo","external_conversation_id":"room","external_message_id":"m2","sender_id":"ann"}`, 200, "Accept", stream)
	c.call("POST", "/v1/bridge/send", token, `{"agent":"echo"}`, 400)
	c.call("POST", "/v1/bridge/send", "wrong", `{"message":"Hello"}`, 401)
	queued := c.call("POST", "/v1/bridge/queue", token, `{"agent":"echo","content":"by hand"}`, 201)
	item := fmt.Sprint(queued["queue_id"])
	waiting := c.call("GET", "/v1/bridge/pending?limit=50&wait=20s", token, "", 200)
	if list, _ := waiting["items"].([]any); len(list) == 0 {
		c.Error("nothing is pending")
	}
	c.call("GET", "/v1/bridge/events?limit=1", token, "", 200)
	c.call("GET", "/v1/bridge/items/"+item, token, "", 200)
	c.call("POST", "/v1/bridge/items/"+item+"/ack", token, "", 200)
	c.call("POST", "/v1/bridge/items/"+item+"/ack", token, "", 404)
	acked := c.call("POST", "/v1/bridge/ack", token, `{"queue_ids":["nothing"]}`, 200)
	if fmt.Sprint(acked["acked"]) != "0" {
		c.Errorf("acked %v", acked)
	}
	handed := map[string]any{}
	for _, body := range []string{
		`{"text":"","external_conversation_id":"C1","external_message_id":"2","sender_id":"U1"}`,
		`{"text":"Hello","external_conversation_id":"C1","external_message_id":"1","sender_id":"U1","wait":"20s"}`,
	} {
		handed = c.call("POST", "/v1/connectors/slack/messages", "", body, 200, "X-Inbox-Signature", channel.Sign(connectorSecret, []byte(body)))
	}
	c.call("POST", "/v1/connectors/slack/messages", "", `{}`, 401)
	run := "/v1/connectors/slack/runs/" + fmt.Sprint(handed["run_id"])
	c.call("GET", run, "", "", 200, "X-Inbox-Signature", channel.Sign(connectorSecret, []byte(run)))
	c.call("POST", run+"?wait=1s", "", `{}`, 200, "X-Inbox-Signature", channel.Sign(connectorSecret, []byte(`{}`)))
}

func (c *traffic) sessions(s *chatServer) {
	c.Helper()
	token := s.token("sessions")
	made := c.call("POST", "/v1/sessions", token, `{"agent":"echo","title":"Groceries"}`, 201)
	session := "/v1/sessions/" + fmt.Sprint(made["session_id"])
	c.call("POST", "/v1/sessions", token, `{"agent":"echo","session_id":"`+fmt.Sprint(made["session_id"])+`"}`, 200)
	c.call("GET", session, token, "", 200)
	c.call("GET", session, s.token("stranger"), "", 404)
	c.call("PATCH", session, token, `{"title":"More groceries"}`, 200)
	run := c.call("POST", session+"/messages?wait=20s", token, `{"message":"Hello"}`, 200)
	c.call("POST", session+"/messages", token, `{"message":"queued"}`, 202)
	c.call("POST", session+"/messages", token, `{"message":"streamed"}`, 200, "Accept", stream)
	c.call("GET", session+"/messages?limit=10", token, "", 200)
	exported := c.call("GET", session+"/export", token, "", 200)
	exported["session_id"] = "imported"
	body, err := json.Marshal(exported)
	if err != nil {
		c.Fatal(err)
	}
	c.call("POST", "/v1/import", token, string(body), 200)
	c.call("GET", "/v1/sessions?limit=1", token, "", 200)
	at := "/v1/runs/" + fmt.Sprint(run["run_id"])
	c.call("GET", at+"?wait=1s", token, "", 200)
	c.call("GET", at+"/events?limit=2", token, "", 200)
	c.call("GET", at+"/events", token, "", 200, "Accept", stream)
	c.call("POST", at+"/cancel", token, `{}`, 200)
	c.call("POST", at+"/stop", token, "", 200)
	c.call("GET", "/v1/runs/nothing", token, "", 404)
	c.call("DELETE", session, token, "", 200)
}

func (c *traffic) tools(s *chatServer) {
	c.Helper()
	token, _, err := s.server.operator().CreateToolsToken(c.Context(), "desk", "keeps")
	if err != nil {
		c.Fatal(err)
	}
	owner, all := s.token("owner"), "/v1/tools/keeps/requests"
	session := fmt.Sprint(c.call("POST", "/v1/sessions", owner, `{"agent":"keeps"}`, 201)["session_id"])
	for _, end := range []struct{ operation, body string }{{"submit", `{"success":true,"result":{"in_stock":3},"metadata":{"a":1}}`}, {"timeout", ""}, {"cancel", ""}} {
		c.call("POST", "/v1/sessions/"+session+"/messages", owner, `{"message":"is there milk?"}`, 202)
		listed := c.call("GET", all+"?wait=20s&limit=5", token, "", 200)
		c.call("GET", all+"/events", token, "", 200)
		list := listed["requests"].([]any)
		one := all + "/" + fmt.Sprint(list[0].(map[string]any)["request_id"])
		c.call("GET", one, token, "", 200)
		c.call("POST", one+"/"+end.operation, token, end.body, 200)
		c.call("GET", one, token, "", 200)
	}
	c.call("GET", all+"/nothing", token, "", 404)
	c.call("GET", all, "wrong", "", 401)
}

func (c *traffic) pulls(s *chatServer) {
	c.Helper()
	token, _, err := s.server.operator().CreatePullToken(c.Context(), "laptop", "pulled")
	if err != nil {
		c.Fatal(err)
	}
	owner := s.token("asker")
	session := fmt.Sprint(c.call("POST", "/v1/sessions", owner, `{"agent":"pulled"}`, 201)["session_id"])
	c.call("POST", "/v1/pull/pulled/take?wait=0", token, "", 204)
	for _, way := range []string{"answer", "fail", "deltas"} {
		c.call("POST", "/v1/sessions/"+session+"/messages", owner, `{"message":"Hello"}`, 202)
		turn := c.call("POST", "/v1/pull/pulled/take?wait=20s", token, "", 200)
		at := "/v1/pull/pulled/" + fmt.Sprint(turn["turn"].(map[string]any)["id"]) + "/"
		lease := "?lease=" + fmt.Sprint(turn["lease"].(map[string]any)["id"])
		c.call("POST", at+"heartbeat"+lease, token, "", 200)
		switch way {
		case "answer":
			c.call("POST", at+"answer"+lease, token, `{"in_reply_to":"`+fmt.Sprint(turn["message"].(map[string]any)["id"])+`","parts":[{"kind":"text","mime":"text/plain","content":"Hi"}]}`, 200)
			c.call("POST", at+"heartbeat"+lease, token, "", 410)
		case "fail":
			c.call("POST", at+"fail"+lease, token, `{"retry":false,"reason":"no"}`, 200)
		case "deltas":
			c.call("POST", at+"deltas"+lease+"&first=0", token, `{"kind":"text","text":"Hi"}`, 200)
			c.call("POST", at+"answer"+lease, token, "", 200)
		}
	}
	c.call("POST", "/v1/sessions/"+session+"/messages", owner, `{"message":"streamed"}`, 202)
	c.call("GET", "/v1/pull/pulled/events?max=1", token, "", 200)
	c.call("POST", "/v1/pull/pulled/take", "wrong", "", 401)
}

func (c *traffic) operates(s *chatServer) {
	c.Helper()
	token, _, err := s.server.operator().CreateAdminToken(c.Context(), "typed")
	if err != nil {
		c.Fatal(err)
	}
	turns, err := s.server.store.Turns(c.Context(), exchange.TurnFilter{Agent: "echo", Limit: 1})
	if err != nil || len(turns) == 0 {
		c.Fatal(err)
	}
	c.call("GET", "/api/v1/turns/"+turns[0].ID, token, "", 200)
	c.call("GET", "/api/v1/turns/nothing", token, "", 404)
	c.call("GET", "/api/v1/held?limit=5", "wrong", "", 401)
	for _, path := range []string{"held", "approvals", "tool-requests?status=all", "people", "audit", "mail/suppressed", "reports", "stops"} {
		c.call("GET", "/api/v1/"+path, token, "", 200)
	}
	requests := c.call("GET", "/api/v1/tool-requests?status=open", token, "", 200)["tool_requests"].([]any)
	id := envelope.Text(requests[0].(map[string]any)["request_id"])
	c.call("GET", "/api/v1/tool-requests/"+id, token, "", 200)
	c.call("POST", "/api/v1/tool-requests/"+id+"/cancel", token, "", 200)
	for _, list := range []string{"blocks", "allows"} {
		c.call("POST", "/api/v1/"+list, token, `{"target":"spam.example","reason":"spam"}`, 200)
		c.call("GET", "/api/v1/"+list, token, "", 200)
		c.call("DELETE", "/api/v1/"+list+"?target=spam.example", token, "", 204)
	}
	c.call("POST", "/api/v1/held/nothing/release", token, "", 404)
}
