package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/internal/await"
)

// lines reads a stream to its end.
func lines(t *testing.T, method, address, token, accept, body string) <-chan []string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", accept)
	request.Header.Set("A2A-Version", "1.0")
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		t.Fatalf("%s %s: %s %s", method, address, response.Status, said)
	}
	read := make(chan []string, 1)
	go func() {
		defer func() { _ = response.Body.Close() }()
		var all []string
		scanner := bufio.NewScanner(response.Body)
		for scanner.Scan() {
			if text := scanner.Text(); text != "" && !strings.HasPrefix(text, ":") {
				all = append(all, text)
			}
		}
		if err := scanner.Err(); err != nil {
			all = append(all, "cut: "+err.Error())
		}
		read <- all
	}()
	return read
}

// TestStreamsSayWhereToGoOn: at a stop streams ended without a last event.
func TestStreamsSayWhereToGoOn(t *testing.T) {
	t.Setenv("INBOX_SHUTDOWN_GRACE", "2s")
	agent := startSlow(t)
	defer close(agent.release)
	s := start(t, instance.Settings{
		Agents: agent.table("memory", "") + "\n[[agents]]\nname = \"hidden\"\nkind = \"pull\"\n", More: "[chat]\n",
	})
	token, err := s.Token(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	puller := strings.TrimSpace(lastLine(s.inbox("tokens", "create", "--agent", "hidden", "--pull", "puller")))
	const message = `{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hi"}]}}}`
	streams := map[string]struct {
		read <-chan []string
		want []string // in the last lines
	}{
		"A2A": {lines(t, "POST", s.URL()+"/a2a/memory", token, "text/event-stream", message),
			[]string{`"stream_ended":"server_stopping"`, `"resume_with":"SubscribeToTask"`, `"statusUpdate"`}},
		"A2A over REST": {lines(t, "POST", s.URL()+"/a2a/memory/rest/message:stream", token, "text/event-stream", `{"message":{"messageId":"m2","role":"ROLE_USER","parts":[{"text":"hi"}]}}`),
			[]string{`"stream_ended":"server_stopping"`, `"resume_with":"SubscribeToTask"`, `"statusUpdate"`}},
		"chat over JSON-RPC": {lines(t, "POST", s.URL()+"/v1/agent/memory", token, "text/event-stream", `{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{"id":"r1","sessionId":"s1","message":{"parts":[{"type":"text","text":"hi"}]}}}`),
			[]string{`"message/resume"`, `"stream_cut"`}},
		"chat": {lines(t, "POST", s.URL()+"/v1/chat", token, "text/event-stream", `{"agent":"memory","message":"hi"}`),
			[]string{"event: resume", `"event_id":"`, `"reason":"stream_cut"`}},
		"OpenAI": {lines(t, "POST", s.URL()+"/v1/chat/completions", token, "text/event-stream", `{"model":"memory","stream":true,"messages":[{"role":"user","content":"hi"}]}`),
			[]string{`"code":"stream_cut"`}},
		"pull": {lines(t, "GET", s.URL()+"/v1/pull/hidden/events", puller, "text/event-stream", ""),
			[]string{"event: stopping", `"reason":"server_stopping"`}},
	}
	agent.wait(t, 5)
	s.stop()
	for name, stream := range streams {
		select {
		case all := <-stream.read:
			last := strings.Join(all[max(0, len(all)-3):], "\n")
			for _, want := range stream.want {
				if !strings.Contains(last, want) {
					t.Errorf("%s: the stream ends with %q; want %q", name, last, want)
				}
			}
		case <-time.After(patience):
			t.Errorf("%s: the stream did not end within %s", name, patience)
		}
	}
}

// TestSecondSignalEndsAtOnce: it was ignored while the first one waited for a run.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	agent := startSlow(t)
	defer close(agent.release)
	s := newServer(t, instance.Settings{Agents: agent.table("memory", ""), Drain: "1h"})
	s.start()
	t.Cleanup(func() {
		if s.Alive() {
			_ = s.Kill()
		}
	})
	if err := s.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server is not ready any more", func() bool { return s.status("/readyz") == http.StatusServiceUnavailable })
	if got := s.status("/.well-known/nodeinfo"); got != http.StatusOK { // it serves on as before
		t.Errorf("while the server drains a request is answered %d", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if code, err := s.Stop(ctx); code != 3 || err != nil {
		t.Errorf("after a second signal the server ended with %d, %v; want 3", code, err)
	}
	s.Settings.Drain = ""
	if err := s.Configure(); err != nil {
		t.Fatal(err)
	}
	s.start() // nothing stands in the way of the next one
	s.stop()
}

func (s *server) status(path string) int {
	response, err := http.Get(s.URL() + path)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// TestHangupDoesNotKill: SIGHUP ended the server.
func TestHangupDoesNotKill(t *testing.T) {
	s := start(t, instance.Settings{})
	for range 2 {
		if err := s.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the log says what SIGHUP does", func() bool { return strings.Contains(s.Log(), "the configuration was read again") })
	if got := s.status("/readyz"); got != http.StatusOK {
		t.Errorf("after SIGHUP /readyz says %d", got)
	}
}

// TestIdleMailSessionsHearOfTheStop: they heard that they were idle.
func TestIdleMailSessionsHearOfTheStop(t *testing.T) {
	s := start(t, instance.Settings{})
	connection, err := net.Dial("tcp", s.Settings.SMTP)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	_ = connection.SetDeadline(time.Now().Add(patience))
	reader := bufio.NewReader(connection)
	if greeting, err := reader.ReadString('\n'); err != nil || !strings.HasPrefix(greeting, "220 ") {
		t.Fatalf("greeting %q, %v", greeting, err)
	}
	s.stop()
	if last, err := reader.ReadString('\n'); err != nil || !strings.HasPrefix(last, "421 4.3.2 ") {
		t.Errorf("an idle session hears %q, %v", last, err)
	}
}

// balancer passes connections on to a node whose /readyz says yes.
type balancer struct {
	listener net.Listener
	nodes    []string
	ready    []atomic.Bool
	next     atomic.Uint64
}

func startBalancer(t *testing.T, address string, nodes ...string) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{listener: listener, nodes: nodes, ready: make([]atomic.Bool, len(nodes))}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i := range nodes {
		running.Go(func() { b.look(ctx, i) })
	}
	running.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { b.pass(connection) })
		}
	})
	t.Cleanup(func() {
		stop()
		_ = listener.Close()
		http.DefaultClient.CloseIdleConnections()
		await.Done(t, running.Wait, "the end of the balancer")
	})
	return b
}

// look asks a node every 50 ms, and at once says no when it does not answer.
func (b *balancer) look(ctx context.Context, i int) {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	for {
		response, err := client.Get("http://" + b.nodes[i] + "/readyz")
		if err == nil {
			_ = response.Body.Close()
		}
		b.ready[i].Store(err == nil && response.StatusCode == http.StatusOK)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (b *balancer) pass(inner net.Conn) {
	defer func() { _ = inner.Close() }()
	for range b.nodes {
		i := int(b.next.Add(1)) % len(b.nodes)
		if !b.ready[i].Load() {
			continue
		}
		outer, err := net.Dial("tcp", b.nodes[i])
		if err != nil {
			return // a refused connection: the client sees it
		}
		done := make(chan struct{})
		go func() {
			_, _ = io.Copy(outer, inner)
			_ = outer.(*net.TCPConn).CloseWrite()
			close(done)
		}()
		_, _ = io.Copy(inner, outer)
		_ = inner.Close()
		<-done
		_ = outer.Close()
		return
	}
}

// TestRollingRestart: clients of a balancer saw refused connections and cut answers while one node after the other was
// restarted.
func TestRollingRestart(t *testing.T) {
	public, err := instance.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret.key")
	if err := os.WriteFile(secret, []byte("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("INBOX_SECRET_KEY_FILE", secret)
	database := postgres(t)
	settings := instance.Settings{Database: database, Public: public, Drain: "500ms"}
	nodes := []*server{start(t, settings), start(t, settings)}
	startBalancer(t, public, nodes[0].Settings.HTTP, nodes[1].Settings.HTTP)
	token, err := nodes[0].Token(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the balancer answers", func() bool { return nodes[0].status("/healthz") == http.StatusOK })

	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var answered, number atomic.Int64
	for range 6 {
		clients.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m%d","role":"ROLE_USER","parts":[{"text":"hi"}]}}}`, number.Add(1))
				request, _ := http.NewRequest(http.MethodPost, "http://"+public+"/a2a/echo", io.NopCloser(strings.NewReader(body))) // without GetBody nothing is repeated in silence
				request.Header.Set("Content-Type", "application/json")
				request.Header.Set("A2A-Version", "1.0")
				request.Header.Set("Authorization", "Bearer "+token)
				response, err := client.Do(request)
				if err != nil {
					t.Errorf("a request failed: %v", err)
					return
				}
				said, err := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(said), "TASK_STATE_COMPLETED") {
					t.Errorf("an answer is %s %s, %v", response.Status, said, err)
					return
				}
				answered.Add(1)
			}
		})
	}
	for range 2 {
		for _, node := range nodes {
			before := answered.Load()
			eventually(t, "clients are answered", func() bool { return answered.Load() > before+50 || t.Failed() })
			node.stop()
			node.start()
		}
	}
	stop()
	await.Done(t, clients.Wait, "the last answers to all clients")
	t.Logf("%d requests were answered over four restarts", answered.Load())
	t.Run("session", func(t *testing.T) { sessionOutlivesKill(t, nodes[0], nodes[1]) })
}

// sessionOutlivesKill signs an operator in at one node and kills it: the other one shows the pages, takes a form of the dead node, and has
// the session in the API.
func sessionOutlivesKill(t *testing.T, first, second *server) {
	lines := strings.Fields(first.inbox("tokens", "create", "--work", "desk"))
	token := lines[len(lines)-1]
	jar, err := cookiejar.New(nil) // whose cookies are those of a host, whatever its port
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: patience}
	read := func(response *http.Response, err error) (address, page string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", response.Request.URL, response.Status, err)
		}
		return response.Request.URL.Path, string(body)
	}

	_, page := read(browser.PostForm("http://"+first.Settings.HTTP+"/console/login", url.Values{"token": {token}}))
	secret := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(page)
	if secret == nil {
		t.Fatalf("no form after the login:\n%s", page)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}

	other := "http://" + second.Settings.HTTP
	for _, path := range []string{"/console/overview", "/console/inbox", "/console/work"} {
		if at, page := read(browser.Get(other + path)); at != path || !strings.Contains(page, "Signed in as desk") {
			t.Errorf("%s at the other node leads to %s:\n%s", path, at, page)
		}
	}
	if _, page := read(browser.PostForm(other+"/console/language", url.Values{"csrf": {secret[1]}, "language": {"de"}, "back": {"/console/inbox"}})); !strings.Contains(page, "Angemeldet als desk") {
		t.Errorf("the form of the dead node does nothing:\n%s", page)
	}

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, other+"/api/v1/sessions", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if _, listed := read(http.DefaultClient.Do(request)); strings.Count(listed, `"name":"desk"`) != 1 {
		t.Errorf("sessions in the API of the other node: %s", listed)
	}
}
