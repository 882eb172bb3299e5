package inbox

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestRESTChat(t *testing.T) {
	s := newChatServer(t)
	first := s.open(http.MethodPost, "/v1/chat", "", `{"agent":"slow","message":"go"}`, "Accept", "text/event-stream")
	reader := bufio.NewReader(first.Body)
	begin, _ := nextEvent(reader)
	var started struct {
		Session string `json:"session"`
		RunID   string `json:"run_id"`
		EventID string `json:"event_id"`
	}
	if err := json.Unmarshal([]byte(begin.data), &started); err != nil || begin.name != "start" {
		t.Fatal(begin, err)
	}
	delta, _ := nextEvent(reader)
	_ = first.Body.Close()
	if delta.name != "delta" || delta.data != `{"text":"Hel"}` {
		t.Errorf("delta %+v", delta)
	}
	read := func() string {
		response := s.open(http.MethodGet, "/v1/chat?agent=slow", "", "", "Chat-Session", started.Session)
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response.StatusCode, err, string(body))
		}
		return string(body)
	}
	if body := read(); !strings.Contains(body, `"content":"go"`) || !strings.Contains(body, `"event_id":"`+started.EventID+`"`) {
		t.Errorf("session %s", body)
	}
	close(s.goOn)
	rest := allEvents(s.open(http.MethodGet, "/v1/chat?agent=slow", "", "", "Chat-Session", started.Session, "Accept", "text/event-stream", "Last-Event-ID", delta.id))
	if last := rest[len(rest)-1]; last.name != "reply" || !strings.Contains(last.data, `"reply":"Hello"`) || strings.Contains(rest[1].data, "Hel\"") {
		t.Errorf("rest %v", rest)
	}
	if body := read(); !strings.Contains(body, `"content":"Hello"`) || strings.Contains(body, "running") {
		t.Errorf("session %s", body)
	}
	for body, status := range map[string]int{
		`{"agent":"helper"}`: 400, `{"message":"x"}`: 400, `[]`: 400, `{`: 400, `{"agent":"nobody","message":"x"}`: 404,
		`{"agent":"closed","message":"x"}`: 403, `{"agent":"helper","message":"x"}`: 200,
	} {
		if got := s.post("/v1/chat", "", body); got.status != status {
			t.Errorf("%s: %d %s, want %d", body, got.status, got.body, status)
		}
	}
	if got := s.post("/v1/chat", "", `{"agent":"helper","message":"x"}`, "Content-Type", "text/plain"); got.status != http.StatusUnsupportedMediaType {
		t.Errorf("a form of a stranger's page: %d", got.status)
	}
}

func TestChatOrigins(t *testing.T) {
	s := newChatServer(t, "INBOX_CHAT_ALLOWED_ORIGINS=https://www.example.com")
	for origin, want := range map[string]string{"https://www.example.com": "https://www.example.com", "https://evil.example": ""} {
		asked := s.open(http.MethodOptions, "/v1/agent/helper", "", "", "Origin", origin, "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "authorization,content-type")
		_ = asked.Body.Close()
		if got := asked.Header.Get("Access-Control-Allow-Origin"); got != want || asked.StatusCode != http.StatusNoContent {
			t.Errorf("preflight from %s: %d %q", origin, asked.StatusCode, got)
		}
		if got := s.post("/v1/agent/helper", "", rpcBody("message/send", "", "", "x"), "Origin", origin); got.header.Get("Access-Control-Allow-Origin") != want ||
			got.header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("answer to %s: %v", origin, got.header)
		}
	}
}
