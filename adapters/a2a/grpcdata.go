package a2a

import (
	"context"
	"iter"

	"github.com/a2aproject/a2a-go/v2/a2a"
	pb1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// grpcHandler answers calls of gRPC 1.0. The SDK writes only objects as data and fails for a whole answer that has another value:
// such a value goes through it as the only member, valueMember, of an object, which fitGRPC takes away again.
type grpcHandler struct{ *handler }

const valueMember = "\x00value"

// SendMessage is handler.SendMessage.
func (h grpcHandler) SendMessage(ctx context.Context, req *a2a.SendMessageRequest) (a2a.SendMessageResult, error) {
	result, err := h.handler.SendMessage(ctx, req)
	wrapEvent(result)
	return result, err
}

// GetTask is handler.GetTask.
func (h grpcHandler) GetTask(ctx context.Context, req *a2a.GetTaskRequest) (*a2a.Task, error) {
	task, err := h.handler.GetTask(ctx, req)
	wrapTask(task)
	return task, err
}

// CancelTask is handler.CancelTask.
func (h grpcHandler) CancelTask(ctx context.Context, req *a2a.CancelTaskRequest) (*a2a.Task, error) {
	task, err := h.handler.CancelTask(ctx, req)
	wrapTask(task)
	return task, err
}

// ListTasks is handler.ListTasks.
func (h grpcHandler) ListTasks(ctx context.Context, req *a2a.ListTasksRequest) (*a2a.ListTasksResponse, error) {
	list, err := h.handler.ListTasks(ctx, req)
	if list != nil {
		for _, task := range list.Tasks {
			wrapTask(task)
		}
	}
	return list, err
}

// SendStreamingMessage is handler.SendStreamingMessage.
func (h grpcHandler) SendStreamingMessage(ctx context.Context, req *a2a.SendMessageRequest) iter.Seq2[a2a.Event, error] {
	return wrapped(h.handler.SendStreamingMessage(ctx, req))
}

// SubscribeToTask is handler.SubscribeToTask.
func (h grpcHandler) SubscribeToTask(ctx context.Context, req *a2a.SubscribeToTaskRequest) iter.Seq2[a2a.Event, error] {
	return wrapped(h.handler.SubscribeToTask(ctx, req))
}

func wrapped(events iter.Seq2[a2a.Event, error]) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		for event, err := range events {
			wrapEvent(event)
			if !yield(event, err) {
				return
			}
		}
	}
}

func wrapEvent(event any) {
	switch e := event.(type) {
	case *a2a.Task:
		wrapTask(e)
	case *a2a.Message:
		wrapMessage(e)
	case *a2a.TaskStatusUpdateEvent:
		wrapMessage(e.Status.Message)
	case *a2a.TaskArtifactUpdateEvent:
		wrapParts(e.Artifact.Parts)
	}
}

func wrapTask(task *a2a.Task) {
	if task == nil {
		return
	}
	wrapMessage(task.Status.Message)
	for _, message := range task.History {
		wrapMessage(message)
	}
	for _, artifact := range task.Artifacts {
		wrapParts(artifact.Parts)
	}
}

func wrapMessage(message *a2a.Message) {
	if message != nil {
		wrapParts(message.Parts)
	}
}

func wrapParts(parts a2a.ContentParts) {
	for _, part := range parts {
		data, is := part.Content.(a2a.Data)
		if _, object := data.Value.(map[string]any); is && !object {
			part.Content = a2a.Data{Value: map[string]any{valueMember: data.Value}}
		}
	}
}

// unwrapData takes the wrapping away in a message of the .proto form.
func unwrapData(message protoreflect.Message) {
	if part, is := message.Interface().(*pb1.Part); is {
		if holder, has := part.GetContent().(*pb1.Part_Data); has {
			if fields := holder.Data.GetStructValue().GetFields(); len(fields) == 1 && fields[valueMember] != nil {
				holder.Data = fields[valueMember]
			}
		}
		return
	}
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range value.List().Len() {
				unwrapData(value.List().Get(i).Message())
			}
		default:
			unwrapData(value.Message())
		}
		return true
	})
}
