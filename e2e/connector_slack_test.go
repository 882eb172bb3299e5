package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/internal/await"
	"inbox/internal/children"
)

// runSlackConnector builds the example program and starts it with the settings.
func runSlackConnector(t *testing.T, settings ...string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "connector-slack")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = filepath.Join(examplesDirectory(t), "connector-slack")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, output)
	}
	relay := exec.Command(binary)
	relay.Env = append(os.Environ(), settings...)
	output, err := relay.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := children.Start(relay); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = relay.Process.Kill(); _ = await.Result(t, relay.Wait, "the end of the connector") })
	if firstLine(t, output, "the connector to listen") == "" {
		t.Fatal("the connector did not start")
	}
}

// TestSlackConnector brings an outgoing webhook to an agent and its answer to an incoming one, by the example program.
func TestSlackConnector(t *testing.T) {
	posts := make(chan string, 64)
	hooks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posts <- string(body)
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(hooks.Close)
	address, err := instance.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	const secret = "a secret that only the tests know"
	s := start(t, instance.Settings{More: fmt.Sprintf("[bridges]\nretry = [\"200ms\", \"1s\"]\n[[connectors]]\nname = \"slack\"\nsecret = %q\nagents = [\"echo\"]\ncallback_url = %q\n",
		secret, "http://"+address+"/answers")})
	runSlackConnector(t, "INBOX_URL="+s.URL()+"/v1/connectors/slack/messages", "INBOX_SECRET="+secret,
		"HOOK_TOKEN=XXXXXXXXXXXXXXXXXX", "POST_URL="+hooks.URL, "LISTEN="+address)
	payload, err := os.ReadFile(filepath.Join(examplesDirectory(t), "connector-slack", "testdata", "slack.txt"))
	if err != nil {
		t.Fatal(err)
	}
	hook := func() {
		t.Helper()
		response, err := http.Post("http://"+address+"/hook", "application/x-www-form-urlencoded", bytes.NewReader(bytes.TrimSpace(payload)))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("the hook answered %d\n%s", response.StatusCode, tail(s.Log(), 4096))
		}
	}
	for range 20 {
		hook()
	}
	select {
	case got := <-posts:
		if !strings.Contains(got, "air-speed velocity") || !strings.Contains(got, `"channel":"C2147483705"`) {
			t.Errorf("posted %s", got)
		}
	case <-time.After(patience):
		t.Fatalf("nothing was posted\n%s", tail(s.Log(), 4096))
	}
	s.killed()
	hook()
	eventually(t, "nothing is left to deliver", func() bool {
		left, err := s.Column(t.Context(), "SELECT state FROM deliveries WHERE state <> 'delivered'")
		return err == nil && len(left) == 0
	})
	if len(posts) > 0 {
		t.Errorf("posted again: %s", <-posts)
	}
	if turns, err := s.Column(t.Context(), "SELECT id FROM turns"); err != nil || len(turns) != 1 {
		t.Errorf("%d messages were taken, %v", len(turns), err)
	}
}

// TestSlackApp mentions an agent in a channel of Slack and goes on in the thread: the same event comes five times, its answer once,
// into the thread, and the thread is one conversation.
func TestSlackApp(t *testing.T) {
	const signing = "the signing secret of the app"
	posts := make(chan string, 64)
	slack := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posts <- r.URL.Path + " " + r.Header.Get("Authorization") + " " + string(body)
		_, _ = w.Write([]byte(`{"ok":true}`))
	}))
	t.Cleanup(slack.Close)
	address, err := instance.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, instance.Settings{More: fmt.Sprintf("[[connectors]]\nname = \"slack\"\nsecret = %q\nagents = [\"echo\"]\ncallback_url = %q\n",
		relaySecret, "http://"+address+"/answers")})
	runSlackConnector(t, "INBOX_URL="+s.URL()+"/v1/connectors/slack/messages", "INBOX_SECRET="+relaySecret,
		"SLACK_SIGNING_SECRET="+signing, "SLACK_BOT_TOKEN=xoxb-1", "SLACK_API="+slack.URL+"/api", "LISTEN="+address)
	mention, err := os.ReadFile(filepath.Join(examplesDirectory(t), "connector-slack", "testdata", "events.json"))
	if err != nil {
		t.Fatal(err)
	}
	event := func(body string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/events", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		stamp := fmt.Sprint(time.Now().Unix())
		mac := hmac.New(sha256.New, []byte(signing))
		mac.Write([]byte("v0:" + stamp + ":" + body))
		request.Header.Set("X-Slack-Request-Timestamp", stamp)
		request.Header.Set("X-Slack-Signature", "v0="+hex.EncodeToString(mac.Sum(nil)))
		if status, _, _ := exchanged(t, request); status != http.StatusOK {
			t.Fatalf("an event is answered %d\n%s", status, tail(s.Log(), 4096))
		}
	}
	answer := func(text string) {
		t.Helper()
		select {
		case got := <-posts:
			if want := `/api/chat.postMessage Bearer xoxb-1 {"channel":"C123ABC456","text":"` + text + `","thread_ts":"1515449522.000016"}`; got != want {
				t.Errorf("posted %s, want %s", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("nothing was posted\n%s", tail(s.Log(), 4096))
		}
	}
	for range 5 {
		event(string(mention))
	}
	answer(`is it \u003ceverything\u003e a river should be?`)
	next := strings.NewReplacer(`"ts": "1515449522.000016"`, `"thread_ts": "1515449522.000016", "ts": "1515449530.000001"`, "is it", "was it").Replace(string(mention))
	event(next)
	answer(`was it \u003ceverything\u003e a river should be?`)
	event(strings.Replace(next, `"user":`, `"bot_id": "B1", "user":`, 1))
	if sessions, err := s.Column(t.Context(), "SELECT id FROM sessions"); err != nil || len(sessions) != 1 {
		t.Errorf("one thread is %d conversations, %v", len(sessions), err)
	}
	if turns, err := s.Column(t.Context(), "SELECT id FROM turns"); err != nil || len(turns) != 2 || len(posts) > 0 {
		t.Errorf("%d messages were taken, %d answers too many, %v", len(turns), len(posts), err)
	}
}
