package a2a

import (
	"context"
	"strings"
	"testing"

	a2apb0 "github.com/a2aproject/a2a-go/a2apb"
	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

func nested(levels int) *structpb.Value {
	value := structpb.NewNumberValue(1)
	for range levels {
		value = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{value}})
	}
	return value
}

// TestDeepStructsAreRefused: gRPC has the bounds of JSON, in both versions, also where the first message is that of a stream.
func TestDeepStructsAreRefused(t *testing.T) {
	b := setup(t)
	connection := b.connect()
	one, old := pb.NewA2AServiceClient(connection), a2apb0.NewA2AServiceClient(connection)
	wide := &structpb.ListValue{}
	for range 2 * maxRequestValues {
		wide.Values = append(wide.Values, structpb.NewNullValue())
	}
	for name, value := range map[string]*structpb.Value{"deep": nested(2 * maxRequestDepth), "very deep": nested(9000), "wide": structpb.NewListValue(wide)} {
		request := grpcMessage("m", "echo")
		request.Message.Parts = []*pb.Part{{Content: &pb.Part_Data{Data: value}}}
		_, err := one.SendMessage(calling(b.ada), request)
		wantStatus(t, err, grpccodes.InvalidArgument, "INVALID_PARAMS")
		stream, err := one.SendStreamingMessage(calling(b.ada), request)
		if err == nil {
			_, err = stream.Recv()
		}
		wantStatus(t, err, grpccodes.InvalidArgument, "INVALID_PARAMS")
		before := request0("m", "")
		before.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"x": value}}
		_, err = old.SendMessage(calling(b.ada), before)
		wantStatus(t, err, grpccodes.InvalidArgument, "INVALID_PARAMS")
		if b.engine.receives != 0 {
			t.Fatalf("%s was taken", name)
		}
	}
	request := grpcMessage("m", "echo")
	request.Message.Parts = []*pb.Part{{Content: &pb.Part_Data{Data: nested(maxRequestDepth / 2)}}}
	if _, err := one.SendMessage(calling(b.ada), request); err != nil {
		t.Errorf("within the bounds: %v", err)
	}
}

// rawCodec sends bytes as they are.
type rawCodec struct{ encoding.CodecV2 }

func (c rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if raw, is := v.([]byte); is {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// TestInvalidUTF8IsRefused: broken text is an error of the request by every binding and nothing of it is stored.
func TestInvalidUTF8IsRefused(t *testing.T) {
	b := setup(t)
	const broken = "a\xff\xfeb"
	rpc := func(method, params string) reply {
		return b.do("POST", "/a2a/echo", b.ada, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
	}
	for name, r := range map[string]reply{
		"text":     rpc("SendMessage", message("m1", broken)),
		"metadata": rpc("SendMessage", `{"message":{"messageId":"m2","role":"ROLE_USER","parts":[{"text":"x"}],"metadata":{"k":"`+broken+`"}}}`),
		"id":       rpc("SendMessage", message("m"+broken, "x")),
		"0.3":      rpc("message/send", `{"message":{"kind":"message","messageId":"m3","role":"user","parts":[{"kind":"text","text":"`+broken+`"}]}}`),
		"stream":   rpc("SendStreamingMessage", message("m4", broken)),
		"get":      rpc("GetTask", `{"id":"`+broken+`"}`),
	} {
		if r.at(t, "error.code") != -32700.0 {
			t.Errorf("JSON-RPC, %s: %s", name, r.body)
		}
	}
	for _, path := range []string{"/a2a/echo/rest/message:send", "/a2a/echo/rest/message:stream", "/a2a/echo/v1/message:send"} {
		r := b.do("POST", path, b.ada, strings.Replace(message("m5", broken), "parts", map[bool]string{true: "content", false: "parts"}[strings.Contains(path, "/v1/")], 1))
		if r.status != 400 || r.text(t, "error.status") != "INVALID_ARGUMENT" {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if r := b.do("GET", "/a2a/echo/rest/tasks?contextId=%ff", b.ada, ""); r.status != 200 || r.at(t, "tasks.#") != 0.0 {
		t.Errorf("a context that is no text: %d %s", r.status, r.body)
	}
	codec := rawCodec{encoding.GetCodecV2(grpcproto.Name)}
	connection, err := grpc.NewClient(b.serveGRPC(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	for _, method := range []string{"/lf.a2a.v1.A2AService/SendMessage", "/a2a.v1.A2AService/SendMessage", "/lf.a2a.v1.A2AService/GetTask"} {
		// The second field is the message of SendMessage in 1.0, the first that of 0.3; both have the id as their first.
		for _, raw := range [][]byte{[]byte("\x12\x04\x0a\x02a\xff"), []byte("\x0a\x04\x0a\x02a\xff"), []byte("\xff")} {
			err := connection.Invoke(context.WithoutCancel(calling(b.ada)), method, raw, &pb.SendMessageResponse{})
			wantStatus(t, err, grpccodes.InvalidArgument, "INVALID_PARAMS")
		}
	}
	if b.engine.receives != 0 {
		t.Errorf("%d messages were taken", b.engine.receives)
	}
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
