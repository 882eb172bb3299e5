package inbox

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"inbox/internal/await"
	"inbox/internal/webhooksignature"
)

// stream opens a request for server-sent events and gives "name data" of each.
func (b *bridged) stream(token, method, path, body string) (next func() string, leave func()) {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), method, "http://"+b.server.HTTPAddr().String()+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	request.Header = http.Header{"Authorization": {"Bearer " + token}, "Accept": {"text/event-stream"}}
	response, err := bounded.Do(request)
	if err != nil {
		b.Fatal(err)
	}
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
func TestBridgeCallbacks(t *testing.T) {
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
