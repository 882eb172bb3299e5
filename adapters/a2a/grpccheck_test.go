package a2a

import (
	"strings"
	"testing"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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
