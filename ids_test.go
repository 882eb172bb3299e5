package inbox_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/smtp"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/adapters/email/bounce"
	"inbox/agents/runtime/tool/request"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/queue"
	"inbox/internal/webhooksignature"
	"inbox/normalized"
	"inbox/operator/lookup"
	"inbox/policypart"
)

// memberOfID are the members of answers that hold ids of messages, and of what belongs to them.
var memberOfID = regexp.MustCompile(`^(id|session|session_id|run_id|runId|sessionId|taskId|contextId|messageId|artifactId|event_id|queue_id|native_id|reply_id|thread_id|turn_id|reference)$`)

// numberOfEvent are the numbers of the events of a run of a task, which are none of the server's.
var numberOfEvent = regexp.MustCompile(`^[0-9]$`)

// seen are the ids that a peer or a client saw, and by which way.
type seen map[string]string

// collect takes the ids out of an answer, with those of the events of a stream.
func (s seen) collect(way string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			if text, is := member.(string); is && memberOfID.MatchString(name) && !numberOfEvent.MatchString(text) && text != "" {
				s[text] = way + " (" + name + ")"
			}
			s.collect(way, member)
		}
	case []any:
		for _, one := range value {
			s.collect(way, one)
		}
	}
}

// TestEveryIDIsShown sends a message by every way, collects every id that its sender got, and those that the operator sees of it, and
// shows the message by each of them.
func TestEveryIDIsShown(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "inbox.toml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "[[agents]]\nname = \"echo\"\nkind = \"echo\"\nunverified = \"answer\"\n[[connectors]]\nname = \"slack\"\ndisplay_name = \"Slack\"\ndescription = \"The workspace.\"\n"+
		"type = \"messaging_provider\"\nsecret = %q\nagents = [\"echo\"]\n[[targets]]\nid = \"local\"\nkind = \"agent\"\nagent = \"echo\"\n", inboxtest.ConnectorSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	s := inboxtest.New(t, file, "INBOX_FEDERATION_ALLOW_PRIVATE=true", "INBOX_SMTP_LISTEN=127.0.0.1:0").Serve()

	ids := seen{}
	token := s.Token("customer")
	send := func(way, path, token, body string, header ...string) {
		t.Helper()
		response := s.Open(http.MethodPost, path, token, body, header...)
		ids[response.Header.Get("X-Request-Id")] = way + " (X-Request-Id)"
		if slices.Contains(header, "text/event-stream") {
			for _, event := range inboxtest.Events(response) {
				var data any
				if event.ID != "" {
					ids[event.ID] = way + " (id of an event)"
				}
				if json.Unmarshal([]byte(event.Data), &data) == nil {
					ids.collect(way, data)
				}
			}
			return
		}

		defer response.Body.Close()
		var answer any
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode/100 != 2 {
			t.Fatalf("%s: %d, %v", way, response.StatusCode, err)
		}
		ids.collect(way, answer)
	}

	send("chat", "/v1/chat", token, `{"agent":"echo","message":"hello"}`)
	send("chat with a session of the client", "/v1/chat", token, `{"agent":"echo","message":"hello","session":"my session","run_id":"r1"}`)
	send("chat of a guest", "/v1/chat", "", `{"agent":"echo","message":"hello"}`)
	send("stream", "/v1/chat", token, `{"agent":"echo","message":"hello"}`, "Accept", "text/event-stream")
	send("JSON-RPC chat", "/v1/agent/echo", token, `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"id":"5e3f7a54-0a2c-4d5b-8e2e-0d3f8a9f1c11","message":{"role":"user","parts":[{"type":"text","text":"hello"}]}}}`)
	send("completion", "/v1/chat/completions", token, `{"model":"echo","messages":[{"role":"user","content":"hello"}]}`)
	send("response", "/v1/responses", token, `{"model":"echo","input":"hello"}`)
	send("streamed response", "/v1/responses", token, `{"model":"echo","input":"hello","stream":true}`, "Accept", "text/event-stream")
	send("A2A", "/a2a/echo", token, `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`, "A2A-Version", "1.0")
	send("A2A with a context of the client", "/a2a/echo", token, `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m2","contextId":"my context","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`, "A2A-Version", "1.0")
	const said = `{"text":"hello","external_provider":"slack","external_conversation_id":"C1","external_message_id":"x1","sender_id":"U1","sender_name":"Ana"}`
	send("connector", "/v1/connectors/slack/messages", "", said, "X-Inbox-Signature", webhooksignature.Sign(inboxtest.ConnectorSecret, []byte(said)))
	bridge, _, err := s.Operator().Tokens.CreateBridge(t.Context(), "phone", "", exchange.AllBridgeScopes())
	if err != nil {
		t.Fatal(err)
	}
	send("bridge", "/v1/bridge/send", bridge, `{"agent":"echo","message":"hello","client_id":"phone"}`)
	tasks, _, err := s.Operator().Tokens.CreateTasks(t.Context(), "nightly", "", true)
	if err != nil {
		t.Fatal(err)
	}
	send("task", "/v1/tasks?wait=20s", tasks, `{"task":{"id":"t","instructions":"hello"},"run_id":"run of a task","session_id":"reports"}`)
	admin, _, err := s.Operator().Tokens.CreateAdmin(t.Context(), "boss")
	if err != nil {
		t.Fatal(err)
	}
	send("operator", "/api/v1/agents/echo/chat", admin, `{"message":"hello"}`)
	delete(ids, "t") // the task's own id, which names no run

	mail := "From: Ann <ann@sender.test>\r\nTo: echo@localhost\r\nMessage-ID: <mail-1@sender.test>\r\nDate: Mon, 23 Nov 2026 10:00:00 +0000\r\nSubject: hi\r\n\r\nhello\r\n"
	if err := smtp.SendMail(s.MailAddr(), nil, "ann@sender.test", []string{"echo@localhost"}, []byte(mail)); err != nil {
		t.Fatal(err)
	}
	ids["mail-1@sender.test"], ids["<mail-1@sender.test>"] = "mail", "mail, as its field says it"

	mention := stranger("mention")
	mention.Message.ID, mention.Message.ReceivedVia, mention.Channel = "https://peer.test/notes/1", normalized.ViaActivityPub, normalized.ViaActivityPub
	mention.Message.RecipientCapabilities.MentionRelay = normalized.MentionRelay{Kind: normalized.RelayAddressing, EnvelopeFields: []string{"to", "cc"}, AlsoInline: true}
	mention.Route = []byte(`{"visibility":"public"}`)
	receipt, err := s.Pipeline().Receive(t.Context(), mention)
	if err != nil {
		t.Fatal(err)
	}
	post := "http://localhost:8080/o/" + s.Settled(receipt.TurnID).ReplyID
	for _, address := range []string{mention.Message.ID, post, post + "/activity", post + "/2", "http://localhost:8080/agents/echo#likes/" + s.Settled(receipt.TurnID).ReplyID} {
		ids[address] = "fediverse"
	}
	ids["http://localhost:8080/contexts/"+receipt.TurnID] = "conversation of the fediverse"
	keepRows(t, s, ids, receipt.TurnID)

	for id, way := range maps.Clone(ids) { // what the operator sees of each message leads to it, too
		shown, err := s.Operator().Messages.Show(t.Context(), id)
		if err != nil {
			t.Errorf("%s: %q: %v", way, id, err)
			continue
		}
		s.Settled(shown.Turn.ID)
		if shown, err = s.Operator().Messages.Show(t.Context(), shown.Turn.ID); err != nil {
			t.Fatal(err)
		}
		ids[shown.Turn.ID], ids[shown.Turn.ThreadID] = way+": the turn", way+": the thread"
		for _, delivery := range shown.Deliveries {
			ids[delivery.ID], ids[delivery.NativeID] = way+": a delivery", way+": the message of a delivery"
			_, from := bounce.NewTokens([]byte("another key"), "localhost").ReturnPath(delivery.ID, "echo")
			ids[from] = way + ": a return path"
		}
	}
	for id, way := range ids {
		shown, err := s.Operator().Messages.Show(t.Context(), id)
		if err != nil || shown.Found == "" {
			t.Errorf("%s: %q: found as %q, %v", way, id, shown.Found, err)
		}
		status, _, content := s.Read(http.MethodGet, "/api/v1/turns/"+url.PathEscape(id), admin, "")
		if status != http.StatusOK || !strings.Contains(content, `"id":"`+shown.Turn.ID+`"`) {
			t.Errorf("%s: %q by the API: %d %.200s", way, id, status, content)
		}
	}
	t.Logf("%d ids", len(ids))

	several, err := s.Operator().Messages.Show(t.Context(), "my session")
	if err != nil || several.Found != "session" || len(several.Others) != 0 {
		t.Errorf("a session of one message: %s, %v, %v", several.Found, several.Others, err)
	}
	send("chat again", "/v1/chat", token, `{"agent":"echo","message":"again","session":"my session"}`)
	again, err := s.Operator().Messages.Show(t.Context(), "my session")
	if err != nil || again.Turn.ID <= several.Turn.ID || !slices.Equal(again.Others, []string{several.Turn.ID}) {
		t.Errorf("a session of two messages: %s and %v, %v", again.Turn.ID, again.Others, err)
	}
	for _, nothing := range []string{"", "nothing", "<>", strings.Repeat("x", 5000), "https://localhost/o/nothing", "%", "\x00"} {
		if shown, err := s.Operator().Messages.Show(t.Context(), nothing); err == nil {
			t.Errorf("%.20q leads to %s", nothing, shown.Turn.ID)
		}
	}
}

// keepRows stores what belongs to a turn and has an id of its own.
func keepRows(t *testing.T, s *inboxtest.Server, ids seen, turnID string) {
	t.Helper()
	id := func(way string) string {
		made := uuid.Must(uuid.NewV7()).String()
		ids[made] = way
		return made
	}
	now := time.Now().UTC()
	audit := exchange.AuditRecord{ID: id("audit record"), At: now, Code: "test", TurnID: turnID, Agent: "echo"}
	if err := s.Store().InTx(t.Context(), func(tx *store.Tx) error {
		if err := tx.InsertDispatch(t.Context(), exchange.Dispatch{ID: id("dispatch"), TurnID: turnID, Number: 1, State: exchange.DispatchPending, CreatedAt: now, UpdatedAt: now}); err != nil {
			return err
		}
		if _, err := tx.InsertToolRequest(t.Context(), exchange.ToolRequest{ID: id("tool request"), Agent: "echo", TurnID: turnID, ToolName: "look", Status: request.StatusPending, Request: []byte(`{"request_id":"r","tool_name":"look"}`), CreatedAt: now}); err != nil {
			return err
		}
		if err := tx.InsertDemand(t.Context(), policypart.Issuance{
			ID: id("demand"), StateHash: policypart.HashState("a state of " + turnID), TurnID: turnID, Agent: "echo", Kind: policypart.ConsentRequired,
			Purpose: "message", Status: policypart.StatusIssued, IssuedAt: now, ExpiresAt: now.Add(time.Hour),
		}); err != nil {
			return err
		}
		if err := tx.Audit(t.Context(), audit); err != nil {
			return err
		}
		return tx.Enqueue(t.Context(), queue.NewJob{ID: id("job"), Kind: "nobody does it", Payload: `{"turn":"` + turnID + `"}`})
	}); err != nil {
		t.Fatal(err)
	}
	ids["a state of "+turnID] = "state of a demand"
	ids["http://localhost:8080/policy/a state of "+turnID+"?lang=en"] = "page of a demand"
}

// TestKindsOfIDsAreDocumented: the table of the operator's guide is that of the program.
func TestKindsOfIDsAreDocumented(t *testing.T) {
	guide, err := os.ReadFile("docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	for _, kind := range lookup.Kinds() {
		fmt.Fprintf(&rows, "| %s | %s |\n", kind.Name, kind.From)
	}
	if !strings.Contains(string(guide), rows.String()) {
		t.Errorf("docs/operating.md lacks the rows\n%s", rows.String())
	}
}

// TestEveryRouteTakesEveryIDOfAMessage calls each route of the operator whose path has an id with the run id of a chat, which is none of the
// server's own. A route of a message, or of what belongs to one, finds it.
func TestEveryRouteTakesEveryIDOfAMessage(t *testing.T) {
	t.Parallel()
	ofMessages := map[string]bool{"turn": true, "reply": true, "delivery": true, "demand": true, "approval": true, "request": true, "thread": true}
	ofOthers := map[string]string{
		"agent": "a name", "actor": "a key of the fediverse", "erasure": "of a receipt", "job": "of work that may concern several messages", "mail": "of the mailbox for the operator",
		"session": "of the console", "token": "of a token",
	}
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	content, err := os.ReadFile("docs/openapi.json")
	if err != nil || json.Unmarshal(content, &document) != nil {
		t.Fatal(err)
	}

	s := inboxtest.Start(t)
	customer := s.Token("customer")
	admin, _, err := s.Operator().Tokens.CreateAdmin(t.Context(), "boss")
	if err != nil {
		t.Fatal(err)
	}
	parameter, walked := regexp.MustCompile(`\{([^}]+)\}`), 0
	for path, methods := range document.Paths {
		names := parameter.FindStringSubmatch(path)
		if names == nil || !strings.HasPrefix(path, "/api/v1/") || ofOthers[names[1]] != "" {
			continue
		}
		if !ofMessages[names[1]] {
			t.Errorf("%s: say here of what {%s} is the id", path, names[1])
			continue
		}
		for method := range methods {
			run := fmt.Sprintf("run_%032x", walked)
			walked++
			if status, _, said := s.Read(http.MethodPost, "/v1/chat", customer, fmt.Sprintf(`{"agent":"echo","message":"hello","run_id":%q}`, run)); status != http.StatusOK {
				t.Fatal(status, said)
			}
			shown, err := s.Operator().Messages.Show(t.Context(), run)
			if err != nil {
				t.Fatal(err)
			}
			keepRows(t, s, seen{}, shown.Turn.ID)
			body := `{"text":"hello","success":true,"result":1}`
			if method == "get" || method == "delete" {
				body = ""
			}
			status, _, said := s.Read(strings.ToUpper(method), parameter.ReplaceAllString(path, run), admin, body)
			if status/100 == 5 || status == http.StatusNotFound && (strings.Contains(said, run) || strings.Contains(said, "was accepted here")) {
				t.Errorf("%s %s with %s: %d %.300s", method, path, run, status, said)
			}
		}
	}
	if walked < 20 {
		t.Errorf("only %d routes were walked", walked)
	}
}
