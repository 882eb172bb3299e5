package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"inbox/e2e/instance"
)

const (
	manyStreams      = 1000
	mostStreamMemory = 300 << 20
)

// slowModel sends the first words of every answer and the rest when it is let go.
type slowModel struct {
	open    atomic.Int64
	release chan struct{}
}

func (m *slowModel) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	_, _ = io.Copy(io.Discard, request.Body)
	writer.Header().Set("Content-Type", "text/event-stream")
	first, rest, _ := strings.Cut(saidHello, "\n")
	_, _ = io.WriteString(writer, "data: "+first+"\n\n")
	_ = http.NewResponseController(writer).Flush()
	m.open.Add(1)
	select {
	case <-m.release:
	case <-request.Context().Done():
		return
	}
	for line := range strings.SplitSeq(rest, "\n") {
		_, _ = io.WriteString(writer, "data: "+line+"\n\n")
	}
	_, _ = io.WriteString(writer, "data: [DONE]\n\n")
}

// TestThousandStreams holds 1,000 turns of a model open at once, each read by a client that hears it grow, and looks at
// the memory of the server.
func TestThousandStreams(t *testing.T) {
	slow := &slowModel{release: make(chan struct{})}
	provider := httptest.NewServer(slow)
	defer provider.Close()
	s := start(t, instance.Settings{
		Agents: fmt.Sprintf("[[agents]]\nname = \"memory\"\nkind = \"llm\"\naccess = \"public\"\n[agents.llm]\nbase_url = %q\nmodel = \"scripted\"\n", provider.URL+"/v1"),
		More:   fmt.Sprintf("[queue]\nturn_concurrency = %d\n", manyStreams+10),
	})
	token := strings.TrimSpace(lastLine(s.inbox("tokens", "create", "reader")))
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 0}}
	defer client.CloseIdleConnections()
	var heard, ended atomic.Int64
	var readers sync.WaitGroup
	for i := range manyStreams {
		readers.Go(func() {
			if err := readStream(t.Context(), client, s, token, i, &heard); err != nil {
				t.Errorf("reader %d: %v", i, err)
				return
			}
			ended.Add(1)
		})
	}
	defer func() { t.Logf("%d streams were open, %d heard", slow.open.Load(), heard.Load()) }()
	eventually(t, "all turns stream at once", func() bool { return heard.Load() == manyStreams || t.Failed() })
	memory, err := s.Memory()
	if err != nil {
		t.Fatal(err)
	}
	close(slow.release)
	readers.Wait()
	t.Logf("%d streaming turns: %d MiB resident", manyStreams, memory>>20)
	if memory > mostStreamMemory {
		t.Errorf("%d streaming turns take %d MiB, want at most %d", manyStreams, memory>>20, mostStreamMemory>>20)
	}
	if ended.Load() != manyStreams || slow.open.Load() != manyStreams {
		t.Errorf("%d streams ended, the model was asked %d times, want %d", ended.Load(), slow.open.Load(), manyStreams)
	}
}

// readStream asks by A2A and reads until the end; heard counts who has read the first words.
func readStream(ctx context.Context, client *http.Client, s *server, token string, number int, heard *atomic.Int64) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{"message":{"messageId":"m%d","role":"ROLE_USER","parts":[{"text":"Tell me a story."}]}}}`, number)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+"/a2a/memory", strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	told, last := false, ""
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		event, is := strings.CutPrefix(lines.Text(), "data: ")
		if !is {
			continue
		}
		last = event
		if !told && strings.Contains(event, "Hello ") {
			told = true
			heard.Add(1)
		}
	}
	if !told || !strings.Contains(last, "TASK_STATE_COMPLETED") {
		return fmt.Errorf("the stream ended with %s", last)
	}
	return lines.Err()
}
