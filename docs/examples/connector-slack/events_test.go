package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/internal/await"
)

// TestSlackSignatures verifies the example of Slack's documentation, and nothing that differs from it.
func TestSlackSignatures(t *testing.T) {
	const secret = "8f742231b10e8888abcd99yyyzzz85a5"
	body := "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA" +
		"&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN" +
		"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	sent := time.Unix(1531420618, 0)
	good := http.Header{
		"X-Slack-Request-Timestamp": {"1531420618"}, "X-Slack-Signature": {"v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"},
	}
	with := func(name, value string) http.Header {
		changed := good.Clone()
		changed.Set(name, value)
		return changed
	}
	for name, c := range map[string]struct {
		secret string
		header http.Header
		body   string
		at     time.Time
		want   bool
	}{
		"the documented one":  {secret, good, body, sent.Add(time.Minute), true},
		"another secret":      {"x", good, body, sent, false},
		"no secret":           {"", good, body, sent, false},
		"another body":        {secret, good, body + " ", sent, false},
		"another time":        {secret, with("X-Slack-Request-Timestamp", "1531420619"), body, sent, false},
		"no time":             {secret, with("X-Slack-Request-Timestamp", ""), body, sent, false},
		"a recording":         {secret, good, body, sent.Add(6 * time.Minute), false},
		"of another version":  {secret, with("X-Slack-Signature", "v1="+good.Get("X-Slack-Signature")[3:]), body, sent, false},
		"without its version": {secret, with("X-Slack-Signature", good.Get("X-Slack-Signature")[3:]), body, sent, false},
	} {
		if got := verifiesSlack(c.secret, c.header, []byte(c.body), c.at); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func read(t *testing.T, text string) (e slackEvent) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEventsBecomeMessages(t *testing.T) {
	mention := string(payload(t, "events.json"))
	want := external{
		Text: "is it <everything> a river should be?", Provider: "slack", ConversationID: "T123ABC456/C123ABC456/1515449522.000016",
		MessageID: "T123ABC456/C123ABC456/1515449522.000016", SenderID: "T123ABC456/U123ABC456", RoomKind: "channel",
	}
	if diff := cmp.Diff(want, read(t, mention).message()); diff != "" {
		t.Error(diff)
	}
	threaded := read(t, strings.Replace(mention, `"ts":`, `"thread_ts": "1515449500.000001", "ts":`, 1)).message()
	if threaded.ConversationID != "T123ABC456/C123ABC456/1515449500.000001" || threaded.MessageID != want.MessageID {
		t.Errorf("in a thread: %+v", threaded)
	}
	direct := read(t, `{"type":"event_callback","team_id":"T1","event":{"type":"message","channel_type":"im","channel":"D1","user":"U1","text":"hi","ts":"1.2"}}`)
	if got := direct.message(); !direct.asks() || got.ConversationID != "T1/D1" || got.RoomKind != "dm" || got.Text != "hi" {
		t.Errorf("a direct message: %+v", got)
	}
	for name, change := range map[string][2]string{
		"its own posts":  {`"user": "U123ABC456"`, `"bot_id": "B1", "user": "U0LAN0Z89"`},
		"an edit":        {`"user": "U123ABC456"`, `"subtype": "message_changed", "user": "U1"`},
		"nobody":         {`"user": "U123ABC456",`, ``},
		"another event":  {`"app_mention"`, `"reaction_added"`},
		"in the channel": {`"app_mention"`, `"message", "channel_type": "channel"`},
		"another type":   {`"event_callback"`, `"app_rate_limited"`},
	} {
		if read(t, strings.Replace(mention, change[0], change[1], 1)).asks() {
			t.Errorf("%s is answered", name)
		}
	}
	if !read(t, mention).asks() {
		t.Error("a mention is not answered")
	}
}

// TestSlackApp lets Slack verify the address, bring one event several times and take the answer into the thread.
func TestSlackApp(t *testing.T) {
	const signing = "signing secret"
	handed, posted := make(chan string, 8), make(chan string, 8)
	refuse := make(chan bool, 1)
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path != "/api/chat.postMessage" {
			handed <- string(body)
			w.WriteHeader(http.StatusAccepted)
			return
		}
		if r.Header.Get("Authorization") != "Bearer xoxb-1" {
			t.Errorf("posted with %q", r.Header.Get("Authorization"))
		}
		posted <- string(body)
		select {
		case <-refuse:
			_, _ = w.Write([]byte(`{"ok":false,"error":"ratelimited"}`))
		default:
			_, _ = w.Write([]byte(`{"ok":true,"ts":"1515449600.000001"}`))
		}
	}))
	t.Cleanup(peer.Close)
	c := &connector{inbox: peer.URL + "/in", secret: "secret", signing: signing, bot: "xoxb-1", api: peer.URL + "/api", client: http.DefaultClient}
	relay := httptest.NewServer(c.routes())
	t.Cleanup(relay.Close)
	event := func(body, secret string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, relay.URL+"/events", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		stamp := fmt.Sprint(time.Now().Unix())
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte("v0:" + stamp + ":" + body))
		request.Header = http.Header{
			"X-Slack-Request-Timestamp": {stamp}, "X-Slack-Signature": {"v0=" + hex.EncodeToString(mac.Sum(nil))},
			"X-Slack-Retry-Num": {"1"}, "X-Slack-Retry-Reason": {"http_timeout"},
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		answer, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(answer)
	}
	if status, answer := event(`{"token":"x","challenge":"3eZbrw1aB10FEMAGAZd4FyFQ","type":"url_verification"}`, signing); status != http.StatusOK || answer != "3eZbrw1aB10FEMAGAZd4FyFQ" {
		t.Errorf("the verification is answered %d %q", status, answer)
	}
	mention := string(payload(t, "events.json"))
	if status, _ := event(mention, "another"); status != http.StatusUnauthorized || len(handed) > 0 {
		t.Errorf("a wrong signature is answered %d", status)
	}
	for range 2 { // a retry is the same message: the server recognises it
		if status, _ := event(mention, signing); status != http.StatusOK {
			t.Errorf("an event is answered %d", status)
		}
		if got := await.Receive(t, handed, "the message at the server"); !strings.Contains(got, `"external_message_id":"T123ABC456/C123ABC456/1515449522.000016"`) {
			t.Errorf("handed in %s", got)
		}
	}
	if status, _ := event(`nonsense`, signing); status != http.StatusBadRequest {
		t.Errorf("nonsense is answered %d", status)
	}
	answer := []byte(`{"queue_id":"bridge_1","content":"yes","metadata":{"external_conversation_id":"T123ABC456/C123ABC456/1515449522.000016"}}`)
	refuse <- true
	for _, want := range []int{http.StatusBadGateway, http.StatusOK} {
		if status := send(t, relay.URL+"/answers", "application/json", sign("secret", answer), answer); status != want {
			t.Errorf("an answer is taken with %d, want %d", status, want)
		}
		if got := await.Receive(t, posted, "the post"); got != `{"channel":"C123ABC456","text":"yes","thread_ts":"1515449522.000016"}` {
			t.Errorf("posted %s", got)
		}
	}
	if status, _ := event(mention, signing); status != http.StatusOK || len(posted) > 0 {
		t.Error("something was posted without an answer")
	}
}
