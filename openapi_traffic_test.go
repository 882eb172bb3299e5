package inbox_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/agents"
	"inbox/agents/echo"
	"inbox/agents/runtime/value"
	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/internal/queue"
	"inbox/internal/webhooksignature"
	"inbox/normalized"
	"inbox/policypart"
)

// traffic calls a server and holds every request and every answer to its description.
type traffic struct {
	*inboxtest.Server

	doc    *description
	called map[string]bool // operations that succeeded
}

// call sends a request and returns the decoded answer. want is its status.
func (c *traffic) call(method, path, token, body string, want int, header ...string) map[string]any {
	c.Helper()
	response := c.Open(method, path, token, body, header...)
	defer func() { _ = response.Body.Close() }()
	template := c.template(method, response.Request.URL.Path)
	what := method + " " + path
	if response.StatusCode != want {
		content, _ := io.ReadAll(response.Body)
		c.Fatalf("%s: %d %s, want %d", what, response.StatusCode, content, want)
	}
	place := []string{"paths", template, strings.ToLower(method)}
	for name := range response.Request.URL.Query() {
		if !c.parameter(place, name) {
			c.Errorf("%s: the parameter %s is not described", what, name)
		}
	}
	if want < 400 {
		c.called[method+" "+template] = true
		if body != "" && response.Request.Header.Get("Content-Type") == "application/json" {
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
	case content["*/*"] != nil: // a file
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
	if bytes.Contains(body, []byte(`"0001-01-01T`)) {
		c.Errorf("%s: the answer has a time that was never set: %s", what, body)
	}
	c.doc.check(what+": answer", body, append(place, "content", media, "schema")...)
	if err := json.Unmarshal(body, &answer); err != nil {
		c.Fatal(err)
	}
	return answer
}

// events checks the data of the events up to the one after which such a stream says nothing for a while, and returns that one.
func (c *traffic) events(what string, response *http.Response, place []string) (answer map[string]any) {
	c.Helper()
	reader := bufio.NewReader(response.Body)
	for {
		event, more := inboxtest.NextEvent(reader)
		if !more {
			return answer
		}
		name := event.Name
		if name == "" {
			name = "message"
		}
		if event.Data == "[DONE]" {
			return answer
		}
		if c.doc.find(append(slices.Clone(place), name)...) == nil {
			c.Errorf("%s: the event %s is not described", what, name)
			continue
		}
		c.doc.check(what+": event "+name, []byte(event.Data), append(slices.Clone(place), name)...)
		if err := json.Unmarshal([]byte(event.Data), &answer); err != nil {
			c.Fatal(err)
		}
		if slices.Contains([]string{"item", "request", "turn", "done", "reply"}, name) {
			return answer
		}
	}
}

// TestTraffic calls the routes of a server as programs do, and holds what both sides say to the document.
func TestTraffic(t *testing.T) {
	t.Parallel()
	s, _ := inboxtest.NewWithTools(t, "INBOX_CHAT_HOLD_GUESTS=true", "INBOX_SMTP_LISTEN=127.0.0.1:0")
	if err := s.Register(exchange.AgentProfile{Name: "closed"}, echo.Agent{}, agents.Settings{Unverified: agents.UnverifiedHold}); err != nil {
		t.Fatal(err)
	}
	s.Serve()
	c := &traffic{Server: s, doc: describedBy(t, s.Routes(), true), called: map[string]bool{}}
	c.chats(s)
	c.bridges(s)
	c.sessions(s)
	c.tools(s)
	c.pulls(s)
	c.tasks(s)
	c.operates(s)
	c.everythingIsCalled()
}

// everythingIsCalled demands that each operation was called, or says in notCalled why it was not.
func (c *traffic) everythingIsCalled() {
	c.Helper()
	routes := operations()
	for key := range routes {
		if reason := notCalled[key]; c.called[key] == (reason != "") {
			c.Errorf("%s: called %t, and notCalled says %q", key, c.called[key], reason)
		}
	}
	for key := range notCalled {
		if _, is := routes[key]; !is {
			c.Errorf("notCalled has %s, which is no operation", key)
		}
	}
}

// notCalled are operations that only other tests call, with the reason.
var notCalled = map[string]string{
	"PUT /api/v1/agents/{agent}/move":    "needs an account on another server that names ours: e2e",
	"DELETE /api/v1/agents/{agent}/move": "needs one that moved: e2e",
	"POST /api/v1/follows/decide":        "needs an actor who waits: TestFollowsAreDecided",
	"POST /api/v1/notices/test":          "needs an address that answers: TestNodeTellsOfItself",
	"POST /api/v1/stop":                  "ends the server that is asked: e2e (TestServerIsMovedUnderLoad)",
}

const stream = "text/event-stream"

func (c *traffic) chats(s *inboxtest.Server) {
	c.Helper()
	token := s.Token("typed")
	said := c.call("POST", "/v1/chat", token, `{"agent":"echo","message":"Hello","run_id":"r1"}`, 200)
	c.call("POST", "/agents-api/v1/chat", token, `{"agent":"echo","message":"Hello"}`, 200)
	c.call("POST", "/agents-api/v1/agent/echo", token, `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"role":"user","parts":[{"type":"text","text":"Hello"}]}}}`, 200)
	c.call("POST", "/v1/chat", token, `{"agent":"echo","history":[{"role":"user","content":"Hello"}],"messages":[{"role":"assistant","content":"Hello"},{"role":"user","content":"Hello again"}],
		"input_messages":[{"role":"assistant","content":"","metadata":{"type":"tool_call","tool_name":"map"}},{"role":"tool","content":"1","metadata":{"type":"tool_result","tool_name":"map"}}]}`, 200)
	c.call("POST", "/v1/chat", token, `{"agent":"echo","message":"Hello again"}`, 200, "Accept", stream)
	c.call("GET", "/v1/chat?agent=echo", token, "", 200, "Chat-Session", fmt.Sprint(said["session"]))
	c.call("POST", "/v1/chat/stop", token, `{"agent":"echo","session":"`+fmt.Sprint(said["session"])+`","run_id":"r1"}`, 200)
	c.call("POST", "/v1/chat", token, `{"agent":"nobody","message":"Hello"}`, 404)
	c.call("POST", "/v1/chat", token, `{"agent":"echo","message":"another","run_id":"r1"}`, 409)
	c.call("DELETE", "/v1/chat?agent=echo", token, "", 204, "Chat-Session", fmt.Sprint(said["session"]))
	const frame = `{"jsonrpc":"2.0","id":7,"method":"message/%s","params":{"message":{"role":"user","parts":[{"type":"text","text":"Hello"}]}}}`
	c.call("POST", "/v1/agent/echo", token, fmt.Sprintf(frame, "send"), 200)
	c.call("POST", "/v1/agent/echo", token, fmt.Sprintf(frame, "stream"), 200)
	c.call("GET", "/v1/models", token, "", 200)
	c.call("GET", "/v1/models/echo", token, "", 200)
	c.call("GET", "/v1/models/nobody", token, "", 404)
	c.call("GET", "/v1/models", "sk-wrong", "", 401)
	c.call("GET", "/v1/models", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.", "", 401)
	const question = `{"model":"echo","messages":[{"role":"user","content":"Hello"}]%s}`
	c.call("POST", "/v1/chat/completions", token, fmt.Sprintf(question, ""), 200)
	c.call("POST", "/v1/chat/completions", token, fmt.Sprintf(question, `,"stream":true,"stream_options":{"include_usage":true}`), 200)
	c.call("POST", "/v1/chat/completions", token, fmt.Sprintf(question, `,"n":2`), 400)
	c.call("POST", "/v1/chat/completions", token, `{"model":"asks","tools":[{"type":"function","function":{"name":"look"}}],"messages":[{"role":"user","content":"is there milk?"}]}`, 200)
	c.call("POST", "/v1/chat/completions", token, fmt.Sprintf(question, `,"response_format":{"type":"json_object"}`), 400)
	made := c.call("POST", "/v1/responses", token, `{"model":"echo","input":"Hello","metadata":{"ticket":"7"}}`, 200)
	c.call("POST", "/v1/responses", token, `{"model":"echo","input":[{"role":"user","content":"And now?"}],"stream":true}`, 200)
	c.call("POST", "/v1/responses", token, `{"model":"asks","tools":[{"type":"function","name":"look"}],"input":"is there milk?"}`, 200)
	c.call("POST", "/v1/responses", token, `{"model":"echo","input":"x","previous_response_id":"resp_0"}`, 400)
	c.call("GET", fmt.Sprintf("/v1/responses/%v", made["id"]), token, "", 200)
	c.call("GET", "/v1/responses/resp_0", token, "", 404)
}

func (c *traffic) bridges(s *inboxtest.Server) {
	c.Helper()
	token, _, err := s.Operator().Tokens.CreateBridge(c.Context(), "relay", "", exchange.AllBridgeScopes())
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
		handed = c.call("POST", "/v1/connectors/slack/messages", "", body, 200, "X-Inbox-Signature", webhooksignature.Sign(inboxtest.ConnectorSecret, []byte(body)))
	}
	c.call("POST", "/v1/connectors/slack/messages", "", `{}`, 401)
	run := "/v1/connectors/slack/runs/" + fmt.Sprint(handed["run_id"])
	c.call("GET", run, "", "", 200, "X-Inbox-Signature", webhooksignature.Sign(inboxtest.ConnectorSecret, []byte(run)))
	c.call("POST", run+"?wait=1s", "", `{}`, 200, "X-Inbox-Signature", webhooksignature.Sign(inboxtest.ConnectorSecret, []byte(`{}`)))
}

func (c *traffic) sessions(s *inboxtest.Server) {
	c.Helper()
	token := s.Token("sessions")
	made := c.call("POST", "/v1/sessions", token, `{"agent":"echo","title":"Groceries"}`, 201)
	session := "/v1/sessions/" + fmt.Sprint(made["session_id"])
	c.call("POST", "/v1/sessions", token, `{"agent":"echo","session_id":"`+fmt.Sprint(made["session_id"])+`"}`, 200)
	c.call("GET", session, token, "", 200)
	c.call("GET", session, s.Token("stranger"), "", 404)
	c.call("PATCH", session, token, `{"title":"More groceries"}`, 200)
	run := c.call("POST", session+"/messages?wait=20s", token, `{"message":"Hello"}`, 200)
	c.call("POST", session+"/messages", token, `{"message":"queued"}`, 202)
	c.call("POST", session+"/messages", token, `{"message":"streamed"}`, 200, "Accept", stream)
	c.call("GET", session+"/messages?limit=10", token, "", 200)
	exported := c.call("GET", session+"/export", token, "", 200)
	c.call("GET", session+"/export?collection=conversation", token, "", 200)
	exported["session_id"] = "imported"
	body, err := json.Marshal(exported)
	if err != nil {
		c.Fatal(err)
	}
	c.call("POST", "/v1/import", token, string(body), 200)
	c.call("POST", "/v1/import", token, `{"schema":"agents-api/runtime-bundle/v1"}`, 422)
	c.call("GET", session+"/messages?format=envelope&coalesce=true", token, "", 200)
	c.call("GET", session+"/messages?format=provider", token, "", 200)
	c.call("GET", session+"/export?format=envelope", token, "", 200)
	c.examples("/v1/import", token)
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

// examples posts every example of a body that the committed description shows. What it shows has to be taken.
func (c *traffic) examples(path, token string) {
	c.Helper()
	committed, err := os.ReadFile("docs/openapi.json")
	if err != nil {
		c.Fatal(err)
	}

	var document struct {
		Paths map[string]struct {
			Post struct {
				Body struct {
					Content map[string]struct {
						Examples map[string]struct{ Value json.RawMessage }
					}
				} `json:"requestBody"`
			}
		}
	}
	if err := json.Unmarshal(committed, &document); err != nil {
		c.Fatal(err)
	}

	shown := document.Paths[path].Post.Body.Content["application/json"].Examples
	if len(shown) < 3 {
		c.Errorf("%d examples of %s are in docs/openapi.json; run: go generate .", len(shown), path)
	}
	for _, example := range shown {
		c.call("POST", path, token, string(example.Value), 200)
	}
}

func (c *traffic) tools(s *inboxtest.Server) {
	c.Helper()
	token, _, err := s.Operator().Tokens.CreateTools(c.Context(), "desk", "keeps")
	if err != nil {
		c.Fatal(err)
	}
	owner, all := s.Token("owner"), "/v1/tools/keeps/requests"
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
	c.call("GET", "/v1/tools/keeps/policy", token, "", 200)
}

func (c *traffic) pulls(s *inboxtest.Server) {
	c.Helper()
	token, _, err := s.Operator().Tokens.CreatePull(c.Context(), "laptop", "pulled")
	if err != nil {
		c.Fatal(err)
	}
	owner := s.Token("asker")
	session := fmt.Sprint(c.call("POST", "/v1/sessions", owner, `{"agent":"pulled"}`, 201)["session_id"])
	c.call("POST", "/v1/pull/pulled/take?wait=0", token, "", 204)
	for _, way := range []string{"answer", "fail", "deltas"} {
		c.call("POST", "/v1/sessions/"+session+"/messages", owner, `{"message":"Hello"}`, 202)
		turn := c.call("POST", "/v1/pull/pulled/take?wait=20s", token, "", 200)
		at := "/v1/pull/pulled/" + fmt.Sprint(turn["turn"].(map[string]any)["id"]) + "/"
		lease := "?lease=" + fmt.Sprint(turn["lease"].(map[string]any)["id"])
		c.call("POST", at+"heartbeat"+lease, token, "", 200)
		c.files(turn, token)
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

func (c *traffic) tasks(s *inboxtest.Server) {
	c.Helper()
	token, _, err := s.Operator().Tokens.CreateTasks(c.Context(), "nightly", "", true)
	if err != nil {
		c.Fatal(err)
	}
	c.call("GET", "/v1/targets?resource_class=generic&required_capabilities=&allowed_targets=local", token, "", 200)
	body := `{"task":{"id":"t","instructions":"Hello","input":{"a":1},"attachments":[{"url":"https://files.example/a.txt"}]},"run_id":"r 1","session_id":"s","placement":{"preferred_target":"local"}}`
	c.call("POST", "/v1/tasks?wait=20s", token, body, 200)
	c.call("POST", "/v1/tasks", token, body, 409)
	c.call("POST", "/v1/tasks", token, `{"task_id":"t","session_id":"s"}`, 202)
	c.call("POST", "/v1/tasks", token, `{}`, 400)
	c.call("GET", "/v1/tasks?limit=1", token, "", 200)
	c.call("GET", "/v1/tasks/r%201?session_id=s&wait=1s", token, "", 200)
	c.call("GET", "/v1/tasks/r%201/result?session_id=s", token, "", 200)
	c.call("POST", "/v1/tasks/r%201/cancel", token, `{"session_id":"s"}`, 200)
	c.call("GET", "/v1/tasks/r%201?session_id=other", token, "", 404)
	c.call("GET", "/v1/tasks", "wrong", "", 401)
}

// files reads the native original of a message that a program took, by its address and by the token.
func (c *traffic) files(turn map[string]any, token string) {
	c.Helper()
	raw := turn["message"].(map[string]any)["raw"].(map[string]any)
	address, err := url.Parse(fmt.Sprint(raw["url"]))
	if err != nil {
		c.Fatal(err)
	}
	c.call("GET", address.Path, "", "", 200)
	c.call("GET", address.Path, "", "", 206, "Range", "bytes=0-1")
	c.call("GET", address.Path+"x", "", "", 404)
	path := "/v1/turns/" + fmt.Sprint(turn["turn"].(map[string]any)["id"]) + "/files/"
	c.call("GET", path+strings.TrimPrefix(fmt.Sprint(raw["ref"]), "sha256:"), token, "", 200)
	c.call("GET", path+strings.Repeat("0", 64), token, "", 404)
	c.call("GET", path+strings.Repeat("0", 64), "wrong", "", 401)

	c.call("POST", "/v1/files?name=a.txt", token, "a file", 201, "Content-Type", "text/plain")
	c.call("POST", "/v1/files", token, "a file", 400, "Content-Type", "application/octet-stream", "Content-Digest", "none")
	c.call("POST", "/v1/files", "wrong", "a file", 401, "Content-Type", "application/octet-stream")
}

// operatesAgents calls what the operator API says about agents and tokens.
func (c *traffic) operatesAgents(token string) {
	c.Helper()
	const agent = "/api/v1/agents/echo"
	c.call("GET", agent, token, "", 200)
	c.call("GET", agent+"/examination", token, "", 200)
	c.call("PUT", agent+"/pause", token, `{"reason":"new model"}`, 204)
	c.call("DELETE", agent+"/pause", token, "", 204)
	c.call("DELETE", agent+"/pause", token, "", 404)
	c.call("POST", agent+"/access-check", token, `{"address":"@alice@example.org","channel":"email"}`, 200)
	c.call("POST", agent+"/access-check", token, `{"address":"nobody"}`, 400)
	c.call("POST", "/api/v1/agents/nobody/access-check", token, `{}`, 404)
	c.call("POST", "/api/v1/agents", token, `{"name":"second","kind":"echo"}`, 200)
	c.call("POST", "/api/v1/agents", token, `{"name":"third","kind":"command"}`, 403)
	c.call("DELETE", "/api/v1/agents/second", token, "", 200)
	c.call("DELETE", "/api/v1/agents/second", token, "", 404)
	c.call("POST", "/api/v1/follows/decide", token, `{"agent":"echo","actor":"https://social.test/users/ann","accept":true}`, 404)

	made := c.call("POST", "/api/v1/tokens", token, `{"name":"partner","scope":"peer","agent":"echo","expires":"90d"}`, 200)
	c.call("POST", "/api/v1/tokens", token, `{"name":"partner","scope":"everything"}`, 400)
	c.call("POST", "/api/v1/tokens", token, `{"name":"echo","scope":"peer"}`, 409)
	c.call("DELETE", "/api/v1/tokens/"+fmt.Sprint(made["id"]), token, "", 204)
	c.call("DELETE", "/api/v1/tokens/nothing", token, "", 404)
}

// operates calls the operator API.
func (c *traffic) operates(s *inboxtest.Server) {
	c.Helper()
	token, _, err := s.Operator().Tokens.CreateAdmin(c.Context(), "typed")
	if err != nil {
		c.Fatal(err)
	}
	turns, err := s.Store().Turns(c.Context(), exchange.TurnFilter{Agent: "echo", Limit: 1})
	if err != nil || len(turns) == 0 {
		c.Fatal(err)
	}
	c.call("GET", "/api/v1/turns/"+turns[0].ID, token, "", 200)
	c.call("GET", "/api/v1/turns/nothing", token, "", 404)
	c.call("GET", "/api/v1/turns/"+turns[0].ID+"/original", token, "", 200)
	c.call("GET", "/api/v1/turns/nothing/original", token, "", 404)
	c.call("GET", "/api/v1/turns/"+turns[0].ID+"/recording", token, "", 200)
	c.call("GET", "/api/v1/turns/"+turns[0].ID+"/recording?names=true", token, "", 200)
	for _, way := range []string{"task", "mention"} {
		simulated := c.call("POST", "/api/v1/simulate?wait=20s", token, `{"way":"`+way+`","agent":"echo","text":"Hello","files":[{"name":"a.txt","mime":"text/plain","content":"aGk="}]}`, 200)
		if simulated["outcome"] != "answered" {
			c.Errorf("%s: %v", way, simulated)
		}
	}
	c.call("POST", "/api/v1/simulate", token, `{"way":"pigeon","agent":"echo","text":"Hello"}`, 400)
	c.call("POST", "/api/v1/simulate", token, `{"way":"task","agent":"nobody","text":"Hello"}`, 404)
	for _, turn := range []string{"nothing", turns[0].ID} { // none, and one whose agent gives no results
		c.call("GET", "/api/v1/turns/"+turn+"/result", token, "", 404)
	}
	c.call("GET", "/api/v1/held?limit=5", "wrong", "", 401)
	for _, path := range []string{"held", "approvals", "tool-requests?status=all", "people", "audit", "mail/suppressed", "reports", "stops", "connectors", "notices?limit=5"} {
		c.call("GET", "/api/v1/"+path, token, "", 200)
	}
	c.call("POST", "/api/v1/notices/test", token, "", 409) // there is no address
	signedIn := exchange.ConsoleSession{
		ID: uuid.Must(uuid.NewV7()).String(), Hash: strings.Repeat("a", 64), Name: "ann", Subject: "https://login.example ann", Members: []string{"ann@inbox.test"},
		CreatedAt: time.Now(), SeenAt: time.Now(), ProvenAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour),
	}
	if err := s.Store().CreateConsoleSession(c.Context(), signedIn, 5); err != nil {
		c.Fatal(err)
	}
	c.call("GET", "/api/v1/sessions", token, "", 200)
	c.call("DELETE", "/api/v1/sessions/"+signedIn.ID, token, "", 204)
	c.call("DELETE", "/api/v1/sessions/nothing", token, "", 404)
	c.call("DELETE", "/api/v1/sessions/nothing", token, "", 404)
	for _, path := range []string{"usage", "statistics", "statistics?step=day&since=72h&agent=echo", "dns", "settings", "certificates", "limits", "nodes", "backlog", "erasures", "people/export?person=" + url.QueryEscape(turns[0].Principal)} {
		c.call("GET", "/api/v1/"+path, token, "", 200)
	}
	c.call("POST", "/api/v1/dns", token, "", 200)
	c.call("GET", "/api/v1/statistics?step=year", token, "", 400)
	c.call("POST", "/api/v1/doctor", token, "", 200)
	c.call("GET", "/api/v1/people/export?person=nobody@nowhere.test", token, "", 404)
	c.call("GET", "/api/v1/erasures/nothing", token, "", 404)
	begun, err := s.Store().BeginErasure(c.Context(), store.PersonNames{Principals: []string{"nowhere.test nobody"}}, []string{"hash"}, "operator:test")
	if err != nil {
		c.Fatal(err)
	}
	c.call("GET", "/api/v1/erasures/"+begun.ID, token, "", 200)
	c.call("POST", "/api/v1/people/erase", token, `{"person":"nobody@nowhere.test","dry_run":true}`, 200)
	c.call("POST", "/api/v1/people/erase", token, `{"person":"nobody@nowhere.test"}`, 200)
	c.call("POST", "/api/v1/people/erase", token, `{"person":"nobody"}`, 400)
	for _, path := range []string{
		"turns?limit=5&state=answered&since=1h", "turns?text=hello&agent=echo", "turns?after=0&wait=1s", "threads?until=1h&channel=chat", "threads",
		"deliveries?state=delivered&since=1h", "agents?state=works&kind=echo", "tokens?status=valid&scope=admin", "follows?state=waiting&agent=echo", "people?sender=nobody",
	} {
		c.call("GET", "/api/v1/"+path, token, "", 200)
	}
	for _, path := range []string{"turns?state=lost", "deliveries?state=lost", "agents?state=lost", "tokens?status=lost", "follows?state=lost", "threads?since=x"} {
		c.call("GET", "/api/v1/"+path, token, "", 400)
	}
	c.call("GET", "/api/v1/follows?agent=nobody", token, "", 404)
	c.operatesAgents(token)
	c.call("POST", "/api/v1/turns/"+turns[0].ID+"/retry", token, "", 409)
	c.call("POST", "/api/v1/turns/nothing/retry", token, "", 404)
	c.call("POST", "/api/v1/turns/retry", token, `{"since":"2h","dry_run":true}`, 200)
	c.call("POST", "/api/v1/turns/retry", token, `{"since":"long ago"}`, 400)
	c.fails(turns[0].ID)
	c.call("POST", "/api/v1/turns/"+turns[0].ID+"/retry", token, "", 204)
	c.operatesTools(s, token)
	c.operatesWaiting(s, token)
	c.operatesLists(token)
	c.operatesHeld(token)
	c.operatesTakeovers(s, token)
	c.operatesApprovals(s, token)
	c.operatesRecords(s, token)
	c.operatesReplies(s, token)
	c.operatesNode(token)
	c.operatesMail(s, token)
}

// operatesMail reads kept mail and what reports say.
func (c *traffic) operatesMail(s *inboxtest.Server, token string) {
	c.Helper()
	day := time.Now().UTC().Truncate(24 * time.Hour)
	mail := exchange.IncomingMail{Key: "one", Raw: []byte("From: a@b.example\r\n\r\nHello\r\n"), Mail: exchange.Mail{
		ID: uuid.Must(uuid.NewV7()).String(), Kind: exchange.MailDMARC, Mailbox: "postmaster", From: "a@b.example", To: []string{"postmaster@inbox.test"}, Subject: "Hello",
		ReceivedAt: time.Now(), Size: 30, Proof: "email-dmarc", Evidence: json.RawMessage(`{"spf":{}}`), Text: "Hello", Headers: []exchange.MailHeader{{Name: "From", Value: "a@b.example"}},
		Files: []exchange.MailFile{{Name: "a.pdf", MIME: "application/pdf", Size: 5}},
	}, Report: &exchange.MailReport{Kind: exchange.MailDMARC, ReportID: "1", Domain: "inbox.test", Begins: day, Ends: day.Add(time.Hour), Rows: []exchange.MailReportRow{{Source: "192.0.2.1", Count: 3, Result: "pass"}}}}
	if _, err := s.Store().KeepMail(c.Context(), mail, exchange.MailCharge{}, ""); err != nil {
		c.Fatal(err)
	}

	await.Until(c, "the mail in the index of words", func() bool {
		return len(c.call("GET", "/api/v1/mail?kind=dmarc&mailbox=postmaster&sender=b.example&text=hello&since=1h&until=2100-01-01T00:00:00Z", token, "", 200)["items"].([]any)) == 1
	})
	c.call("GET", "/api/v1/mail?kind=letters", token, "", 400)
	c.call("GET", "/api/v1/mail?since=long+ago", token, "", 400)
	c.call("GET", "/api/v1/mail/"+mail.ID, token, "", 200)
	c.call("GET", "/api/v1/mail/nothing", token, "", 404)
	c.call("GET", "/api/v1/mail/"+mail.ID+"/raw", token, "", 200)
	c.call("GET", "/api/v1/mail/nothing/raw", token, "", 404)
	c.call("POST", "/api/v1/mail/"+mail.ID+"/forward", token, `{"to":"me@far.example"}`, 200)
	c.call("POST", "/api/v1/mail/nothing/forward", token, `{"to":"me@far.example"}`, 404)
	c.call("POST", "/api/v1/mail/"+mail.ID+"/forward", token, `{"to":"nobody"}`, 400)
	for _, path := range []string{"", "/summary"} {
		c.call("GET", "/api/v1/mail/reports"+path+"?kind=dmarc&result=pass&source=192.0.2.1&since=48h&unproven=true", token, "", 200)
		c.call("GET", "/api/v1/mail/reports"+path+"?kind=mail", token, "", 400)
		c.call("GET", "/api/v1/mail/reports"+path+"?unproven=perhaps", token, "", 400)
	}
}

func (c *traffic) operatesTools(s *inboxtest.Server, token string) {
	c.Helper()
	owner := s.Token("customer")
	session := fmt.Sprint(c.call("POST", "/v1/sessions", owner, `{"agent":"keeps"}`, 201)["session_id"])
	for _, end := range []struct{ operation, body string }{{"submit", `{"success":true,"result":{"in_stock":3}}`}, {"cancel", ""}} {
		run := c.call("POST", "/v1/sessions/"+session+"/messages", owner, `{"message":"is there milk?"}`, 202)
		s.Waits(fmt.Sprint(run["run_id"]))
		open := c.call("GET", "/api/v1/tool-requests?status=open&agent=keeps", token, "", 200)["items"].([]any)
		if len(open) != 1 {
			c.Fatalf("%d calls are open: %v", len(open), open)
		}
		id := value.Text(open[0].(map[string]any)["request_id"])
		c.call("GET", "/api/v1/tool-requests/"+id, token, "", 200)
		result := "/api/v1/turns/" + fmt.Sprint(run["run_id"]) + "/result"
		c.call("GET", result+"?run=1", token, "", 200)
		c.call("GET", result+"?run=7", token, "", 404)
		c.call("GET", result+"?run=first", token, "", 400)
		c.call("POST", "/api/v1/tool-requests/"+id+"/"+end.operation, token, end.body, 200)
	}
}

func (c *traffic) operatesLists(token string) {
	c.Helper()
	for _, list := range []string{"blocks", "allows"} {
		c.call("POST", "/api/v1/"+list, token, `{"target":"spam.example","reason":"spam"}`, 200)
		c.call("GET", "/api/v1/"+list, token, "", 200)
		c.call("DELETE", "/api/v1/"+list+"?target=spam.example", token, "", 204)
		c.call("POST", "/api/v1/"+list+"/import?dry_run=true", token, "spam.example\nnot a domain\n", 200, "Content-Type", "text/csv")
	}
}

// operatesHeld decides about messages of guests to an agent that holds them.
func (c *traffic) operatesHeld(token string) {
	c.Helper()
	for _, decision := range []struct{ operation, body string }{{"release", ""}, {"drop", `{"reason":"not our subject"}`}} {
		c.call("POST", "/v1/chat", "", `{"agent":"closed","message":"let me in"}`, 200)
		held := c.call("GET", "/api/v1/held?agent=closed", token, "", 200)["items"].([]any)
		if len(held) != 1 {
			c.Fatalf("%d messages are held: %v", len(held), held)
		}
		at := "/api/v1/held/" + fmt.Sprint(held[0].(map[string]any)["id"]) + "/" + decision.operation
		c.call("POST", at, token, decision.body, 204)
		c.call("POST", at, token, decision.body, 409)
	}
	dropped := c.call("GET", "/api/v1/held?agent=closed&dropped=true", token, "", 200)["items"].([]any)
	if len(dropped) != 1 {
		c.Fatalf("%d messages are dropped: %v", len(dropped), dropped)
	}
	at := "/api/v1/held/" + fmt.Sprint(dropped[0].(map[string]any)["id"]) + "/restore"
	c.call("POST", at, token, "", 204)
	c.call("POST", at, token, "", 409)
	c.call("POST", "/api/v1/held/nothing/release", token, "", 404)
}

// operatesTakeovers writes as an agent in a conversation.
func (c *traffic) operatesTakeovers(s *inboxtest.Server, token string) {
	c.Helper()
	owner := s.Token("patient")
	session := fmt.Sprint(c.call("POST", "/v1/sessions", owner, `{"agent":"echo"}`, 201)["session_id"])
	ask := func() string {
		return fmt.Sprint(c.call("POST", "/v1/sessions/"+session+"/messages", owner, `{"message":"is anybody there?"}`, 202)["run_id"])
	}
	at := "/api/v1/threads/" + session
	c.call("PUT", at+"/takeover", token, "", 404)
	ask()
	c.call("PUT", at+"/takeover?agent=echo&force=perhaps", token, "", 400)
	if readers := c.call("GET", at+"/readers?agent=echo", token, "", 200); readers["messages"] != 1.0 {
		c.Errorf("readers: %v", readers)
	}
	if open := c.call("PUT", at+"/takeover?agent=echo&force=true", token, "", 200); open["agent"] != "echo" {
		c.Errorf("taken over: %v", open)
	}

	run := ask()
	s.Waits(run)
	c.call("GET", at+"/takeover", token, "", 200)
	if found := c.call("GET", "/api/v1/takeovers?agent=echo&status=all&limit=5", token, "", 200)["items"].([]any); len(found) != 1 {
		c.Errorf("%d takeovers: %v", len(found), found)
	}
	for range 2 {
		answered := c.call("POST", at+"/reply", token, `{"text":"A person is."}`, 200, "Idempotency-Key", "k1")
		if answered["turn_id"] != run {
			c.Errorf("answered %v, want %s", answered, run)
		}
	}
	c.call("POST", at+"/reply", token, `{"text":""}`, 400)

	run = ask()
	s.Waits(run)
	c.call("POST", "/api/v1/turns/"+run+"/reply", token, `{"text":"*Still* here.","mime":"text/markdown"}`, 200)
	c.call("POST", "/api/v1/turns/nothing/reply", token, `{"text":"Hello"}`, 404)
	c.call("DELETE", at+"/takeover?note=be+brief&drop=false&force=false", token, "", 200)
	c.call("GET", at+"/takeover", token, "", 404)
	c.call("DELETE", at+"/takeover", token, "", 404)

	before := c.call("GET", "/api/v1/unread", token, "", 200)
	c.call("PUT", at+"/read?agent=echo", token, "", 204)
	c.call("PUT", "/api/v1/threads/nothing/read?agent=echo", token, "", 404)
	if after := c.call("GET", "/api/v1/unread", token, "", 200); after["conversations"] != before["conversations"].(float64)-1 {
		c.Errorf("%v conversations are unread, then %v", before, after)
	}
	c.call("GET", "/api/v1/threads?unread=true&agent=echo&limit=5", token, "", 200)
	c.call("DELETE", fmt.Sprintf("/api/v1/unread?until=%v", before["newest"]), token, "", 204)
	if rest := c.call("GET", "/api/v1/threads?unread=true", token, "", 200)["items"].([]any); len(rest) > 0 {
		c.Errorf("unread: %v", rest)
	}
}

// operatesApprovals decides about answers that are held back.
func (c *traffic) operatesApprovals(s *inboxtest.Server, token string) {
	c.Helper()
	careful := agents.Func(func(context.Context, agents.Turn) iter.Seq2[normalized.Delta, error] {
		return normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text("A draft.")}})
	})
	if err := s.Register(exchange.AgentProfile{Name: "careful"}, careful, agents.Settings{ApproveReplies: agents.ApproveAlways}); err != nil {
		c.Fatal(err)
	}
	owner := s.Token("reader")
	session := fmt.Sprint(c.call("POST", "/v1/sessions", owner, `{"agent":"careful"}`, 201)["session_id"])
	for _, operation := range []string{"approve", "deny"} {
		run := c.call("POST", "/v1/sessions/"+session+"/messages", owner, `{"message":"Hello"}`, 202)
		s.Waits(fmt.Sprint(run["run_id"]))
		open := c.call("GET", "/api/v1/approvals?agent=careful", token, "", 200)["items"].([]any)
		if len(open) != 1 {
			c.Fatalf("%d approvals are open: %v", len(open), open)
		}
		at := "/api/v1/approvals/" + fmt.Sprint(open[0].(map[string]any)["id"])
		c.call("GET", at, token, "", 200)
		edited := c.call("POST", at+"/edit", token, `{"text":"A better answer."}`, 200)
		body := ""
		if operation == "approve" {
			c.call("POST", at+"/approve", token, fmt.Sprintf(`{"digest":%q}`, open[0].(map[string]any)["digest"]), 409)
			body = fmt.Sprintf(`{"digest":%q}`, edited["digest"])
		}
		c.call("POST", at+"/"+operation, token, body, 200)
		c.call("POST", at+"/"+operation, token, body, 409)
	}
}

// operatesRecords lifts what the server keeps about people and their addresses.
func (c *traffic) operatesRecords(s *inboxtest.Server, token string) {
	c.Helper()
	side := func(subject, address string) exchange.LinkSide {
		return exchange.LinkSide{
			Principal: "localhost " + subject, Issuer: "localhost", Subject: subject, Method: identity.MethodEmailDMARC, Address: identity.ProvenAddress(address),
		}
	}
	stop := exchange.ListEntry{
		ID: "019a0000-0000-7000-8000-000000000001", List: exchange.ListStop, Kind: exchange.TargetPrincipal, Target: "localhost mailto:ana@mail.test",
		Agent: "echo", CreatedAt: time.Now(),
	}
	if err := s.Store().InTx(c.Context(), func(tx *store.Tx) error {
		return tx.PutLink(c.Context(), exchange.PersonLink{Agent: "echo", Digest: "shown", LinkedAt: time.Now(), Sides: [2]exchange.LinkSide{
			side("acct:ana@social.test", "@ana@social.test"), side("mailto:ana@mail.test", "@ana@mail.test"),
		}})
	}); err != nil {
		c.Fatal(err)
	}
	if err := s.Store().PutListEntries(c.Context(), stop); err != nil {
		c.Fatal(err)
	}
	if _, err := s.Store().MailFailed(c.Context(), exchange.MailFailure{Address: "gone@mail.test", Kind: exchange.FailureHard, Reason: "550 no such user", DeliveryID: "d", At: time.Now()}); err != nil {
		c.Fatal(err)
	}
	for _, path := range []string{"people", "stops", "mail/suppressed"} {
		c.call("GET", "/api/v1/"+path, token, "", 200)
	}
	c.call("GET", "/api/v1/people/preview?linked=true&person=ana@mail.test", token, "", 200)
	c.call("DELETE", "/api/v1/people?principal="+url.QueryEscape(stop.Target), token, "", 204)
	c.call("DELETE", "/api/v1/stops?agent=echo&target="+url.QueryEscape(stop.Target), token, "", 204)
	c.call("DELETE", "/api/v1/mail/suppressed?address=gone@mail.test", token, "", 204)
	c.call("DELETE", "/api/v1/mail/suppressed?address=gone@mail.test", token, "", 404)
}

// operatesWaiting looks at what waits for the operator, and lets it go on.
func (c *traffic) operatesWaiting(s *inboxtest.Server, token string) {
	c.Helper()
	job := queue.NewJob{ID: "019a0000-0000-7000-8000-000000000002", Kind: "nobody does it", Payload: "x"}
	other := job
	other.ID = "019a0000-0000-7000-8000-000000000003"
	turns, err := s.Store().Turns(c.Context(), exchange.TurnFilter{Agent: "echo", Limit: 50})
	if err != nil {
		c.Fatal(err)
	}
	answered := turns[slices.IndexFunc(turns, func(turn exchange.TurnRecord) bool { return turn.ReplyID != "" })]
	dead := delivery.Record{
		ID: "019a0000-0000-7000-8000-000000000004", TurnID: answered.ID, ReplyID: answered.ReplyID, Agent: "echo", Channel: "email", Key: "mail.test", Address: "ana@mail.test",
		State: delivery.StateDead, Reason: "no way", CreatedAt: time.Now(), UpdatedAt: time.Now(),
	}
	gone := dead
	gone.ID = "019a0000-0000-7000-8000-000000000005"
	demand := policypart.Issuance{
		ID: "019a0000-0000-7000-8000-000000000006", StateHash: "hash", TurnID: answered.ID, Agent: "echo", MessageID: answered.Message.ID, Via: "email",
		Principal: answered.Principal, Kind: policypart.ConsentRequired, Part: policypart.Part{Kind: policypart.ConsentRequired, Message: "May I?"},
		Status: policypart.StatusIssued, IssuedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour), UpdatedAt: time.Now(),
	}
	if err := s.Store().InTx(c.Context(), func(tx *store.Tx) error {
		if err := errors.Join(tx.InsertDelivery(c.Context(), gone), tx.InsertDemand(c.Context(), demand)); err != nil {
			return err
		}
		_, err := tx.OpenBackEnd(c.Context(), pipeline.BackEnd{Agent: "closed", Since: time.Now(), ProbeAt: time.Now().Add(time.Minute), Reason: "no way"}, time.Now())
		return errors.Join(err, tx.EnqueueLeased(c.Context(), job, "me", time.Minute), tx.EnqueueLeased(c.Context(), other, "me", time.Minute), tx.InsertDelivery(c.Context(), dead))
	}); err != nil {
		c.Fatal(err)
	}
	for _, one := range []string{job.ID, other.ID} {
		if err := s.Store().Queue().Settle(c.Context(), queue.Lease{JobID: one, Fence: 1}, queue.Outcome{Kind: queue.Dead, Reason: "no way"}); err != nil {
			c.Fatal(err)
		}
	}
	for _, path := range []string{"waiting", "failed", "failed?agent=echo&channel=chat&since=2h&limit=5", "jobs", "jobs?since=2h", "breakers"} {
		c.call("GET", "/api/v1/"+path, token, "", 200)
	}
	c.call("GET", "/api/v1/failed?since=never", token, "", 400)
	c.call("GET", "/api/v1/deliveries/"+gone.ID, token, "", 200)
	c.call("GET", "/api/v1/deliveries/nothing", token, "", 404)
	c.call("POST", "/api/v1/deliveries/"+gone.ID+"/cancel", token, "", 204)
	c.call("POST", "/api/v1/deliveries/"+gone.ID+"/cancel", token, "", 409)
	c.call("GET", "/api/v1/demands?agent=echo&limit=5", token, "", 200)
	c.call("GET", "/api/v1/demands?before=nothing", token, "", 400)
	for _, list := range []string{"demands", "follows", "mail/suppressed"} { // the cursor was called so
		if status, _, said := s.Read("GET", "/api/v1/"+list+"?after=x", token, ""); status != http.StatusBadRequest || !strings.Contains(said, `is called \"before\" now`) {
			c.Errorf("%s with the old cursor: %d %s", list, status, said)
		}
	}
	c.call("POST", "/api/v1/demands/nothing/withdraw", token, "", 404)
	c.call("POST", "/api/v1/demands/"+demand.ID+"/withdraw", token, "", 204) // no message waits for it any more
	c.call("POST", "/api/v1/demands/"+demand.ID+"/withdraw", token, "", 409)
	c.call("POST", "/api/v1/deliveries/retry", token, `{"since":"2h","channel":"email"}`, 200)
	c.call("POST", "/api/v1/deliveries/nothing/retry", token, "", 404)
	c.call("POST", "/api/v1/jobs/retry", token, `{"since":"2h","dry_run":true}`, 200)
	c.call("POST", "/api/v1/jobs/nothing/retry", token, "", 404)
	c.call("POST", "/api/v1/jobs/"+job.ID+"/retry", token, "", 204)
	c.call("POST", "/api/v1/jobs/"+job.ID+"/retry", token, "", 409)
	c.call("DELETE", "/api/v1/jobs/"+job.ID, token, "", 409)
	c.call("DELETE", "/api/v1/jobs/"+other.ID, token, "", 204)
	c.call("POST", "/api/v1/deliveries/"+dead.ID+"/retry", token, "", 204)
	c.call("DELETE", "/api/v1/breakers?target=closed", token, "", 200)
	c.call("DELETE", "/api/v1/breakers?target=nobody.test", token, "", 404)
	c.call("POST", "/api/v1/agents/echo/chat", token, `{"message":"Hello","continue":true}`, 200)
	c.call("POST", "/api/v1/agents/echo/chat", token, `{"message":"Hello"}`, 200, "Accept", stream)
	c.call("POST", "/api/v1/agents/nobody/chat", token, `{"message":"Hello"}`, 404)
	c.call("POST", "/api/v1/agents/echo/chat", "wrong", `{"message":"Hello"}`, 401)
}

// operatesReplies changes and takes back an answer in the fediverse.
func (c *traffic) operatesReplies(s *inboxtest.Server, token string) {
	c.Helper()
	mention := stranger("mention")
	mention.Message.ID, mention.Message.ReceivedVia, mention.Channel = "https://peer.test/notes/1", normalized.ViaActivityPub, normalized.ViaActivityPub
	mention.Message.RecipientCapabilities.MentionRelay = normalized.MentionRelay{Kind: normalized.RelayAddressing, EnvelopeFields: []string{"to", "cc"}, AlsoInline: true}
	mention.Route = []byte(`{"visibility":"public"}`)
	receipt, err := s.Pipeline().Receive(c.Context(), mention)
	if err != nil {
		c.Fatal(err)
	}
	turn, err := s.Pipeline().Wait(c.Context(), receipt.TurnID)
	if err != nil || turn.State != exchange.StateAnswered {
		c.Fatalf("%+v, %v", turn, err)
	}
	c.call("PUT", "/api/v1/replies/"+turn.ReplyID, token, `{"text":"Hello again","mime":"text/markdown"}`, 204)
	c.call("PUT", "/api/v1/replies/"+turn.ReplyID+"/pin", token, "", 204)
	c.call("DELETE", "/api/v1/replies/"+turn.ReplyID+"/pin", token, "", 204)
	c.call("DELETE", "/api/v1/replies/"+turn.ReplyID, token, "", 204)
	c.call("DELETE", "/api/v1/replies/"+turn.ReplyID, token, "", 409)
	c.call("PUT", "/api/v1/replies/"+turn.ReplyID+"/pin", token, "", 409)
}

// operatesNode asks for what the running server does, and not the database.
func (c *traffic) operatesNode(token string) {
	c.Helper()
	c.call("POST", "/api/v1/reload", token, "", 200)
	c.call("POST", "/api/v1/reload", "wrong", "", 401)
	c.call("POST", "/api/v1/stop", "wrong", "", 401)
	c.call("GET", "/api/v1/pause", token, "", 200)
	c.call("PUT", "/api/v1/pause", token, `{"reason":"the model is wrong"}`, 200)
	c.call("GET", "/api/v1/pause", token, "", 200)
	c.call("DELETE", "/api/v1/pause", token, "", 204)
	c.call("DELETE", "/api/v1/pause", token, "", 404)
	c.call("POST", "/api/v1/actors/echo/key", token, "", 200)
	c.call("POST", "/api/v1/actors/nobody/key", token, "", 404)
	c.call("PUT", "/api/v1/agents/nobody/move", token, `{"target":"@helper@new.example"}`, 404)
	c.call("DELETE", "/api/v1/agents/nobody/move", token, "", 409)
}

// fails makes an ended turn one that failed without a word to its sender.
func (c *traffic) fails(turnID string) {
	c.Helper()
	if err := c.Store().Pipeline().InTx(c.Context(), func(tx pipeline.Tx) error {
		_, err := tx.MoveTurn(c.Context(), pipeline.Move{
			ID: turnID, From: []string{exchange.StateAnswered}, To: exchange.StateFailed, Reason: "plan reply: no way", At: time.Now(),
		})
		return err
	}); err != nil {
		c.Fatal(err)
	}
}
