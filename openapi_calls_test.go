package inbox

import (
	"encoding/json"
	"fmt"

	"inbox/exchange"
	"inbox/internal/webhooksignature"
)

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
	token, _, err := s.server.Operator().Tokens.CreateBridge(c.Context(), "relay", "", exchange.AllBridgeScopes())
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
		handed = c.call("POST", "/v1/connectors/slack/messages", "", body, 200, "X-Inbox-Signature", webhooksignature.Sign(connectorSecret, []byte(body)))
	}
	c.call("POST", "/v1/connectors/slack/messages", "", `{}`, 401)
	run := "/v1/connectors/slack/runs/" + fmt.Sprint(handed["run_id"])
	c.call("GET", run, "", "", 200, "X-Inbox-Signature", webhooksignature.Sign(connectorSecret, []byte(run)))
	c.call("POST", run+"?wait=1s", "", `{}`, 200, "X-Inbox-Signature", webhooksignature.Sign(connectorSecret, []byte(`{}`)))
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
	token, _, err := s.server.Operator().Tokens.CreateTools(c.Context(), "desk", "keeps")
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
	token, _, err := s.server.Operator().Tokens.CreatePull(c.Context(), "laptop", "pulled")
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
