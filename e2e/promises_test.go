package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"inbox/e2e/instance"
)

// heap is what the Go heap of a server holds, as /metrics says: room that was made and never written to is not resident.
func (s *server) heap() int64 {
	s.t.Helper()
	response, err := http.Get(s.URL() + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	scanner := bufio.NewScanner(response.Body)
	for scanner.Scan() {
		if value, is := strings.CutPrefix(scanner.Text(), "go_memstats_heap_alloc_bytes "); is {
			bytes, err := strconv.ParseFloat(value, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return int64(bytes)
		}
	}
	s.t.Fatalf("/metrics says nothing of the heap: %v", scanner.Err())
	return 0
}

// TestAnnouncedBodiesTakeNoMemory: request heads of 370 KB, each of which announces megabytes and sends one byte, took 10.6 GB
// of heap.
func TestAnnouncedBodiesTakeNoMemory(t *testing.T) {
	s := start(t, instance.Settings{})
	token, err := s.Token(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	before := s.heap()
	doors := []struct {
		path, media string
		announced   int
	}{
		{"/a2a/echo", "application/json", 8_000_000}, {"/v1/chat/completions", "application/json", 8_000_000},
		{"/v1/chat", "application/json", 1_000_000}, {"/v1/agent/echo", "application/json", 1_000_000},
		{"/agents/echo/inbox", "application/activity+json", 1_000_000}, {"/inbox", "application/activity+json", 1_000_000},
	}
	const connections = 600
	promised := 0
	for i := range connections {
		door := doors[i%len(doors)]
		promised += door.announced
		connection, err := net.Dial("tcp", s.Settings.HTTP)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		if _, err = fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n{",
			door.path, s.Settings.HTTP, door.media, token, door.announced); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all of them are being read", func() bool { return s.inFlight() >= connections })
	after := s.heap()
	t.Logf("%d requests promise %d MiB: the heap holds %d MiB before, %d MiB after", connections, promised>>20, before>>20, after>>20)
	if after-before > 100<<20 {
		t.Errorf("%d promised MiB take %d MiB of heap", promised>>20, (after-before)>>20)
	}
}

// inFlight is how many requests are being answered.
func (s *server) inFlight() (requests int) {
	s.t.Helper()
	response, err := http.Get(s.URL() + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\ninbox_http_requests_in_flight ")
	_, _ = fmt.Sscan(rest, &requests)
	return requests
}

// TestMetricsBehindAnUndeclaredProxy: a proxy on the same machine that passes strangers on without X-Forwarded-For opened
// /metrics and turned the limits off.
func TestMetricsBehindAnUndeclaredProxy(t *testing.T) {
	s := start(t, instance.Settings{Strict: true, Domain: "inbox.example.org", More: "[limits]\nhttp = [\"40/1h\"]\n"})
	if got := s.status("/metrics"); got != 403 {
		t.Errorf("/metrics says %d, want 403", got)
	}
	last := 0
	for range 60 {
		last = s.status("/.well-known/nodeinfo")
	}
	if last != 429 {
		t.Errorf("the sixtieth request hears %d, want 429", last)
	}
	if !strings.Contains(s.Log(), "http.trusted_proxies") {
		t.Error("the log does not warn of a proxy that nobody declared")
	}
}

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
	// As in a container of that size. Without a limit the collector lets a burst of a thousand requests take more, by chance.
	t.Setenv("GOMEMLIMIT", strconv.Itoa(mostStreamMemory*9/10))
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
	memory, err := s.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	close(slow.release)
	readers.Wait()
	t.Logf("%d streaming turns: %d MiB", manyStreams, memory>>20)
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
