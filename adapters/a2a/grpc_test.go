package a2a

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"golang.org/x/net/http2"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"inbox/internal/await"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// dial serves the bundle by gRPC and returns a client.
func (b *bundle) dial() pb.A2AServiceClient {
	b.Helper()
	return pb.NewA2AServiceClient(b.connect())
}

// serveGRPC serves the bundle and returns its address.
func (b *bundle) serveGRPC() string {
	b.Helper()
	server := b.adapter.NewGRPC("127.0.0.1:0", nil, time.Second)
	if err := server.Listen(); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := await.Receive(b, ended, "the end of the gRPC server"); err != context.Canceled { //nolint:errorlint // it is returned as it is
			b.Errorf("Run ended with %v", err)
		}
	})
	return server.Addr().String()
}

func calling(token string, pairs ...string) context.Context {
	if token != "" {
		pairs = append(pairs, "authorization", "Bearer "+token)
	}
	return metadata.AppendToOutgoingContext(context.Background(), pairs...)
}

func grpcMessage(id, tenant string) *pb.SendMessageRequest {
	return &pb.SendMessageRequest{Tenant: tenant, Message: &pb.Message{
		MessageId: id, Role: pb.Role_ROLE_USER, Parts: []*pb.Part{{Content: &pb.Part_Text{Text: "hello"}}},
	}}
}

// wantStatus checks code and reason of an error: clients read the reason from its details.
func wantStatus(t *testing.T, err error, code grpccodes.Code, reason string) {
	t.Helper()
	got := status.Convert(err)
	if got.Code() != code {
		t.Errorf("status %v (%s), want %v", got.Code(), got.Message(), code)
	}
	for _, detail := range got.Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is && info.GetReason() == reason && info.GetDomain() == "a2a-protocol.org" {
			return
		}
	}
	t.Errorf("details %v do not give the reason %s", got.Details(), reason)
}

func TestGRPCAnswers(t *testing.T) {
	b := setup(t)
	client := b.dial()
	var header metadata.MD
	sent, err := client.SendMessage(calling(b.ada, "a2a-version", "1.0", "a2a-extensions", extensions[0].URI+",urn:other"),
		grpcMessage("m1", ""), grpc.Header(&header))
	if err != nil {
		t.Fatal(err)
	}
	task := sent.GetTask()
	if task.GetStatus().GetState() != pb.TaskState_TASK_STATE_COMPLETED || len(task.GetArtifacts()) != 1 {
		t.Errorf("task %v", task)
	}
	if active := header.Get("a2a-extensions"); len(active) != 1 || active[0] != extensions[0].URI {
		t.Errorf("active extensions %v", active)
	}
	again, err := client.SendMessage(calling(b.ada), grpcMessage("m1", ""))
	if err != nil || again.GetTask().GetId() != task.GetId() {
		t.Errorf("a repeat gave %v, %v", again, err)
	}
	if _, err := client.GetTask(calling(b.ada), &pb.GetTaskRequest{Id: task.GetId()}); err != nil {
		t.Error(err)
	}
	if _, err := client.SendMessage(calling(b.ada), grpcMessage("m2", "other")); err != nil {
		t.Errorf("the tenant names another agent: %v", err)
	}
}

func TestGRPCStreams(t *testing.T) {
	b := setup(t)
	stream, err := b.dial().SendStreamingMessage(calling(b.ada), grpcMessage("m1", ""))
	if err != nil {
		t.Fatal(err)
	}
	var last pb.TaskState
	for first := true; ; first = false {
		event, err := stream.Recv()
		if err == io.EOF { //nolint:errorlint // the end of a stream
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if first && event.GetTask() == nil {
			t.Errorf("the stream begins with %v, want the task", event)
		}
		if update := event.GetStatusUpdate(); update != nil {
			last = update.GetStatus().GetState()
		}
	}
	if last != pb.TaskState_TASK_STATE_COMPLETED {
		t.Errorf("the stream ended with %v", last)
	}
}

func TestGRPCRefusals(t *testing.T) {
	b := setup(t)
	client := b.dial()
	sent, err := client.SendMessage(calling(b.ada), grpcMessage("m1", ""))
	if err != nil {
		t.Fatal(err)
	}
	id := sent.GetTask().GetId()
	_, err = client.SendMessage(calling(""), grpcMessage("m2", ""))
	wantStatus(t, err, grpccodes.Unauthenticated, "UNAUTHENTICATED")
	_, err = client.SendMessage(calling(b.ada, "a2a-version", "99.0"), grpcMessage("m3", ""))
	wantStatus(t, err, grpccodes.FailedPrecondition, "VERSION_NOT_SUPPORTED")
	_, err = client.SendMessage(calling(b.ada), grpcMessage("m4", "nobody"))
	wantStatus(t, err, grpccodes.NotFound, "INVALID_REQUEST")
	_, err = client.SendMessage(calling(b.ada), &pb.SendMessageRequest{})
	wantStatus(t, err, grpccodes.InvalidArgument, "INVALID_PARAMS")
	_, foreign := client.GetTask(calling(b.bob), &pb.GetTaskRequest{Id: id})
	wantStatus(t, foreign, grpccodes.NotFound, "TASK_NOT_FOUND")
	_, missing := client.GetTask(calling(b.bob), &pb.GetTaskRequest{Id: "missing"})
	if foreign.Error() != missing.Error() {
		t.Errorf("a foreign task reads %q, a missing one %q", foreign, missing)
	}
	stream, err := client.SubscribeToTask(calling(b.bob), &pb.SubscribeToTaskRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantStatus(t, err, grpccodes.NotFound, "TASK_NOT_FOUND")
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
