package a2a

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"inbox/internal/await"
	"inbox/internal/bearer"
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

// TestGRPCCallsEndWithTheirToken: a stream and a call that waits for its answer end when their token is revoked.
func TestGRPCCallsEndWithTheirToken(t *testing.T) {
	var uses *bearer.Uses
	b := setup(t, func(o *Options) {
		uses = bearer.NewUses(o.Tokens)
		o.Tokens = uses
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- uses.Run(ctx, noUses{}, func(err error) { t.Error(err) }) }()
	t.Cleanup(func() {
		stop()
		if err := await.Receive(t, ended, "the end of the uses of tokens"); err != nil {
			t.Error(err)
		}
	})
	asked, answer := make(chan struct{}, 2), make(chan struct{})
	b.engine.agent = func(ctx context.Context, _ *run) normalized.Response {
		asked <- struct{}{}
		hold(ctx, answer)
		return normalized.Response{Parts: []normalized.Part{normalized.Text("the words")}}
	}

	client := b.dial()
	stream, err := client.SendStreamingMessage(calling(b.ada), grpcMessage("m1", ""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := client.SendMessage(calling(b.ada), grpcMessage("m2", ""))
		sent <- err
	}()
	for range 2 {
		await.Receive(t, asked, "the agent to be asked")
	}

	b.engine.Revoke(b.ada)
	uses.Changed()
	wantStatus(t, await.Receive(t, sent, "the end of the call"), grpccodes.Unauthenticated, "UNAUTHENTICATED")
	for err = error(nil); err == nil; {
		var event *pb.StreamResponse
		if event, err = stream.Recv(); strings.Contains(event.String(), "the words") {
			t.Errorf("the stream has %v", event)
		}
	}
	wantStatus(t, err, grpccodes.Unauthenticated, "UNAUTHENTICATED")
	close(answer)
}

// noUses are rows of tokens that take every use.
type noUses struct{}

func (noUses) UseTokens(context.Context, map[string]time.Time) error { return nil }

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

// TestRefusedByGRPC: what JSON-RPC refuses is refused here, too, and the member is named.
func TestRefusedByGRPC(t *testing.T) {
	b := setup(t)
	client := b.dial()
	task := b.rpc(b.ada, "SendMessage", message("m1", "hello")).text(t, "result.task.id")
	below := int32(-1)
	text := []*pb.Part{{Content: &pb.Part_Text{Text: "x"}}}
	send := func(message *pb.Message, bounds *int32) error {
		request := &pb.SendMessageRequest{Message: message, Configuration: &pb.SendMessageConfiguration{HistoryLength: bounds}}
		_, err := client.SendMessage(calling(b.ada), request)
		return err
	}
	_, negative := client.GetTask(calling(b.ada), &pb.GetTaskRequest{Id: task, HistoryLength: &below})
	_, negativeList := client.ListTasks(calling(b.ada), &pb.ListTasksRequest{HistoryLength: &below})
	_, state := client.ListTasks(calling(b.ada), &pb.ListTasksRequest{Status: 99})
	_, get := client.GetTask(calling(b.ada), &pb.GetTaskRequest{})
	_, cancel := client.CancelTask(calling(b.ada), &pb.CancelTaskRequest{})
	_, hooks := client.ListTaskPushNotificationConfigs(calling(b.ada), &pb.ListTaskPushNotificationConfigsRequest{})
	subscription, err := client.SubscribeToTask(calling(b.ada), &pb.SubscribeToTaskRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, subscribe := subscription.Recv()
	for want, got := range map[string]error{
		"historyLength: must not":         negative,
		"historyLength: must not be":      negativeList,
		"status: is no task state":        state,
		"id: is needed":                   get,
		"id: is":                          cancel,
		"id:":                             subscribe,
		"taskId: is needed":               hooks,
		"message: is needed":              send(nil, nil),
		"message.messageId: is needed":    send(&pb.Message{Role: pb.Role_ROLE_USER, Parts: text}, nil),
		"message.role: must be ROLE_USER": send(&pb.Message{MessageId: "m2", Parts: text}, nil),
		"message.parts[1]: must have":     send(&pb.Message{MessageId: "m2", Role: pb.Role_ROLE_USER, Parts: append(text, &pb.Part{})}, nil),
		"message.parts: must have at":     send(&pb.Message{MessageId: "m2", Role: pb.Role_ROLE_USER}, nil),
		"configuration.historyLength":     send(&pb.Message{MessageId: "m2", Role: pb.Role_ROLE_USER, Parts: text}, &below),
	} {
		if said := status.Convert(got); said.Code() != grpccodes.InvalidArgument || !strings.HasPrefix(said.Message(), want) {
			t.Errorf("want %s: %v", want, got)
		}
	}
	if b.engine.receives != 1 {
		t.Errorf("%d turns were stored", b.engine.receives)
	}
}
