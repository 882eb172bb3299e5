package inbox_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/smtp"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/internal/webhooksignature"
)

// taken is a document as a webhook agent gets it, read without the types of this server.
type taken struct {
	Message struct {
		ID         string
		ThreadID   string `json:"thread_id"`
		InReplyTo  string `json:"in_reply_to"`
		Recipient  string
		ReceivedAt string `json:"received_at"`
		Via        string `json:"received_via"`
		Sender     struct {
			Address    string
			Name       string `json:"display_name"`
			Method     string `json:"auth_method"`
			Verified   bool
			Key        string `json:"key_id"`
			Identities []struct{ Subject, Issuer string }
			Profile    struct{ Extensions map[string]json.RawMessage }
		}
		Parts   []takenPart
		History []struct {
			Role, Timestamp string
			Sender          struct{ Address string }
			Parts           []takenPart
		}
		Capabilities struct {
			Relay struct{ Kind string } `json:"mention_relay"`
		} `json:"recipient_capabilities"`
		Raw struct{ Ref, URL string }
	}
	Breakpoint *int `json:"history_cache_breakpoint_after"`
}

type takenPart struct {
	Kind, MIME, Content, URL, Title, Name, ID string
	Bytes                                     struct {
		Kind, URL, Digest, Algo string
		Data                    string `json:"data_base64"`
	} `json:"bytes_ref"`
	Args, Result json.RawMessage
}

// listening is a server whose agents are webhooks: "hears" keeps what it gets, "asks" answers with a question.
type listening struct {
	*inboxtest.Server

	token string
	heard chan taken
}

func newListening(t *testing.T) *listening {
	t.Helper()
	l := &listening{heard: make(chan taken, 16)}
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var document taken
		if err := json.NewDecoder(r.Body).Decode(&document); err != nil {
			t.Error(err)
		}
		status := "completed"
		if r.URL.Path == "/asks" {
			status = "input_required"
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"in_reply_to":%q,"thread_id":%q,"status":%q,"parts":[{"kind":"text","mime":"text/plain","content":"heard"}]}`, document.Message.ID, document.Message.ThreadID, status)
		l.heard <- document
	}))
	t.Cleanup(agent.Close)

	var tables strings.Builder
	for name, more := range map[string]string{
		"hears": "unverified = \"answer\"\n", "asks": "unverified = \"answer\"\n",
		"guarded": "unverified = \"answer\"\naccess = \"rules\"\n[[agents.rules]]\neffect = \"allow\"\npurposes = [\"message\"]\naddress = \"@ann@sender.test\"\n",
	} {
		fmt.Fprintf(&tables, "[[agents]]\nname = %q\nkind = \"webhook\"\n%s[agents.webhook]\nurl = %q\nsecret = \"a-secret-of-the-webhook-agent\"\n", name, more, agent.URL+"/"+name)
	}
	fmt.Fprintf(&tables, "[[connectors]]\nname = \"slack\"\ndisplay_name = \"Slack\"\ndescription = \"The workspace.\"\nlogo = \"https://files.example/slack.png\"\n"+
		"type = \"messaging_provider\"\nsecret = %q\nagents = [\"hears\"]\n[[connectors]]\nname = \"matrix-relay\"\nsecret = %q\nagents = [\"hears\"]\nbridge = \"relay\"\n",
		inboxtest.ConnectorSecret, inboxtest.ConnectorSecret)
	file := filepath.Join(t.TempDir(), "inbox.toml")
	if err := os.WriteFile(file, []byte(tables.String()), 0o600); err != nil {
		t.Fatal(err)
	}

	l.Server = inboxtest.New(t, file, "INBOX_FEDERATION_ALLOW_PRIVATE=true", "INBOX_SMTP_LISTEN=127.0.0.1:0").Serve()
	l.token = l.Token("customer")
	return l
}

func (l *listening) next() taken {
	l.Helper()
	return await.Receive(l, l.heard, "a message for the agent")
}

// send posts a document with the customer's token.
func (l *listening) send(path, body string, header ...string) map[string]any {
	l.Helper()
	status, _, content := l.Read(http.MethodPost, path, l.token, body, header...)
	var answer map[string]any
	if err := json.Unmarshal([]byte(content), &answer); err != nil || status/100 != 2 {
		l.Fatalf("%s: %d %s", path, status, content)
	}
	return answer
}

// open reads what an address opens, on whatever host the server says that it is.
func (l *listening) open(address string) string {
	l.Helper()
	_, path, _ := strings.Cut(strings.TrimPrefix(address, "http://"), "/")
	status, _, content := l.Read(http.MethodGet, "/"+path, "", "")
	if status != http.StatusOK {
		l.Fatalf("%s: %d %s", address, status, content)
	}
	return content
}

// TestMessageContractOnEveryWay sends one message by chat, A2A, a connector and mail, and reads what a webhook agent gets.
//
//contract:shows channels-2 channels-38 channels-41 channels-42 channels-43 message-1 message-2 message-4 message-5 message-6 message-7
//contract:shows message-8 message-9 message-11 message-13 message-17 message-34 message-41 message-42 message-54 message-56
func TestMessageContractOnEveryWay(t *testing.T) {
	t.Parallel()
	l := newListening(t)
	const sent = `{"text":"hello","external_provider":"slack","external_conversation_id":"C1","external_message_id":"x1","sender_id":"U1","sender_name":"Ana","room_kind":"group",` +
		`"attachments":[{"name":"a.txt","mime":"text/plain","bytes":"aGk="}],"host_context":{"opaque_id":"7"}}`

	for name, c := range map[string]struct {
		send                 func()
		id, via, relay, from string
		proven               bool
	}{
		"chat": {send: func() { l.send("/v1/chat", `{"agent":"hears","message":"hello","run_id":"r1"}`) }, id: "r1", via: "a2a", relay: "none", from: "@customer@", proven: true},
		"a2a": {send: func() {
			l.send("/a2a/hears", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`, "A2A-Version", "1.0")
		}, id: "m1", via: "a2a", relay: "none", from: "@customer@", proven: true},
		"connector": {send: func() {
			l.send("/v1/connectors/slack/messages", sent, "X-Inbox-Signature", webhooksignature.Sign(inboxtest.ConnectorSecret, []byte(sent)))
		}, id: "x1", via: "a2a", relay: "none", from: "@", proven: true},
		"mail": {send: func() {
			mail := "From: Ann <ann@sender.test>\r\nTo: hears@localhost\r\nMessage-ID: <mail-1@sender.test>\r\nDate: Mon, 23 Nov 2026 10:00:00 +0000\r\nSubject: hi\r\n\r\nhello\r\n"
			if err := smtp.SendMail(l.MailAddr(), nil, "ann@sender.test", []string{"hears@localhost"}, []byte(mail)); err != nil {
				t.Error(err)
			}
		}, id: "mail-1@sender.test", via: "email", relay: "recipient-field", from: "@ann@sender.test"},
	} {
		c.send()
		got := l.next().Message
		if !strings.Contains(got.ID, c.id) || got.ThreadID == "" || got.Via != c.via || !strings.HasPrefix(got.Recipient, "@hears@localhost") {
			t.Errorf("%s: id %q, thread %q, via %q, for %q", name, got.ID, got.ThreadID, got.Via, got.Recipient)
		}
		if !strings.HasPrefix(got.Sender.Address, c.from) || got.Sender.Verified != c.proven || (got.Sender.Method == "none") == c.proven {
			t.Errorf("%s: the sender is %+v", name, got.Sender)
		}
		if at, err := time.Parse("2006-01-02T15:04:05.000Z", got.ReceivedAt); err != nil || time.Since(at).Abs() > time.Hour {
			t.Errorf("%s: received at %q, %v", name, got.ReceivedAt, err)
		}
		if got.Capabilities.Relay.Kind != c.relay {
			t.Errorf("%s: mentions travel by %q, want %q", name, got.Capabilities.Relay.Kind, c.relay)
		}
		if len(got.Parts) == 0 || got.Parts[0].Kind != "text" || !strings.HasPrefix(got.Parts[0].MIME, "text/") || !strings.Contains(got.Parts[0].Content, "hello") {
			t.Errorf("%s: parts %+v", name, got.Parts)
		}
		if original := l.open(got.Raw.URL); !strings.Contains(original, "hello") || !strings.HasPrefix(got.Raw.Ref, "sha256:") {
			t.Errorf("%s: the original %s is %q", name, got.Raw.Ref, original)
		}

		switch name {
		case "connector":
			said := string(got.Sender.Profile.Extensions["dev.inbox.bridge"])
			for _, want := range []string{`"room_kind":"group"`, `"external_message_id":"x1"`, `"external_conversation_id":"C1"`, `"connector_id":"slack"`} {
				if !strings.Contains(said, want) {
					t.Errorf("the connector's context %s lacks %s", said, want)
				}
			}
			if len(got.Parts) != 2 || got.Parts[1].Kind != "file" || got.Parts[1].Name != "a.txt" {
				t.Errorf("the connector's file: %+v", got.Parts)
			}
		case "a2a":
			if len(got.Sender.Identities) != 1 || got.Sender.Key == "" {
				t.Errorf("the evidence of A2A: %+v", got.Sender)
			}
		}
	}
}

// TestMessageContractOfParts sends every kind of part over A2A, and a message that has none.
//
//contract:shows message-18 message-19 message-24 message-25 message-26 message-55
func TestMessageContractOfParts(t *testing.T) {
	t.Parallel()
	l := newListening(t)
	large := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("large ", 60_000)))
	body := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[` +
		`{"text":"**see**","mediaType":"text/markdown"},{"raw":"aGVsbG8=","mediaType":"text/plain","filename":"small.txt"},` +
		`{"raw":"` + large + `","mediaType":"text/plain","filename":"large.txt"},{"url":"https://files.example/f.png","mediaType":"image/png","filename":"f.png"},` +
		`{"url":"https://pages.example/p","mediaType":"text/html"}]}}}`
	l.send("/a2a/hears", body, "A2A-Version", "1.0")

	parts := l.next().Message.Parts
	if len(parts) != 5 {
		t.Fatalf("parts %+v", parts)
	}
	if parts[0].MIME != "text/markdown" || parts[0].Content != "**see**" {
		t.Errorf("the text is %+v", parts[0])
	}
	if small := parts[1]; small.Kind != "file" || small.Name != "small.txt" || small.Bytes.Kind != "inline" || small.Bytes.Data != "aGVsbG8=" {
		t.Errorf("the small file is %+v", small)
	}
	if stored := parts[2]; stored.Bytes.Kind != "content_addressed" || stored.Bytes.Algo != "sha256" || len(stored.Bytes.Digest) != 64 || len(l.open(stored.Bytes.URL)) != 360_000 {
		t.Errorf("the large file is %+v", stored)
	}
	if far := parts[3]; far.Kind != "file" || far.Bytes.Kind != "url" || far.Bytes.URL != "https://files.example/f.png" {
		t.Errorf("the file elsewhere is %+v", far)
	}
	if link := parts[4]; link.Kind != "link" || link.URL != "https://pages.example/p" {
		t.Errorf("the link is %+v", link)
	}

	for _, empty := range []string{`[]`, `[{"text":"  "}]`} {
		body := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m2","role":"ROLE_USER","parts":` + empty + `}}}`
		status, _, content := l.Read(http.MethodPost, "/a2a/hears", l.token, body, "A2A-Version", "1.0")
		if !strings.Contains(content, "-32602") || len(l.heard) != 0 {
			t.Errorf("parts %s: %d %s", empty, status, content)
		}
	}
}

// TestMessageContractOfHistory talks often enough that the window moves, and reads what the agent gets the last time.
//
//contract:shows message-27 message-28 message-29 message-30 message-31
func TestMessageContractOfHistory(t *testing.T) {
	t.Parallel()
	l := newListening(t)
	var last taken
	for i := range 18 {
		l.send("/v1/chat", fmt.Sprintf(`{"agent":"hears","session_id":"s1","message":"number %d"}`, i))
		last = l.next()
	}

	history := last.Message.History
	if len(history) != 14 { // of 34 turns the head of 2, and of the window of 20 what is left after it moved by 10 twice
		t.Fatalf("%d turns of history", len(history))
	}
	if history[0].Parts[0].Content != "number 0" || history[len(history)-2].Parts[0].Content != "number 16" {
		t.Errorf("the history begins with %+v and ends with %+v", history[0], history[len(history)-2])
	}
	before := ""
	for i, one := range history {
		if want := []string{"user", "assistant"}[i%2]; one.Role != want || one.Sender.Address == "" || one.Timestamp < before {
			t.Errorf("turn %d is %+v after %s", i, one, before)
		}
		before = one.Timestamp
	}
	if last.Breakpoint == nil || *last.Breakpoint < 1 || *last.Breakpoint >= len(history) {
		t.Errorf("the breakpoint is %v", last.Breakpoint)
	}
}

// TestMessageContractOfParents continues a task that asked: the second message names what it answers.
//
//contract:shows message-3 message-44 message-47
func TestMessageContractOfParents(t *testing.T) {
	t.Parallel()
	l := newListening(t)
	answer := l.send("/a2a/asks", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","contextId":"c1","parts":[{"text":"buy"}]}}}`, "A2A-Version", "1.0")
	first := l.next().Message
	task := answer["result"].(map[string]any)["task"].(map[string]any)
	l.send("/a2a/asks", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m2","taskId":%q,"role":"ROLE_USER","parts":[{"text":"this one"}]}}}`, task["id"]), "A2A-Version", "1.0")
	second := l.next().Message

	status, _ := task["status"].(map[string]any)
	question, _ := status["message"].(map[string]any)
	if before, _ := question["messageId"].(string); before == "" || second.InReplyTo != before {
		t.Errorf("the parent is %q, want the message before, %q", second.InReplyTo, before)
	}
	l.send("/a2a/asks", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m3","contextId":"c1","role":"ROLE_USER","parts":[{"text":"another"}]}}}`, "A2A-Version", "1.0")
	if third := l.next().Message; third.InReplyTo == "" || third.InReplyTo == second.InReplyTo || third.ThreadID != first.ThreadID {
		t.Errorf("a further message of the context has the parent %q after %q", third.InReplyTo, second.InReplyTo)
	}
	if first.InReplyTo != "" || second.ThreadID != first.ThreadID || !exchange.IsConversationID(first.ThreadID) {
		t.Errorf("the first has the thread %q, the second %q and the parent %q", first.ThreadID, second.ThreadID, second.InReplyTo)
	}
}

// TestMessageContractOfAccess: an agent that a rule opens for one address hears no one who merely states that address, as sender, name or
// context.
//
//contract:shows message-14 message-16 channels-40
func TestMessageContractOfAccess(t *testing.T) {
	t.Parallel()
	l := newListening(t)
	for name, send := range map[string]func() (status string){
		"mail without a proof": func() string {
			mail := "From: Ann <ann@sender.test>\r\nTo: guarded@localhost\r\nMessage-ID: <forged@sender.test>\r\nSubject: hi\r\n\r\nhello\r\n"
			return fmt.Sprint(smtp.SendMail(l.MailAddr(), nil, "ann@sender.test", []string{"guarded@localhost"}, []byte(mail)))
		},
		"a guest who says so": func() string {
			status, _, _ := l.Read(http.MethodPost, "/v1/chat", "", `{"agent":"guarded","message":"hello","client_context":{"sender_id":"ann@sender.test","username":"ann","provider_subject":"@ann@sender.test"}}`)
			return fmt.Sprint(status)
		},
		"a customer who says so": func() string {
			status, _, _ := l.Read(http.MethodPost, "/v1/chat", l.token, `{"agent":"guarded","message":"hello","principal":{"user_id":1},"client_context":{"provider_subject":"@ann@sender.test"}}`)
			return fmt.Sprint(status)
		},
	} {
		if status := send(); !strings.HasPrefix(status, "403") && !strings.HasPrefix(status, "550") {
			t.Errorf("%s: %s", name, status)
		}
	}

	l.send("/v1/chat", `{"agent":"hears","message":"and who may is heard"}`)
	if got := l.next().Message; !strings.HasPrefix(got.Recipient, "@hears@") {
		t.Errorf("the guarded agent heard %+v", got)
	}
}

// TestChatContractOverTheWire shows the members of chat that a client sends and reads.
//
//contract:shows channels-17 channels-18 channels-22 channels-33 channels-34 channels-36 channels-39 runtime-31
func TestChatContractOverTheWire(t *testing.T) {
	t.Parallel()
	l := newListening(t)
	answer := l.send("/v1/agent/hears", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"id":"r1","sessionId":"s1","metadata":{"page":"/a"},"message":{"parts":[
		{"type":"text","text":" one "},{"type":"text","text":"hidden","contentType":"context"},{"type":"text","text":"two"}]}}}`)
	task := answer["result"].(map[string]any)
	if task["id"] != "r1" || task["sessionId"] != "s1" || task["status"].(map[string]any)["state"] != "completed" {
		t.Errorf("the task is %v", task)
	}
	got := l.next().Message
	if len(got.Parts) != 1 || got.Parts[0].Content != "one two" || !strings.Contains(string(got.Sender.Profile.Extensions["dev.inbox.chat"]), `"page":"/a"`) {
		t.Errorf("the agent got %+v", got)
	}

	answer = l.send("/v1/chat", `{"agent":"hears","message":"more","session_id":"s1","attachments":[{"name":"a.txt","mimeType":"text/plain","bytes":"aGk="}],
		"client_context":{"host_context":{"opaque_id":"7"}}}`)
	if answer["session_id"] != "s1" || answer["reply"] != "heard" || !isTrue(answer["completed"]) {
		t.Errorf("the answer is %v", answer)
	}
	got = l.next().Message
	if len(got.Parts) != 2 || got.Parts[1].Name != "a.txt" || got.Parts[1].Bytes.Data != "aGk=" || len(got.History) != 2 {
		t.Errorf("the agent got %+v", got)
	}
	if said := string(got.Sender.Profile.Extensions["dev.inbox.chat"]); !strings.Contains(said, `"host_context":{"opaque_id":"7"}`) {
		t.Errorf("the context is %s", said)
	}

	answer = l.send("/v1/agent/asks", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"parts":[{"type":"text","text":"x"}]}}}`)
	l.next()
	if status := answer["result"].(map[string]any)["status"].(map[string]any); status["state"] != "input-required" {
		t.Errorf("a question of the agent is %v", status)
	}
	if answer := l.send("/v1/chat", `{"agent":"asks","message":"x"}`); isTrue(answer["completed"]) {
		t.Errorf("a question of the agent is %v", answer)
	}
	l.next()
}

// TestConnectorsDescribeThemselves: the operator reads what the settings say of each connector, and none of its secrets.
//
//contract:shows channels-29 channels-30
func TestConnectorsDescribeThemselves(t *testing.T) {
	t.Parallel()
	l := newListening(t)
	admin, _, err := l.Operator().Tokens.CreateAdmin(t.Context(), "operator")
	if err != nil {
		t.Fatal(err)
	}

	status, _, body := l.Read(http.MethodGet, "/api/v1/connectors", admin, "")
	const want = `{"items":[` +
		`{"connector_id":"slack","display_name":"Slack","description":"The workspace.","logo":"https://files.example/slack.png","type":"messaging_provider",` +
		`"agents":["hears"],"answers":"wait","credentials":[{"setting":"secret","source":"settings"}]},` +
		`{"connector_id":"matrix-relay","display_name":"matrix-relay","type":"agent_channel","agents":["hears"],"answers":"bridge","credentials":[{"setting":"secret","source":"settings"}]}],"next":""}`
	if status != http.StatusOK || strings.TrimSpace(body) != want {
		t.Errorf("%d %s, want %s", status, body, want)
	}
	if status, _, _ := l.Read(http.MethodGet, "/api/v1/connectors", l.token, ""); status != http.StatusForbidden {
		t.Errorf("a customer reads them: %d", status)
	}
}
