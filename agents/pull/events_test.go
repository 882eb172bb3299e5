package pull

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"inbox/internal/await"
	"inbox/internal/httpserver/httpservertest"
)

// piped is a response that is read while it grows.
type piped struct {
	header http.Header
	to     *io.PipeWriter
}

func (p *piped) Header() http.Header               { return p.header }
func (p *piped) WriteHeader(int)                   {}
func (p *piped) Write(content []byte) (int, error) { return p.to.Write(content) }
func (p *piped) FlushError() error                 { return nil }

// events opens a stream and returns its lines; they end with the stream.
func (n *node) events(ctx context.Context, parameters string) <-chan string {
	reader, writer := io.Pipe()
	context.AfterFunc(ctx, func() { _ = reader.Close() })
	go func() {
		n.handler.ServeHTTP(&piped{http.Header{}, writer}, request(ctx, http.MethodGet, "/events"+parameters, nil))
		_ = writer.Close()
	}()
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(reader); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return lines
}

// nextTurn skips comments.
func nextTurn(t *testing.T, lines <-chan string) taken {
	t.Helper()
	for line := range lines {
		if data, found := strings.CutPrefix(line, "data: "); found {
			var turn taken
			if err := json.Unmarshal([]byte(data), &turn.Request); err != nil {
				t.Fatal(err)
			}
			return turn
		}
	}
	t.Fatal("the stream ended")
	return taken{}
}

func TestEventsHandOutNoMoreThanWanted(t *testing.T) {
	bubble(t, Settings{Lease: 5 * time.Second}, func(t *testing.T, n *node) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		results := make([]<-chan outcome, 4)
		for i := range results {
			turn := question()
			turn.ID += string(rune('a' + i))
			results[i] = n.run(ctx, turn)
			synctest.Wait()
		}
		lines := n.events(ctx, "?max=2")
		first, second := nextTurn(t, lines), nextTurn(t, lines)
		synctest.Wait()
		for len(lines) > 0 {
			if line := <-lines; line != "" {
				t.Errorf("more came before the end of the others: %s", line)
			}
		}
		n.want(t, http.StatusOK, first.path("answer"), answerHello)
		third := nextTurn(t, lines)
		later(4 * time.Second)
		n.want(t, http.StatusOK, third.path("heartbeat"), "")
		if got := <-results[1]; got.err == nil {
			t.Error("the silent turn was answered")
		}
		n.refuses(t, &second)
		fourth := nextTurn(t, lines) // in place of the second
		for _, turn := range []*taken{&third, &fourth} {
			n.want(t, http.StatusOK, turn.path("answer"), answerHello)
		}
		for _, i := range []int{0, 2, 3} {
			mustAnswer(t, results[i], "hello")
		}
		cancel()
		for range lines { // until the stream is over
			continue
		}
	})
}

func TestEventsStayAlive(t *testing.T) {
	bubble(t, Settings{}, func(t *testing.T, n *node) {
		ctx, cancel := context.WithCancel(t.Context())
		n.run(ctx, question())
		begun, comments := time.Now(), 0
		var stream strings.Builder
		for line := range n.events(ctx, "") {
			stream.WriteString(line + "\n")
			if !strings.HasPrefix(line, ":") {
				continue
			}
			if comments++; comments == 5 {
				cancel()
			}
		}
		if took := time.Since(begun); took != 5*keepAlive {
			t.Errorf("five comments in %s", took)
		}
		httpservertest.Check(t, stream.String(), 1)
		cancel()
	})
}

func TestStreamsEndWithTheServer(t *testing.T) {
	n := newNode(t, nil, Settings{})
	base := n.listen(t)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		path := map[string]string{http.MethodPost: "/take?wait=50s", http.MethodGet: "/events"}[method]
		r, err := http.NewRequestWithContext(t.Context(), method, base+"/v1/pull/helper"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+testToken)
		go func() {
			if response, err := transport.RoundTrip(r); err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		}()
	}
	// The cleanup of listen fails when the streams do not end within the grace time.
	await.Until(t, "both streams wait", func() bool {
		n.agent.mu.Lock()
		defer n.agent.mu.Unlock()
		return n.agent.pollers == 2
	})
}
