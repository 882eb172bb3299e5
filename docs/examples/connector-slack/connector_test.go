package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/internal/await"
)

// The payloads of the tests are those of the public documentation of both products.
func payload(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(content)
}

func TestHooksBecomeMessages(t *testing.T) {
	mattermost := external{
		Text: "text here", Provider: "mattermost", ConversationID: "kwoknj9nwpypzgzy78wkw516qe/hawos4dqtby53pd64o4a4cmeoo",
		MessageID: "kwoknj9nwpypzgzy78wkw516qe/axdygg1957njfe5pu38saikdho", SenderID: "kwoknj9nwpypzgzy78wkw516qe/rnina9994bde8mua79zqcg5hmo",
		SenderName: "somename", RoomKind: "channel",
	}
	for name, want := range map[string]external{
		"slack.txt": {
			Text: "What is the air-speed velocity of an unladen swallow?", Provider: "slack", ConversationID: "T0001/C2147483705",
			MessageID: "T0001/C2147483705/1355517523.000005", SenderID: "T0001/U2147483697", SenderName: "Steve", RoomKind: "channel",
		},
		"mattermost.txt": mattermost, "mattermost.json": mattermost,
	} {
		contentType := "application/x-www-form-urlencoded"
		if strings.HasSuffix(name, ".json") {
			contentType = "application/json; charset=utf-8"
		}
		said, err := readHook(contentType, payload(t, name))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, said.message()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestOwnPostsAreMarked(t *testing.T) {
	if !(hook{UserID: "USLACKBOT"}).message().FromSelf || (hook{UserID: "U1"}).message().FromSelf {
		t.Error("posts of webhooks are not told from those of people")
	}
}

// rig is a connector between a server and a messenger that note what they get.
func rig(t *testing.T, status int) (relay *httptest.Server, handed, posted chan []byte) {
	t.Helper()
	handed, posted = make(chan []byte, 8), make(chan []byte, 8)
	note := func(into chan []byte) *httptest.Server {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if into == handed && !verifies("secret", body, r.Header.Get("X-Inbox-Signature")) {
				t.Error("a message is not signed")
			}
			into <- body
			w.WriteHeader(status)
		}))
		t.Cleanup(server.Close)
		return server
	}
	c := &connector{inbox: note(handed).URL, secret: "secret", token: "XXXXXXXXXXXXXXXXXX", post: note(posted).URL, client: http.DefaultClient}
	relay = httptest.NewServer(c.routes())
	t.Cleanup(relay.Close)
	return relay, handed, posted
}

func send(t *testing.T, url, contentType, signature string, body []byte) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("X-Inbox-Signature", signature)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

func TestMessagesAreHandedIn(t *testing.T) {
	relay, handed, _ := rig(t, http.StatusAccepted)
	const form = "application/x-www-form-urlencoded"
	if status := send(t, relay.URL+"/hook", form, "", payload(t, "slack.txt")); status != http.StatusOK {
		t.Fatalf("answered %d", status)
	}
	var message external
	if err := json.Unmarshal(await.Receive(t, handed, "the message at the server"), &message); err != nil || message.SenderID != "T0001/U2147483697" {
		t.Errorf("handed in %+v, %v", message, err)
	}
	forged := bytes.Replace(payload(t, "slack.txt"), []byte("XXX"), []byte("YYY"), 1)
	if status := send(t, relay.URL+"/hook", form, "", forged); status != http.StatusUnauthorized {
		t.Errorf("a wrong token is answered %d", status)
	}
	if status := send(t, relay.URL+"/hook", form, "", []byte("x=y")); status != http.StatusBadRequest {
		t.Errorf("nonsense is answered %d", status)
	}
}

func TestAnswersArePostedOnce(t *testing.T) {
	relay, _, posts := rig(t, http.StatusOK)
	body := []byte(`{"queue_id":"bridge_1","content":"24 miles an hour","metadata":{"external_conversation_id":"T0001/C1"}}`)
	for range 3 {
		if status := send(t, relay.URL+"/answers", "application/json", "sha256=00, "+sign("secret", body), body); status != http.StatusOK {
			t.Fatalf("answered %d", status)
		}
	}
	if got, want := string(await.Receive(t, posts, "the post")), `{"channel":"C1","text":"24 miles an hour"}`; got != want {
		t.Errorf("posted %s, want %s", got, want)
	}
	if len(posts) > 0 {
		t.Error("the answer was posted again")
	}
	if status := send(t, relay.URL+"/answers", "application/json", sign("other", body), body); status != http.StatusUnauthorized {
		t.Errorf("a wrong signature is answered %d", status)
	}
}

func TestAnswersThatWereNotPostedComeAgain(t *testing.T) {
	relay, _, posts := rig(t, http.StatusInternalServerError)
	body := []byte(`{"queue_id":"bridge_1","content":"x"}`)
	for range 2 {
		if status := send(t, relay.URL+"/answers", "application/json", sign("secret", body), body); status != http.StatusBadGateway {
			t.Errorf("answered %d", status)
		}
		await.Receive(t, posts, "the post")
	}
}

// TestPrivateAnswersStayPrivate: others read the room in which the question was.
func TestPrivateAnswersStayPrivate(t *testing.T) {
	of := func(channel string) (a answer) {
		body := `{"content":"Please log in.","metadata":{"external_conversation_id":"T1/` + channel + `/15.1","visibility":"direct","sender_id":"T1/U7",
			"demand":{"url":"https://a.example/policy/x"}}}`
		if err := json.Unmarshal([]byte(body), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}

	method, body := of("C1").call()
	want := map[string]string{"channel": "C1", "user": "U7", "thread_ts": "15.1", "text": "Please log in.\nhttps://a.example/policy/x"}
	if diff := cmp.Diff(want, body); diff != "" || method != "chat.postEphemeral" {
		t.Errorf("by an app: %s %s", method, diff)
	}

	if method, _ := of("D1").call(); method != "chat.postMessage" {
		t.Errorf("in a direct conversation: %s", method)
	}

	body = of("C1").post()
	if diff := cmp.Diff(map[string]string{"channel": "C1", "thread_ts": "15.1", "text": elsewhere}, body); diff != "" {
		t.Errorf("by a webhook: %s", diff)
	}
}

func FuzzReadHook(f *testing.F) {
	f.Add("application/json", []byte(`{"channel_id":"C","user_id":"U","text":"x","trigger_word":"x"}`))
	f.Add("application/x-www-form-urlencoded", []byte("channel_id=C&user_id=U&timestamp=1.2&text=%zz"))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		said, err := readHook(contentType, body)
		if err == nil && said.message().RoomKind != "channel" {
			t.Error("a message without a room")
		}
	})
}
