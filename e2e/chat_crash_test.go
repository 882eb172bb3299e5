package e2e

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
)

const chatRun = "0f6c3b1e-58b3-4c52-9a57-9d0f2f0c3a11"

// openChat sends a streaming request to the agent "counter" and returns its events.
func openChat(ctx context.Context, t *testing.T, s *server, lastEvent string) (*bufio.Reader, func()) {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{"id":"` + chatRun + `","message":{"parts":[{"type":"text","text":"count slowly"}]}}}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+"/v1/agent/counter", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if lastEvent != "" {
		request.Header.Set("Last-Event-ID", lastEvent)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("stream: %d", response.StatusCode)
	}
	return bufio.NewReader(response.Body), func() { _ = response.Body.Close() }
}

// chatEvent reads one event: its id and its data.
func chatEvent(t *testing.T, reader *bufio.Reader) (id, data string) {
	t.Helper()
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ends: %v", err)
		}
		field, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch {
		case field == "id":
			id = value
		case field == "data":
			data = value
		case field == "" && data != "":
			return id, data
		}
	}
}

// TestChatOutlivesACrash kills the server amid an answer. The client asks for the rest, gets no word twice and one answer,
// and the message is there once.
func TestChatOutlivesACrash(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		model := startChatModel(t)
		settings := model.agents()
		settings.Database, settings.Lease = database, "1s"
		s := start(t, settings)
		reader, leave := openChat(t.Context(), t, s, "")
		id, data := chatEvent(t, reader)
		if !strings.Contains(data, `"content":"One, two"`) || id == "" {
			t.Fatalf("first event %q %s", id, data)
		}
		s.killed()
		leave()
		reader, leave = openChat(t.Context(), t, s, id)
		defer leave()
		eventually(t, "the model is asked again", func() bool { return model.asked.Load() == 2 })
		model.release()
		for !strings.Contains(data, `"result"`) {
			if _, data = chatEvent(t, reader); strings.Contains(data, "message/delta") && strings.Contains(data, "One") {
				t.Errorf("the reader gets again %s", data)
			}
		}
		if !strings.Contains(data, `"text":"One, two, three."`) || !strings.Contains(data, `"completed"`) {
			t.Errorf("last event %s", data)
		}
		if rows := s.rows(); rows["turns"] != 1 || rows["replies"] != 1 {
			t.Errorf("rows %v", rows)
		}
	})
}
