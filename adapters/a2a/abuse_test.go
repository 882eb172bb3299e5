package a2a

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"inbox/internal/await"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// TestCallerConcurrency: the requests of one caller that are under way are bounded on every binding, and those of others
// are not touched.
func TestCallerConcurrency(t *testing.T) {
	b := setup(t, func(o *Options) { o.CallerConcurrency = 2 })
	client := b.dial()
	running, release := make(chan struct{}, 2), make(chan struct{})
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		if r.turn.Message.Parts[0].Content == "wait" {
			running <- struct{}{}
			hold(ctx, release)
		}
		return echo(ctx, r)
	}
	held := make(chan reply, 1)
	go func() { held <- b.rpc(b.ada, "SendMessage", message("m1", "wait")) }()
	next, _ := b.open(b.ada, "/a2a/echo", call10("SendStreamingMessage", message("m2", "wait")))
	for range 2 {
		await.Receive(t, running, "the agent to work on both messages")
	}
	list := `{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}`
	for name, r := range map[string]reply{
		"JSON-RPC": b.do("POST", "/a2a/echo", b.ada, list), "REST": b.do("GET", "/a2a/echo/rest/tasks", b.ada, ""),
		"another agent": b.do("POST", "/a2a/other", b.ada, list),
		"0.3":           b.rpc(b.ada, "tasks/get", `{"id":"x"}`), "0.3 REST": b.do("GET", "/a2a/echo/v1/tasks/x", b.ada, ""),
	} {
		if r.status != http.StatusTooManyRequests || r.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	_, err := client.ListTasks(calling(b.ada), &pb.ListTasksRequest{Tenant: "echo"})
	if status.Code(err) != grpccodes.ResourceExhausted {
		t.Errorf("gRPC: %v", err)
	}
	if r := b.rpc(b.bob, "ListTasks", `{}`); r.status != http.StatusOK {
		t.Errorf("another caller: %d %s", r.status, r.body)
	}
	close(release)
	await.Receive(t, held, "the answer of the send")
	for _, ok := next(); ok; _, ok = next() {
		continue
	}
	if r := b.rpc(b.ada, "ListTasks", `{}`); r.status != http.StatusOK {
		t.Errorf("after the end of the others: %d %s", r.status, r.body)
	}
	b.adapter.limiter.mu.Lock()
	defer b.adapter.limiter.mu.Unlock()
	if len(b.adapter.limiter.open) > 1 { // the stream's handler may still be on its way out
		t.Errorf("callers are remembered: %v", b.adapter.limiter.open)
	}
}

func TestLargeMessagesAndHeadersOverGRPC(t *testing.T) {
	b := setup(t)
	client := b.dial()
	large := grpcMessage("m1", "echo")
	large.Message.Parts[0].Content = &pb.Part_Raw{Raw: bytes.Repeat([]byte{'x'}, maxBodyBytes+1)}
	if _, err := client.SendMessage(calling(b.ada), large); status.Code(err) != grpccodes.ResourceExhausted {
		t.Errorf("a message over the limit: %v", err)
	}
	if _, err := client.ListTasks(calling(b.ada, "x-large", strings.Repeat("x", maxGRPCHeaders)), &pb.ListTasksRequest{}); err == nil {
		t.Error("headers over the limit are taken")
	}
	if _, err := client.ListTasks(calling(b.ada), &pb.ListTasksRequest{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestPaceOfAddresses: an address that asks too often is put off before its request is read.
func TestPaceOfAddresses(t *testing.T) {
	var asked atomic.Int64
	b := setup(t, func(o *Options) {
		o.GRPCClient = httpserver.Networks{}.Client
		o.GRPCPace = func(remote netip.Addr) time.Duration {
			if remote.String() != "127.0.0.1" {
				t.Errorf("asked about %v", remote)
			}
			if asked.Add(1) > 2 {
				return time.Minute
			}
			return 0
		}
	})
	client := b.dial()
	for i, want := range []grpccodes.Code{grpccodes.OK, grpccodes.OK, grpccodes.ResourceExhausted} {
		if _, err := client.ListTasks(calling(b.ada), &pb.ListTasksRequest{Tenant: "echo"}); status.Code(err) != want {
			t.Errorf("request %d: %v", i+1, err)
		}
	}
}

// TestManyPings: a client that pings all the time is told to calm down and cut off.
func TestManyPings(t *testing.T) {
	b := setup(t)
	connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", b.serveGRPC())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(await.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(connection, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	frames := http2.NewFramer(connection, connection)
	if err := frames.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for i := byte(0); ; i++ {
			if frames.WritePing(false, [8]byte{i}) != nil {
				return
			}
		}
	}()
	for {
		frame, err := frames.ReadFrame()
		if err != nil {
			t.Fatalf("cut off without a word: %v", err)
		}
		if away, is := frame.(*http2.GoAwayFrame); is {
			if away.ErrCode != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("told %v", away.ErrCode)
			}
			return
		}
	}
}

// TestDroppedReadersOverGRPC: streams that are not read are dropped one by one, and a connection with many of them ends,
// because what they did not read stays in memory as long as it.
func TestDroppedReadersOverGRPC(t *testing.T) {
	b := setup(t, func(o *Options) { o.WriteTimeout = 3 * time.Second }) // long enough for readers that read
	begun, release := make(chan struct{}), make(chan struct{})
	b.engine.agent = func(ctx context.Context, r *run) normalized.Response {
		close(begun)
		hold(ctx, release)
		for range 64 {
			r.say(strings.Repeat("x", 64<<10))
		}
		return normalized.Response{Parts: []normalized.Part{normalized.Text("done")}}
	}
	address := b.serveGRPC()
	task := b.rpc(b.ada, "SendMessage", `{"configuration":{"returnImmediately":true},`+message("m1", "hello")[1:]).text(t, "result.task.id")
	await.Receive(t, begun, "the agent to be asked")
	deaf, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = deaf.Close() }()
	var streams []grpc.ServerStreamingClient[pb.StreamResponse]
	bounded, end := context.WithTimeout(calling(b.ada), 2*time.Minute)
	defer end()
	for range maxDropped {
		stream, err := pb.NewA2AServiceClient(deaf).SubscribeToTask(bounded, &pb.SubscribeToTaskRequest{Tenant: "echo", Id: task})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil { // the snapshot, and nothing more
			t.Fatal(err)
		}
		streams = append(streams, stream)
	}
	close(release)
	if r := b.rpc(b.ada, "SendMessage", message("m1", "hello")); r.text(t, "result.task.status.state") != "TASK_STATE_COMPLETED" { // waits for the same turn
		t.Errorf("the run was held up: %.200s", r.body)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for state := deaf.GetState(); state == connectivity.Ready; state = deaf.GetState() { // it may be cut off already
		if !deaf.WaitForStateChange(ctx, state) {
			t.Fatal("a connection whose streams are not read was not cut off within a minute")
		}
	}
	for i, stream := range streams {
		for {
			if _, err = stream.Recv(); err != nil {
				break
			}
		}
		if errors.Is(err, io.EOF) {
			t.Errorf("stream %d ended as if it had been read", i)
		}
	}
}

// TestBodiesOverTheLimit: on every binding, also without a length.
func TestBodiesOverTheLimit(t *testing.T) {
	b := setup(t)
	long := strings.Repeat("x", maxBodyBytes)
	for _, path := range []string{"/a2a/echo", "/a2a/echo/rest/message:send", "/a2a/echo/v1/message:send"} {
		for _, chunked := range []bool{false, true} {
			var body io.Reader = strings.NewReader(message("m1", long))
			if chunked {
				body = io.MultiReader(body)
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+path, body)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer "+b.ada)
			request.Header.Set("Content-Type", "application/json")
			response, err := b.client.Do(request)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			_ = response.Body.Close()
			if response.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("%s, chunked %v: %d", path, chunked, response.StatusCode)
			}
		}
	}
	if len(b.engine.inbounds) > 0 {
		t.Errorf("%d messages arrived", len(b.engine.inbounds))
	}
}
