package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"inbox/e2e/instance"
)

// chatModel is a model that says "One, two" at once, and "three." when it is let go or was not asked to wait. To a
// message with the word "fail" it has no answer.
type chatModel struct {
	URL   string
	asked atomic.Int64

	mu      sync.Mutex
	waiting chan struct{}
	heard   []string // the texts of its conversations, joined
}

func startChatModel(t *testing.T) *chatModel {
	t.Helper()
	model := &chatModel{waiting: make(chan struct{})}
	server := httptest.NewServer(model)
	t.Cleanup(func() {
		model.release()
		server.Close()
	})
	model.URL = server.URL
	return model
}

// release lets all answers go on, and those that come later wait anew.
func (m *chatModel) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.waiting)
	m.waiting = make(chan struct{})
}

func (m *chatModel) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	content, _ := io.ReadAll(request.Body)
	var body struct {
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	_ = json.Unmarshal(content, &body)
	last := string(body.Messages[len(body.Messages)-1].Content)
	m.mu.Lock()
	m.heard = append(m.heard, string(content))
	waiting := m.waiting
	m.mu.Unlock()
	m.asked.Add(1)
	if strings.Contains(last, "fail") {
		http.Error(writer, `{"error":{"message":"no"}}`, http.StatusBadRequest)
		return
	}
	writer.Header().Set("Content-Type", "text/event-stream")
	say := func(text string) {
		_, _ = fmt.Fprintf(writer, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", text)
		_ = http.NewResponseController(writer).Flush()
	}
	say("One, two")
	if strings.Contains(last, "slowly") {
		select {
		case <-waiting:
		case <-request.Context().Done():
			return
		}
	}
	say(", three.")
	_, _ = io.WriteString(writer, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"+
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":4,\"total_tokens\":15}}\n\ndata: [DONE]\n\n")
}

// agents are one that counts, one that echoes, and one that takes no guests.
func (m *chatModel) agents() instance.Settings {
	return instance.Settings{Agents: fmt.Sprintf("[[agents]]\nname = \"counter\"\nkind = \"llm\"\ndisplay_name = \"Counter\"\naccess = \"public\"\nunverified = \"answer\"\n"+
		"[agents.llm]\nbase_url = %q\nmodel = \"scripted\"\n"+
		"[[agents]]\nname = \"echo\"\nkind = \"echo\"\nunverified = \"answer\"\n[[agents]]\nname = \"closed\"\nkind = \"echo\"\n", m.URL+"/v1")}
}
