package bridge_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"inbox/inboxtest"
	"inbox/internal/await"
	"inbox/internal/webhooksignature"
)

//contract:shows channels-4 channels-9 channels-11 channels-12 channels-32 channels-45 channels-55 channels-57
func TestBridgeOverTheWire(t *testing.T) {
	t.Parallel()
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
	b.call(relay, http.MethodPost, "/v1/bridge/send", []byte(`{"agent":"nobody","agent":"echo","message":"hello"}`), http.StatusBadRequest)
	b.call(relay, http.MethodPost, "/v1/bridge/send", bytes.Repeat([]byte("x"), 1<<20+1), http.StatusRequestEntityTooLarge)

	b.pending(relay, 0)
	first := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "hello", "message_id": "m1", "wait": true}, http.StatusOK)
	if first["status"] != "completed" || !strings.Contains(fmt.Sprint(first["reply"]), "hello") {
		t.Fatalf("the run is %v", first)
	}
	session, queued := first["session_id"].(string), first["queue_id"].(string)
	again := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "hello", "message_id": "m1", "wait": true}, http.StatusOK)
	if !flag(again["duplicate"]) || again["run_id"] != first["run_id"] || again["session_id"] != session {
		t.Errorf("the repeat is %v", again)
	}
	item := b.pending(relay, 1)[0].(map[string]any)
	if item["queue_id"] != queued || item["session_id"] != session || item["content"] != first["reply"] || !flag(item["completed"]) {
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
	if list, _ := events["events"].([]any); len(list) != 1 || !flag(events["has_more"]) {
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

func (b *bridged) relayed(connector, id, text, wait string, want int) map[string]any {
	b.Helper()
	body, err := json.Marshal(map[string]any{
		"text": text, "external_provider": "slack", "external_conversation_id": "C1", "external_message_id": id, "sender_id": "T1/U1", "room_kind": "channel",
	})
	if err != nil {
		b.Fatal(err)
	}
	header := http.Header{"Content-Type": {"application/json"}, "X-Inbox-Signature": {webhooksignature.Sign(inboxtest.ConnectorSecret, body)}}
	return b.request(http.MethodPost, "/v1/connectors/"+connector+"/messages"+wait, header, body, want)
}

//contract:shows channels-1 channels-3 channels-5 channels-6 channels-7 channels-8 channels-47 channels-50
func TestConnectorOverTheWire(t *testing.T) {
	t.Parallel()
	b := newBridged(t, "")
	wrong := http.Header{"X-Inbox-Signature": {"sha256=" + strings.Repeat("0", 64)}}
	for _, path := range []string{"/v1/connectors/slack/messages", "/v1/connectors/unknown/messages"} {
		b.request(http.MethodPost, path, wrong, []byte(`{"text":"x"}`), http.StatusUnauthorized)
		b.request(http.MethodPost, path, http.Header{}, []byte(`{"text":"x","evidence":[]}`), http.StatusUnauthorized)
	}
	for i := range 20 {
		taken := b.relayed("slack", "m1", "hello there", "", map[bool]int{true: http.StatusAccepted, false: http.StatusOK}[i == 0])
		if taken["reply"] != nil || i > 0 && !flag(taken["duplicate"]) {
			t.Errorf("copy %d: %v", i, taken)
		}
		if i == 0 {
			answer := await.Receive(t, b.calls, "the callback")
			if content := fmt.Sprint(answer.body["content"]); !strings.Contains(content, "hello there") || answer.header.Get("X-Inbox-Delivery") == "" {
				t.Errorf("the callback got %v", answer.body)
			}
			about, _ := answer.body["metadata"].(map[string]any)
			if about["external_message_id"] != "m1" || about["external_conversation_id"] != "C1" {
				t.Errorf("the answer is about %v", about)
			}
			b.Settled(taken["run_id"].(string))
		}
	}
	b.relayed("slack", "m2", "once again", "", http.StatusAccepted)
	var attempts []string
	for range 2 {
		attempts = append(attempts, await.Receive(t, b.calls, "both attempts of the callback").header.Get("X-Inbox-Attempt"))
	}
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
	header := http.Header{"X-Hub-Signature-256": {webhooksignature.Sign(inboxtest.ConnectorSecret, self)}}
	if skipped := b.request(http.MethodPost, "/v1/connectors/slack/messages", header, self, http.StatusOK); skipped["status"] != "skipped" {
		t.Errorf("a message of its own: %v", skipped)
	}
}

// TestCapturedConnectorRequest: a signature with a time is worth nothing five minutes later, and cannot be stripped of it.
func TestCapturedConnectorRequest(t *testing.T) {
	t.Parallel()
	b := newBridged(t, "")
	body := []byte(`{"text":"pay","external_provider":"slack","external_conversation_id":"C1","sender_id":"T1/U1"}`)
	signed := func(at time.Time) http.Header {
		stamp := strconv.FormatInt(at.Unix(), 10)
		return http.Header{"X-Inbox-Timestamp": {stamp}, "X-Inbox-Signature": {webhooksignature.Sign(inboxtest.ConnectorSecret, []byte(stamp+"."+string(body)))}}
	}
	const path = "/v1/connectors/plain/messages?wait=20s"
	b.request(http.MethodPost, path, signed(time.Now()), body, http.StatusOK)

	b.request(http.MethodPost, path, signed(time.Now().Add(-6*time.Minute)), body, http.StatusUnauthorized)
	b.request(http.MethodPost, path, signed(time.Now().Add(6*time.Minute)), body, http.StatusUnauthorized)
	stripped := signed(time.Now())
	stripped.Del("X-Inbox-Timestamp")
	b.request(http.MethodPost, path, stripped, body, http.StatusUnauthorized)
	other := signed(time.Now())
	other.Set("X-Inbox-Timestamp", strconv.FormatInt(time.Now().Unix()+1, 10))
	b.request(http.MethodPost, path, other, body, http.StatusUnauthorized)

	// Connectors that sign no time are taken unless the operator requires one (require_timestamp).
	timeless := http.Header{"X-Inbox-Signature": {webhooksignature.Sign(inboxtest.ConnectorSecret, body)}}
	b.request(http.MethodPost, path, timeless, body, http.StatusOK)
}

// stream opens a request for server-sent events and returns "name data" of each.
func (b *bridged) stream(token, method, path, body string) (next func() string, leave func()) {
	b.Helper()
	response := b.Open(method, path, token, body, "Accept", "text/event-stream")
	if response.StatusCode != http.StatusOK {
		b.Fatalf("%s answered %d", path, response.StatusCode)
	}
	scanner := bufio.NewScanner(response.Body)
	scanner.Buffer(nil, 1<<20)
	return func() string {
		name := ""
		for scanner.Scan() {
			if found, is := strings.CutPrefix(scanner.Text(), "event: "); is {
				name = found
			}
			if data, is := strings.CutPrefix(scanner.Text(), "data: "); is {
				return name + " " + data
			}
		}
		return ""
	}, func() { _ = response.Body.Close() }
}

func TestBridgeStreams(t *testing.T) {
	t.Parallel()
	b := newBridged(t, "")
	relay := b.token("relay")
	next, leave := b.stream(relay, http.MethodGet, "/v1/bridge/events", "")
	defer leave()
	run, done := b.stream(relay, http.MethodPost, "/v1/bridge/send", `{"agent":"echo","message":"grow slowly"}`)
	defer done()
	grown := ""
	var last struct {
		Run, Reply string
		ID         string `json:"run_id"`
		Queue      string `json:"queue_id"`
	}
	for event := run(); event != ""; event = run() {
		name, data, _ := strings.Cut(event, " ")
		var piece struct{ Text string }
		if err := json.Unmarshal([]byte(data), &piece); err != nil {
			t.Fatal(err)
		}
		grown += piece.Text
		if name == "done" {
			if err := json.Unmarshal([]byte(data), &last); err != nil {
				t.Fatal(err)
			}
		}
	}
	if last.Reply != "grow slowly" || grown != "" && grown != last.Reply {
		t.Errorf("streamed %q, the answer is %+v", grown, last)
	}
	var item struct {
		ID string `json:"queue_id"`
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(next(), "item ")), &item); err != nil || item.ID != last.Queue {
		t.Errorf("the stream of the queue gave %v, %v; want %s", item, err, last.Queue)
	}
	again, over := b.stream(relay, http.MethodGet, "/v1/bridge/events", "") // nothing was acknowledged
	defer over()
	if got := again(); !strings.Contains(got, item.ID) {
		t.Errorf("the next connection got %q", got)
	}
	b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "more"}, http.StatusAccepted)
	if got := next(); strings.Contains(got, item.ID) || !strings.Contains(got, `"content":"more"`) {
		t.Errorf("the stream went on with %q", got)
	}
	resumed, end := b.stream(relay, http.MethodGet, "/v1/runs/"+last.ID+"/events?after=1", "")
	defer end()
	for event := resumed(); event != ""; event = resumed() {
		if strings.HasPrefix(event, "done ") && !strings.Contains(event, `"reply":"grow slowly"`) {
			t.Errorf("the resumed stream ended with %q", event)
		}
	}
}

// TestBridgeCallbacks calls back what is queued, signed, until it is taken; it stays until it is acknowledged.
//
//contract:shows channels-7 channels-11 channels-51 channels-52 channels-54
func TestBridgeCallbacks(t *testing.T) {
	t.Parallel()
	b := newBridged(t, "")
	relay := b.token("relay")
	var secret string
	calls, refuse := make(chan string, 16), make(chan bool, 1)
	refuse <- true
	callback := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !webhooksignature.Verify(secret, body, r.Header.Get("X-Inbox-Signature"), webhooksignature.Form{}) {
			t.Errorf("not signed: %v", r.Header)
		}
		select {
		case <-refuse:
			w.WriteHeader(http.StatusInternalServerError)
		default:
		}
		calls <- r.Header.Get("X-Inbox-Delivery")
	}))
	defer callback.Close()
	b.call(relay, http.MethodGet, "/v1/bridge/client", nil, http.StatusNotFound)
	for _, bad := range []map[string]any{
		{"callback_url": "ftp://a.example/"}, {"callback_url": "https://user@a.example/"}, {"callback_url": "nonsense"},
		{"callback_url": callback.URL, "callback_secret": "short"},
	} {
		b.call(relay, http.MethodPost, "/v1/bridge/register", bad, http.StatusBadRequest)
	}
	b.call(relay, http.MethodPost, "/v1/bridge/register", map[string]any{"client_id": "other"}, http.StatusNotFound)
	registered := b.call(relay, http.MethodPost, "/v1/bridge/register", map[string]any{"callback_url": callback.URL, "context": map[string]any{"v": 1}}, http.StatusOK)
	secret, _ = registered["callback_secret"].(string)
	if again := b.call(relay, http.MethodPost, "/v1/bridge/register", map[string]any{"callback_url": callback.URL}, http.StatusOK); secret == "" || again["callback_secret"] != nil {
		t.Errorf("registered %v, then %v", registered, again)
	}
	run := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "hello", "wait": true}, http.StatusOK)
	for range 2 { // it is refused first
		if id := await.Receive(t, calls, "both attempts of the callback"); id != run["queue_id"] {
			t.Errorf("called with %s, want %v", id, run["queue_id"])
		}
	}
	await.Until(t, "the item is delivered", func() bool {
		item := b.pending(relay, 1)[0].(map[string]any)
		if item["queue_id"] != run["queue_id"] {
			t.Fatalf("another item: %v", item)
		}
		return item["delivery_status"] == "delivered"
	})
	b.call(relay, http.MethodPost, "/v1/bridge/items/"+run["queue_id"].(string)+"/ack", nil, http.StatusOK)
	b.pending(relay, 0)
	if left := len(calls); left > 0 {
		t.Errorf("%d calls too many", left)
	}
}
