package inbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/agents"
	"inbox/agents/channel"
	"inbox/exchange"
	"inbox/normalized"
)

const connectorSecret = "a secret that only the tests know"

// bridged is a server with a connector, for tests over the wire.
type bridged struct {
	*testing.T
	server *Server
	config *Config
	calls  chan call // of the connector's callback
}

type call struct {
	header http.Header
	body   map[string]any
}

// newBridged starts a server whose agents are echo, slow (answers when the test says so) and teller (says its history).
func newBridged(t *testing.T, more string) *bridged {
	t.Helper()
	b := &bridged{T: t, calls: make(chan call, 64)}
	callback := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if !channel.VerifySignature(connectorSecret, raw, r.Header.Get("X-Inbox-Signature"), channel.SignatureForm{}) {
			t.Errorf("a callback is not signed: %v", r.Header)
		}
		body := map[string]any{}
		_ = json.Unmarshal(raw, &body)
		b.calls <- call{r.Header, body}
		if r.Header.Get("X-Inbox-Attempt") == "1" && strings.Contains(fmt.Sprint(body["content"]), "again") {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(callback.Close)
	directory := t.TempDir()
	file := filepath.Join(directory, "inbox.toml")
	settings := fmt.Sprintf(`
data_dir = %q
public_url = "http://localhost:8080"
[federation]
allow_private = true
[http]
listen = "127.0.0.1:0"
[smtp]
listen = "off"
[log]
level = "error"
[bridges]
retry = ["100ms", "200ms"]
[[connectors]]
name = "slack"
secret = %q
issuer = "slack-bridge.example"
agents = ["echo"]
callback_url = %q
[[connectors]]
name = "plain"
secret = %q
agents = ["echo"]
[[agents]]
name = "echo"
kind = "echo"
unverified = "answer"
%s`, directory, connectorSecret, callback.URL+"/answers", connectorSecret, more)
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.config, err = LoadConfig(file, nil); err != nil {
		t.Fatal(err)
	}
	b.config.ShutdownGrace = time.Second
	if b.server, err = New(t.Context(), b.config); err != nil {
		t.Fatal(err)
	}
	teller := agents.Func(func(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
		said := []string{}
		for _, one := range turn.Message.History {
			said = append(said, one.Role+"="+normalized.PlainText(one.Parts))
		}
		return normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text("history: " + strings.Join(said, "|"))}})
	})
	stuck := agents.Func(func(ctx context.Context, _ agents.Turn) iter.Seq2[normalized.Delta, error] {
		return func(yield func(normalized.Delta, error) bool) {
			<-ctx.Done()
			yield(normalized.Delta{}, ctx.Err())
		}
	})
	for name, agent := range map[string]agents.Agent{"teller": teller, "stuck": stuck} {
		if err := b.server.Register(exchange.AgentProfile{Name: name}, agent, agents.Settings{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	if err := b.server.Listen(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- b.server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bridged) token(name string, scopes ...string) string {
	b.Helper()
	operator, err := OpenOperator(b.Context(), b.config)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = operator.Close() }()
	if len(scopes) == 0 {
		scopes = exchange.AllBridgeScopes()
	}
	token, _, err := operator.CreateBridgeToken(b.Context(), name, "", scopes)
	if err != nil {
		b.Fatal(err)
	}
	return token
}

// call sends a request and demands a status.
func (b *bridged) call(token, method, path string, body any, want int) map[string]any {
	b.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		b.Fatal(err)
	}
	if raw, is := body.([]byte); is {
		encoded = raw
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	return b.request(method, path, header, encoded, want)
}

func (b *bridged) request(method, path string, header http.Header, body []byte, want int) map[string]any {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), method, "http://"+b.server.HTTPAddr().String()+path, bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	request.Header = header
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		b.Fatal(err)
	}
	if response.StatusCode != want {
		b.Fatalf("%s %s answered %d, want %d: %s", method, path, response.StatusCode, want, raw)
	}
	answer := map[string]any{}
	_ = json.Unmarshal(raw, &answer)
	return answer
}

func (b *bridged) pending(token string, want int) []any {
	b.Helper()
	path := "/v1/bridge/pending"
	if want > 0 {
		path += "?wait=20s"
	}
	items, _ := b.call(token, http.MethodGet, path, nil, http.StatusOK)["items"].([]any)
	if len(items) != want {
		b.Fatalf("%d items wait, want %d: %v", len(items), want, items)
	}
	return items
}

func isTrue(value any) bool { flag, _ := value.(bool); return flag }

func TestBridgeOverTheWire(t *testing.T) {
	b := newBridged(t, "")
	relay, other := b.token("relay"), b.token("other")

	for _, token := range []string{"", "inbox_nonsense", "inbox_" + strings.Repeat("A", 43)} {
		b.call(token, http.MethodGet, "/v1/bridge/pending", nil, http.StatusUnauthorized)
		b.call(token, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "x"}, http.StatusUnauthorized)
	}
	poor := b.token("poor", "ack")
	b.call(poor, http.MethodGet, "/v1/bridge/pending", nil, http.StatusForbidden)
	b.call(poor, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "x"}, http.StatusForbidden)
	b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "nobody", "message": "x"}, http.StatusNotFound)
	b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": " "}, http.StatusBadRequest)
	b.call(relay, http.MethodPost, "/v1/bridge/send", []byte(`{"agent":`), http.StatusBadRequest)
	b.call(relay, http.MethodPost, "/v1/bridge/send", bytes.Repeat([]byte("x"), 1<<20+1), http.StatusRequestEntityTooLarge)

	b.pending(relay, 0)
	first := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "hello", "message_id": "m1", "wait": true}, http.StatusOK)
	if first["status"] != "completed" || !strings.Contains(fmt.Sprint(first["reply"]), "hello") {
		t.Fatalf("the run is %v", first)
	}
	session, queued := first["session_id"].(string), first["queue_id"].(string)
	again := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "hello", "message_id": "m1", "wait": true}, http.StatusOK)
	if !isTrue(again["duplicate"]) || again["run_id"] != first["run_id"] || again["session_id"] != session {
		t.Errorf("the repeat is %v", again)
	}
	item := b.pending(relay, 1)[0].(map[string]any)
	if item["queue_id"] != queued || item["session_id"] != session || item["content"] != first["reply"] || !isTrue(item["completed"]) {
		t.Errorf("the item is %v", item)
	}
	b.pending(other, 0)
	b.call(other, http.MethodGet, "/v1/bridge/items/"+queued, nil, http.StatusNotFound)
	b.call(other, http.MethodPost, "/v1/bridge/items/"+queued+"/ack", nil, http.StatusNotFound)
	if n := b.call(other, http.MethodPost, "/v1/bridge/ack", map[string]any{"queue_ids": []string{queued}}, http.StatusOK)["acked"]; n != 0.0 {
		t.Errorf("another client acknowledged %v", n)
	}
	b.call(relay, http.MethodPost, "/v1/bridge/ack", map[string]any{"client_id": "other", "queue_ids": []string{queued}}, http.StatusNotFound)
	for _, want := range []float64{1, 0} {
		if n := b.call(relay, http.MethodPost, "/v1/bridge/ack", map[string]any{"queue_ids": []string{queued}}, http.StatusOK)["acked"]; n != want {
			t.Errorf("acknowledged %v, want %v", n, want)
		}
	}
	b.pending(relay, 0)

	b.call(other, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "x", "session_id": session}, http.StatusNotFound)
	b.call(other, http.MethodGet, "/v1/runs/"+first["run_id"].(string), nil, http.StatusNotFound)
	if run := b.call(relay, http.MethodGet, "/v1/runs/"+first["run_id"].(string), nil, http.StatusOK); run["status"] != "completed" || run["reply"] != first["reply"] {
		t.Errorf("the run is %v", run)
	}
	events := b.call(relay, http.MethodGet, "/v1/runs/"+first["run_id"].(string)+"/events?limit=1", nil, http.StatusOK)
	if list, _ := events["events"].([]any); len(list) != 1 || !isTrue(events["has_more"]) {
		t.Errorf("events %v", events)
	}
	// one outside conversation is one session
	for i := range 2 {
		run := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{
			"agent": "teller", "message": fmt.Sprint("part ", i), "wait": true,
			"client_context": map[string]any{"external_conversation_id": "C1", "external_message_id": fmt.Sprint("c", i), "sender_id": "U 1"},
		}, http.StatusOK)
		if i == 1 && !strings.Contains(fmt.Sprint(run["reply"]), "user=part 0|assistant=history:") {
			t.Errorf("the second message has the history %v", run["reply"])
		}
	}
	own := b.call(relay, http.MethodPost, "/v1/bridge/queue", map[string]any{"agent": "echo", "content": "note to self", "queue_id": "17"}, http.StatusCreated)
	if own["client_id"] != "relay" {
		t.Errorf("queued %v", own)
	}
	b.call(other, http.MethodPost, "/v1/bridge/queue", map[string]any{"agent": "echo", "content": "mine", "queue_id": "17"}, http.StatusBadRequest)
}

func TestSessionsOverTheWire(t *testing.T) {
	b := newBridged(t, "")
	relay, other := b.token("relay"), b.token("other")
	made := b.call(relay, http.MethodPost, "/v1/sessions", map[string]any{"agent": "echo", "title": "plans"}, http.StatusCreated)
	id := made["session_id"].(string)
	run := b.call(relay, http.MethodPost, "/v1/sessions/"+id+"/messages", map[string]any{"message": "first", "wait": true}, http.StatusOK)
	if run["session_id"] != id {
		t.Errorf("the run is %v", run)
	}
	path := "/v1/sessions/" + id
	for method, body := range map[string]any{http.MethodGet: nil, http.MethodPatch: map[string]any{"title": "x"}, http.MethodDelete: nil} {
		b.call(other, method, path, body, http.StatusNotFound)
		b.call("", method, path, body, http.StatusUnauthorized)
	}
	b.call(other, http.MethodGet, path+"/messages", nil, http.StatusNotFound)
	b.call(other, http.MethodPost, path+"/messages", map[string]any{"message": "x"}, http.StatusNotFound)
	b.call(other, http.MethodGet, path+"/export", nil, http.StatusNotFound)
	b.call(relay, http.MethodPatch, path, map[string]any{"title": "other plans"}, http.StatusOK)
	if got := b.call(relay, http.MethodGet, path, nil, http.StatusOK); got["title"] != "other plans" || got["status"] != "completed" {
		t.Errorf("the session is %v", got)
	}
	messages, _ := b.call(relay, http.MethodGet, path+"/messages", nil, http.StatusOK)["messages"].([]any)
	if len(messages) != 2 || messages[0].(map[string]any)["content"] != "first" {
		t.Errorf("messages %v", messages)
	}
	list, _ := b.call(relay, http.MethodGet, "/v1/sessions", nil, http.StatusOK)["sessions"].([]any)
	if len(list) != 1 {
		t.Errorf("sessions %v", list)
	}
	if list, _ := b.call(other, http.MethodGet, "/v1/sessions", nil, http.StatusOK)["sessions"].([]any); len(list) != 0 {
		t.Errorf("another owner lists %v", list)
	}
	b.call(relay, http.MethodDelete, path, nil, http.StatusOK)
	b.call(relay, http.MethodGet, path, nil, http.StatusNotFound)
	b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "x", "session_id": id}, http.StatusNotFound)
}

func TestRunControlOverTheWire(t *testing.T) {
	b := newBridged(t, "")
	relay, other := b.token("relay"), b.token("other")
	made := b.call(relay, http.MethodPost, "/v1/sessions", map[string]any{"agent": "stuck"}, http.StatusCreated)
	path := "/v1/sessions/" + made["session_id"].(string) + "/messages"
	first := b.call(relay, http.MethodPost, path, map[string]any{"message": "one"}, http.StatusAccepted)
	second := b.call(relay, http.MethodPost, path, map[string]any{"message": "two"}, http.StatusAccepted)
	if first["position"] != 1.0 || second["position"] != 2.0 || second["status"] != "queued" || second["queued_message_id"] == nil {
		t.Errorf("queued %v, %v", first, second)
	}
	run := "/v1/runs/" + first["run_id"].(string)
	b.call(other, http.MethodPost, run+"/cancel", nil, http.StatusNotFound)
	b.call(relay, http.MethodPost, run+"/cancel", map[string]any{"session_id": "another"}, http.StatusNotFound)
	if got := b.call(relay, http.MethodPost, run+"/cancel", nil, http.StatusOK); got["status"] != "cancelled" || !isTrue(got["cancelled"]) {
		t.Errorf("the cancelled run is %v", got)
	}
	if got := b.call(relay, http.MethodGet, run, nil, http.StatusOK); got["status"] != "cancelled" {
		t.Errorf("the run is %v", got)
	}
	b.call(relay, http.MethodPost, "/v1/runs/"+second["run_id"].(string)+"/stop", nil, http.StatusOK)
	done := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "x", "wait": true}, http.StatusOK)
	if got := b.call(relay, http.MethodPost, "/v1/runs/"+done["run_id"].(string)+"/cancel", nil, http.StatusOK); got["status"] != "completed" || isTrue(got["cancelled"]) {
		t.Errorf("a run that has ended: %v", got)
	}
}

func (b *bridged) relayed(connector, id, text, wait string, want int) map[string]any {
	b.Helper()
	body, err := json.Marshal(map[string]any{
		"text": text, "external_provider": "slack", "external_conversation_id": "C1", "external_message_id": id, "sender_id": "T1/U1", "room_kind": "channel",
	})
	if err != nil {
		b.Fatal(err)
	}
	header := http.Header{"Content-Type": {"application/json"}, "X-Inbox-Signature": {channel.Sign(connectorSecret, body)}}
	return b.request(http.MethodPost, "/v1/connectors/"+connector+"/messages"+wait, header, body, want)
}

func TestConnectorOverTheWire(t *testing.T) {
	b := newBridged(t, "")
	wrong := http.Header{"X-Inbox-Signature": {"sha256=" + strings.Repeat("0", 64)}}
	for _, path := range []string{"/v1/connectors/slack/messages", "/v1/connectors/unknown/messages"} {
		b.request(http.MethodPost, path, wrong, []byte(`{"text":"x"}`), http.StatusUnauthorized)
		b.request(http.MethodPost, path, http.Header{}, []byte(`{"text":"x","evidence":[]}`), http.StatusUnauthorized)
	}
	for i := range 20 {
		taken := b.relayed("slack", "m1", "hello there", "", map[bool]int{true: http.StatusAccepted, false: http.StatusOK}[i == 0])
		if taken["reply"] != nil || i > 0 && !isTrue(taken["duplicate"]) {
			t.Errorf("copy %d: %v", i, taken)
		}
		if i == 0 {
			answer := <-b.calls
			if content := fmt.Sprint(answer.body["content"]); !strings.Contains(content, "hello there") || answer.header.Get("X-Inbox-Delivery") == "" {
				t.Errorf("the callback got %v", answer.body)
			}
			about, _ := answer.body["metadata"].(map[string]any)
			if about["external_message_id"] != "m1" || about["external_conversation_id"] != "C1" {
				t.Errorf("the answer is about %v", about)
			}
			b.settledRun(taken)
		}
	}
	b.relayed("slack", "m2", "once again", "", http.StatusAccepted)
	attempts := []string{(<-b.calls).header.Get("X-Inbox-Attempt"), (<-b.calls).header.Get("X-Inbox-Attempt")}
	if attempts[0] != "1" || attempts[1] != "2" {
		t.Errorf("attempts %v", attempts)
	}
	select {
	case extra := <-b.calls:
		t.Errorf("one call too many: %v", extra.body)
	default:
	}
	if taken := b.relayed("plain", "m1", "waited for", "?wait=20s", http.StatusOK); !strings.Contains(fmt.Sprint(taken["reply"]), "waited for") {
		t.Errorf("who waits gets %v", taken)
	}
	self, _ := json.Marshal(map[string]any{"text": "mine", "from_self": true})
	header := http.Header{"X-Hub-Signature-256": {channel.Sign(connectorSecret, self)}}
	if skipped := b.request(http.MethodPost, "/v1/connectors/slack/messages", header, self, http.StatusOK); skipped["status"] != "skipped" {
		t.Errorf("a message of its own: %v", skipped)
	}
}

// settledRun waits until the turn of an answer ended, so that copies find it so.
func (b *bridged) settledRun(taken map[string]any) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
	defer cancel()
	if _, err := b.server.pipeline.Wait(ctx, taken["run_id"].(string)); err != nil {
		b.Fatal(err)
	}
}

// TestChatsAreSessions finds the conversation of a chat again, by the token with which it was held, and by no other.
func TestChatsAreSessions(t *testing.T) {
	b := newBridged(t, "")
	operator := b.server.operator()
	var tokens []string
	for _, name := range []string{"ann", "ben"} {
		token, _, err := operator.CreateToken(t.Context(), name, "")
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	for i := range 2 {
		answer := b.call(tokens[0], http.MethodPost, "/v1/chat", map[string]any{"agent": "echo", "message": fmt.Sprint("line ", i), "session_id": "my-session"}, http.StatusOK)
		if answer["session_id"] != "my-session" {
			t.Fatalf("the chat is %v", answer)
		}
	}
	list, _ := b.call(tokens[0], http.MethodGet, "/v1/sessions", nil, http.StatusOK)["sessions"].([]any)
	if len(list) != 1 || list[0].(map[string]any)["title"] != "line 0" {
		t.Errorf("sessions %v", list)
	}
	messages, _ := b.call(tokens[0], http.MethodGet, "/v1/sessions/my-session/messages", nil, http.StatusOK)["messages"].([]any)
	if len(messages) != 4 {
		t.Errorf("messages %v", messages)
	}
	b.call(tokens[1], http.MethodGet, "/v1/sessions/my-session", nil, http.StatusNotFound)
	run := b.call(tokens[0], http.MethodPost, "/v1/sessions/my-session/messages", map[string]any{"message": "by the session", "wait": true}, http.StatusOK)
	if run["reply"] != "by the session" {
		t.Errorf("the run is %v", run)
	}
	b.call(tokens[1], http.MethodGet, "/v1/runs/"+run["run_id"].(string), nil, http.StatusNotFound)
	b.call(tokens[0], http.MethodGet, "/v1/bridge/pending", nil, http.StatusUnauthorized)
}

// TestImportOverTheWire brings in what seed messages say and finds it again, in the history of the agent too.
func TestImportOverTheWire(t *testing.T) {
	b := newBridged(t, "")
	relay, other := b.token("relay"), b.token("other")
	raw := `{"agent":"teller","title":"old talk","connector_id":"tg","external_conversation_id":"42","messages":[
		{"type":"user_message","content":"List <all> tables","timestamp":"2024-01-15T10:30:00Z","metadata":{"n":1.0,"big":12345678901234567890}},
		{"type":"action","tool":"list_tables","args":{"schema":"public"},"agent_key":"analyzer","timestamp":"2024-01-15T10:30:01Z"},
		{"type":"observation","content":{"count":3},"agent_key":"analyzer"},
		{"type":"final","content":{"operation":"display_message","payload":{"message":"x"},"human_readable_summary":"Found 3"},"agent_key":"analyzer"},
		{"type":"synthesis","content":"all","phase_id":1,"from_manager":"m","is_global":true,"odd":[null]}]}`
	done := b.call(relay, http.MethodPost, "/v1/import", []byte(raw), http.StatusOK)
	session := done["sessions"].([]any)[0].(map[string]any)
	id := session["session_id"].(string)
	exported := b.export(relay, id)
	var want, got struct{ Messages []json.RawMessage }
	for text, into := range map[string]any{raw: &want, exported: &got} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	for i := range want.Messages {
		var flat bytes.Buffer
		if err := json.Compact(&flat, want.Messages[i]); err != nil || flat.String() != string(got.Messages[i]) {
			t.Errorf("message %d came back as %s, want %s", i, got.Messages[i], flat.String())
		}
	}
	b.call(relay, http.MethodPost, "/v1/import", []byte(exported), http.StatusOK)
	if again := b.export(relay, id); again != exported {
		t.Errorf("exported again:\n%s\nwant\n%s", again, exported)
	}
	b.call(relay, http.MethodPost, "/v1/import", []byte(strings.Replace(exported, "Found 3", "Found 4", 1)), http.StatusConflict)
	b.call(relay, http.MethodPost, "/v1/import", []byte(`{"agent":"teller","messages":[{"type":"unheard","content":"x"}]}`), http.StatusBadRequest)
	b.call(relay, http.MethodPost, "/v1/import", []byte(`{"agent":"nobody","messages":[]}`), http.StatusNotFound)
	b.call(other, http.MethodGet, "/v1/sessions/"+id+"/export", nil, http.StatusNotFound)
	key := channel.NewSessionKey("old-bot", "7", "teller").Imported()
	b.call(other, http.MethodPost, "/v1/import", map[string]any{"session_map": map[string]string{key: id}}, http.StatusNotFound)
	b.call(relay, http.MethodPost, "/v1/import", map[string]any{"session_map": map[string]string{key: id}}, http.StatusOK)
	for connector, conversation := range map[string]string{"old_bot": "7", "tg": "42"} {
		run := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{
			"agent": "teller", "message": "go on", "connector_id": connector, "external_conversation_id": conversation, "wait": true,
		}, http.StatusOK)
		reply := fmt.Sprint(run["reply"])
		if run["session_id"] != id || !strings.HasPrefix(reply, "history: user=List <all> tables|assistant=[called list_tables") || !strings.Contains(reply, "Found 3") {
			t.Errorf("%s goes on with %v", connector, run)
		}
	}
}

// export gives the bytes of an exported session.
func (b *bridged) export(token, session string) string {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+b.server.HTTPAddr().String()+"/v1/sessions/"+session+"/export", nil)
	if err != nil {
		b.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		b.Fatalf("export answered %d, %v: %s", response.StatusCode, err, body)
	}
	return string(body)
}
