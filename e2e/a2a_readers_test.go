package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"inbox/e2e/instance"
)

// Subscribers of one task that never read, by the way in which they came.
const (
	deafRPC, deafREST, deafHTTP2, deafGRPC = 400, 300, 100, 200
	deafReaders                            = deafRPC + deafREST + deafHTTP2 + deafGRPC
	mostDeafMemory                         = 512 << 20
	longAnswer                             = 320 << 10
	wordsOfAnswer                          = 16 << 10
	smallBuffer                            = 4 << 10
	openStreams                            = "inbox_a2a_streams_open"
)

// longModel sends the first word of an answer, and the rest of it, far more than the buffers of a connection take, when
// it is let go.
type longModel struct {
	asked   atomic.Int64
	release chan struct{}
}

func chunkOf(text string) string {
	encoded, _ := json.Marshal(text)
	return `data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":` + string(encoded) + `}}]}` + "\n\n"
}

const endOfModel = `data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"

func (m *longModel) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	_, _ = io.Copy(io.Discard, request.Body)
	m.asked.Add(1)
	flush := http.NewResponseController(writer).Flush
	writer.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(writer, chunkOf("begun "))
	_ = flush()
	select {
	case <-m.release:
	case <-request.Context().Done():
		return
	}
	for range longAnswer / wordsOfAnswer {
		_, _ = io.WriteString(writer, chunkOf(strings.Repeat("x", wordsOfAnswer)))
		_ = flush()
	}
	_, _ = io.WriteString(writer, endOfModel)
}

func modelAgent(name, url string) string {
	return fmt.Sprintf("[[agents]]\nname = %q\nkind = \"llm\"\naccess = \"public\"\n[agents.llm]\nbase_url = %q\nmodel = \"scripted\"\n", name, url+"/v1")
}

// metric reads a value of the server's own metrics.
func (s *server) metric(name string) float64 {
	s.t.Helper()
	response, err := http.Get("http://" + s.Settings.HTTP + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if text, is := strings.CutPrefix(lines.Text(), name+" "); is {
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return value
		}
	}
	s.t.Fatalf("no metric %s", name)
	return 0
}

// awaitMetric polls seldom: the metrics of a server cost it more than most of its answers.
func (s *server) awaitMetric(name, what string, condition func(value float64) bool) {
	s.t.Helper()
	ticker, deadline := time.NewTicker(250*time.Millisecond), time.NewTimer(3*patience)
	defer ticker.Stop()
	defer deadline.Stop()
	for !condition(s.metric(name)) {
		select {
		case <-ticker.C:
		case <-deadline.C:
			s.t.Fatalf("did not happen within %s: %s", 3*patience, what)
		}
	}
}

// deafDialer connects with a small receive buffer, so that little of what is not read is taken from the sender.
var deafDialer = net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
	var set error
	return errors.Join(raw.Control(func(fd uintptr) {
		set = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, smallBuffer)
	}), set)
}}

// deafConn stops reading when it is told to, as a process does that hangs.
type deafConn struct {
	net.Conn
	deaf   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (c *deafConn) Read(into []byte) (int, error) {
	select {
	case <-c.deaf:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return c.Conn.Read(into)
	}
}

func (c *deafConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// deafCrowd are clients that subscribe and never read.
type deafCrowd struct {
	*server
	token, task string
	grpc        string
	deaf        chan struct{}
	rest        []io.Closer
}

// raw subscribes over HTTP/1.1 without reading a single byte.
func (d *deafCrowd) raw(count int, path, body string) {
	d.t.Helper()
	for range count {
		connection, err := deafDialer.DialContext(d.t.Context(), "tcp", d.Settings.HTTP)
		if err != nil {
			d.t.Fatal(err)
		}
		d.rest = append(d.rest, connection)
		_, err = fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			path, d.Settings.HTTP, d.token, len(body), body)
		if err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *deafCrowd) dial(ctx context.Context, address string) (net.Conn, error) {
	connection, err := deafDialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &deafConn{Conn: connection, deaf: d.deaf, closed: make(chan struct{})}, nil
}

// http2 subscribes over HTTP/2 without TLS, several streams a connection. They read their headers and nothing else; when
// deaf is closed, the connection is not read any more either.
func (d *deafCrowd) http2(count int, body string) {
	d.t.Helper()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	for left := count; left > 0; left -= 20 {
		transport := &http.Transport{Protocols: &protocols, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return d.dial(ctx, address) }}
		for range min(left, 20) {
			request, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.URL()+"/a2a/memory", strings.NewReader(body))
			if err != nil {
				d.t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer "+d.token)
			request.Header.Set("Content-Type", "application/json")
			response, err := transport.RoundTrip(request)
			if err != nil || response.StatusCode != http.StatusOK || response.ProtoMajor != 2 {
				d.t.Fatalf("subscribe over HTTP/2: %+v, %v", response, err)
			}
			d.rest = append(d.rest, response.Body)
		}
	}
}

// overGRPC subscribes by gRPC; half of the connections are read and their streams are not, half are not read either.
func (d *deafCrowd) overGRPC(count int) {
	d.t.Helper()
	for at, left := 0, count; left > 0; at, left = at+1, left-20 {
		dial := d.dial
		if at%2 == 0 {
			dial = func(ctx context.Context, address string) (net.Conn, error) {
				return deafDialer.DialContext(ctx, "tcp", address)
			}
		}
		connection, err := grpc.NewClient(d.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
		if err != nil {
			d.t.Fatal(err)
		}
		d.rest = append(d.rest, connection)
		for range min(left, 20) {
			ctx := metadata.AppendToOutgoingContext(context.WithoutCancel(d.t.Context()), "authorization", "Bearer "+d.token)
			if _, err := pb.NewA2AServiceClient(connection).SubscribeToTask(ctx, &pb.SubscribeToTaskRequest{Tenant: "memory", Id: d.task}); err != nil {
				d.t.Fatal(err)
			}
		}
	}
}

func (d *deafCrowd) leave() {
	for _, one := range d.rest {
		_ = one.Close()
	}
}

// rpcEvent is what the tests read of one event of a stream by JSON-RPC.
type rpcEvent struct {
	Result struct {
		Task *struct {
			ID, ContextID string
			Status        struct{ State string }
			Artifacts     []rpcArtifact
		}
		StatusUpdate *struct {
			Status struct{ State string }
		}
		ArtifactUpdate *struct {
			Append   bool
			Artifact rpcArtifact
		}
	}
	Error *struct {
		Code    int
		Message string
	}
}

type rpcArtifact struct {
	ArtifactID string
	Parts      []struct{ Text string }
}

// a2aStream is an open stream by JSON-RPC that is read as it comes.
type a2aStream struct {
	response *http.Response
	lines    *bufio.Reader
	// what a client has after the events so far
	task, state string
	text        string
	ends        int // terminal statuses
	after       int // events behind the first of them
}

func (s *server) openStream(t *testing.T, agent, token, method, params string) *a2aStream {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*patience)
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+"/a2a/"+agent, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
		answer, _ := io.ReadAll(response.Body)
		t.Fatalf("%s is answered %d %s", method, response.StatusCode, answer)
	}
	return &a2aStream{response: response, lines: bufio.NewReaderSize(response.Body, 64<<10)}
}

// next reads one event and takes it up; false at the end of the stream.
func (s *a2aStream) next() (bool, error) {
	for {
		line, err := s.lines.ReadBytes('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return false, err
		}
		data, is := bytes.CutPrefix(line, []byte("data: "))
		if !is {
			continue
		}
		var event rpcEvent
		if err := json.Unmarshal(data, &event); err != nil {
			return false, err
		}
		if event.Error != nil {
			return false, fmt.Errorf("the stream broke: %d %s", event.Error.Code, event.Error.Message)
		}
		s.take(event)
		return true, nil
	}
}

func (s *a2aStream) take(event rpcEvent) {
	if s.ends > 0 {
		s.after++
	}
	switch result := event.Result; {
	case result.Task != nil:
		s.task, s.state, s.text = result.Task.ID, result.Task.Status.State, ""
		for _, artifact := range result.Task.Artifacts {
			for _, part := range artifact.Parts {
				s.text += part.Text
			}
		}
	case result.StatusUpdate != nil:
		s.state = result.StatusUpdate.Status.State
	case result.ArtifactUpdate != nil:
		if !result.ArtifactUpdate.Append {
			s.text = ""
		}
		for _, part := range result.ArtifactUpdate.Artifact.Parts {
			s.text += part.Text
		}
	}
	switch s.state {
	case completed, canceled, "TASK_STATE_FAILED", "TASK_STATE_REJECTED":
		s.ends++
	}
}

// until reads until the condition holds or the stream ends.
func (s *a2aStream) until(t *testing.T, condition func() bool) {
	t.Helper()
	for !condition() {
		more, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			return
		}
	}
}

func (s *a2aStream) toEnd(t *testing.T) {
	t.Helper()
	s.until(t, func() bool { return false })
}

// TestReadersThatNeverRead: 1,000 subscribers of a task stop reading after their request. The run ends all the same, an
// honest reader of the same task gets every word of it while they hang, memory stays flat, and all of them are let go.
func TestReadersThatNeverRead(t *testing.T) {
	t.Parallel()
	model := &longModel{release: make(chan struct{})}
	provider := httptest.NewServer(model)
	defer provider.Close()
	address, err := instance.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, instance.Settings{Agents: modelAgent("memory", provider.URL), More: fmt.Sprintf("[a2a]\ngrpc_listen = %q\n", address)})
	token, err := s.Token(t.Context(), "reader")
	if err != nil {
		t.Fatal(err)
	}
	honest := s.openStream(t, "memory", token, "SendStreamingMessage",
		`{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"Tell me a story."}]}}`)
	honest.until(t, func() bool { return strings.HasPrefix(honest.text, "begun") })
	before, err := s.Memory()
	if err != nil {
		t.Fatal(err)
	}
	goroutines := s.metric("go_goroutines")

	crowd := &deafCrowd{server: s, token: token, task: honest.task, grpc: address, deaf: make(chan struct{})}
	defer crowd.leave()
	subscribe := `{"jsonrpc":"2.0","id":1,"method":"SubscribeToTask","params":{"id":"` + honest.task + `"}}`
	crowd.http2(deafHTTP2, subscribe)
	crowd.raw(deafRPC, "/a2a/memory", subscribe)
	crowd.raw(deafREST, "/a2a/memory/rest/tasks/"+honest.task+":subscribe", "")
	crowd.overGRPC(deafGRPC)
	s.awaitMetric(openStreams, "all are subscribed", func(open float64) bool { return open == deafReaders+1 })

	close(crowd.deaf)
	begun := time.Now()
	close(model.release)
	honest.toEnd(t)
	took := time.Since(begun)
	left := s.metric(openStreams)
	if honest.state != completed || len(honest.text) < longAnswer-wordsOfAnswer || honest.ends != 1 || honest.after != 0 {
		t.Errorf("the honest reader has %d bytes, %s, %d ends and %d events behind", len(honest.text), honest.state, honest.ends, honest.after)
	}
	peak := int64(0)
	s.awaitMetric(openStreams, "all of them are let go", func(open float64) bool {
		now, err := s.Memory()
		if err != nil {
			t.Fatal(err)
		}
		peak = max(peak, now)
		return open == 0
	})
	t.Logf("%d readers that never read: the honest one had %d KiB after %s while %.0f were still held; memory %d MiB before, %d MiB at most",
		deafReaders, len(honest.text)>>10, took.Round(time.Millisecond), left, before>>20, peak>>20)
	if peak > mostDeafMemory {
		t.Errorf("%d readers that never read cost %d MiB, want %d at most", deafReaders, peak>>20, mostDeafMemory>>20)
	}
	crowd.leave() // connections on which nothing is under way may stay open
	s.awaitMetric("go_goroutines", "their connections and what served them are gone", func(now float64) bool { return now < goroutines+50 })
}
