package a2a

import (
	"context"
	"iter"
	"strconv"
	"unicode/utf8"

	"github.com/a2aproject/a2a-go/v2/a2a"
	pb1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protov2 "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"inbox/internal/boundedjson"
)

// boundedCodec reads requests of gRPC within the bounds of those in JSON. A message that is out of them, or none at all, is
// handed on empty with a note in its unknown fields, because gRPC answers an error of a codec itself: with INTERNAL and
// the text of its own decoder.
type boundedCodec struct{ encoding.CodecV2 }

func newBoundedCodec() boundedCodec { return boundedCodec{encoding.GetCodecV2(proto.Name)} }

// noteField is a field number that no message of the protocol has: the note is one varint, a key of codecNotes.
const noteField = protowire.Number(536_870_911)

const (
	noteMalformed = iota + 1
	noteTooDeep
	noteTooMany
	noteNotUTF8
)

// Unmarshal counts a request before it is decoded.
func (c boundedCodec) Unmarshal(data mem.BufferSlice, into any) error {
	message, is := into.(protov2.Message)
	if !is {
		return c.CodecV2.Unmarshal(data, into)
	}

	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	encoded := buffer.ReadOnlyData()
	counted := wireCounter{}
	note := counted.message(encoded, message.ProtoReflect().Descriptor(), 1)
	if note == 0 && protov2.Unmarshal(encoded, message) != nil {
		note = noteMalformed
	}
	if note != 0 {
		protov2.Reset(message)
		message.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, noteField, protowire.VarintType), note))
	}

	return nil
}

// wireCounter counts fields and nesting of an encoded message, and looks whether its texts are UTF-8.
type wireCounter struct{ values int }

func (c *wireCounter) message(encoded []byte, kind protoreflect.MessageDescriptor, depth int) (note uint64) {
	// A value of a Struct nests in three messages where JSON nests once.
	if depth > 3*maxRequestDepth {
		return noteTooDeep
	}

	for len(encoded) > 0 {
		if c.values++; c.values > 3*maxRequestValues {
			return noteTooMany
		}

		number, wireType, size := protowire.ConsumeTag(encoded)
		if size < 0 {
			return noteMalformed
		}

		encoded = encoded[size:]
		length := protowire.ConsumeFieldValue(number, wireType, encoded)
		if length < 0 {
			return noteMalformed
		}

		field := kind.Fields().ByNumber(number)
		if field != nil && wireType == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(encoded)
			switch field.Kind() {
			case protoreflect.MessageKind:
				if note := c.message(content, field.Message(), depth+1); note != 0 {
					return note
				}
			case protoreflect.StringKind:
				if !utf8.Valid(content) {
					return noteNotUTF8
				}
			}
		}

		encoded = encoded[length:]
	}

	return 0
}

// codecProblem is what the codec noted of a request; nil when it was read.
func codecProblem(request any) *problem {
	message, is := request.(protov2.Message)
	if !is {
		return nil
	}

	number, kind, size := protowire.ConsumeTag(message.ProtoReflect().GetUnknown())
	if size < 0 || number != noteField || kind != protowire.VarintType {
		return nil
	}

	note, _ := protowire.ConsumeVarint(message.ProtoReflect().GetUnknown()[size:])
	switch note {
	case noteTooDeep:
		return outOfBounds(&boundedjson.Error{Reason: boundedjson.TooDeep, Limit: maxRequestDepth})
	case noteTooMany:
		return outOfBounds(&boundedjson.Error{Reason: boundedjson.TooMany, Limit: maxRequestValues})
	case noteNotUTF8:
		return newProblem(a2a.ErrInvalidParams, "a text of the request is not valid UTF-8")
	}

	return newProblem(a2a.ErrInvalidParams, "the request cannot be read")
}

// checkGRPC refuses what the SDK takes for unset or refuses without saying why: a bound below zero, a state that is none, a
// member that is missing. It names the member as JSON does, so that one problem reads alike by every binding.
func checkGRPC(request any) *problem {
	switch asked := request.(type) {
	case *pb1.SendMessageRequest:
		if p := checkGRPCMessage(asked.GetMessage()); p != nil {
			return p
		}
		if bounds := asked.GetConfiguration(); bounds != nil {
			return notNegative("configuration.historyLength", bounds.HistoryLength)
		}
	case *pb1.GetTaskRequest:
		if p := named("id", asked.GetId()); p != nil {
			return p
		}
		return notNegative("historyLength", asked.HistoryLength)
	case *pb1.CancelTaskRequest:
		return named("id", asked.GetId())
	case *pb1.SubscribeToTaskRequest:
		return named("id", asked.GetId())
	case *pb1.ListTasksRequest:
		if _, known := pb1.TaskState_name[int32(asked.GetStatus())]; !known {
			return inField("status", "is no task state")
		}
		return notNegative("historyLength", asked.HistoryLength)
	}

	if webhook, is := request.(interface{ GetTaskId() string }); is {
		return named("taskId", webhook.GetTaskId())
	}
	return nil
}

func checkGRPCMessage(message *pb1.Message) *problem {
	switch {
	case message == nil:
		return inField("message", "is needed")
	case message.GetMessageId() == "":
		return inField("message.messageId", "is needed")
	case message.GetRole() != pb1.Role_ROLE_USER:
		return inField("message.role", "must be ROLE_USER")
	}

	for i, part := range message.GetParts() {
		if part.GetContent() == nil {
			return inField("message.parts["+strconv.Itoa(i)+"]", "must have exactly one of text, raw, url and data")
		}
	}

	return nil
}

func named(field, id string) *problem {
	if id == "" {
		return inField(field, "is needed")
	}
	return nil
}

func notNegative(field string, number *int32) *problem {
	if number == nil || *number >= 0 {
		return nil
	}
	return inField(field, "must not be negative")
}

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
	eachMessage(message, func(one protoreflect.ProtoMessage) bool {
		part, is := one.(*pb1.Part)
		if !is {
			return true
		}

		if holder, has := part.GetContent().(*pb1.Part_Data); has {
			if fields := holder.Data.GetStructValue().GetFields(); len(fields) == 1 && fields[valueMember] != nil {
				holder.Data = fields[valueMember]
			}
		}
		return false
	})
}

// eachMessage visits a message and those in it, but for the values of maps. Visit reports whether to go into the one that it got.
func eachMessage(message protoreflect.Message, visit func(protoreflect.ProtoMessage) (inside bool)) {
	if !visit(message.Interface()) {
		return
	}

	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range value.List().Len() {
				eachMessage(value.List().Get(i).Message(), visit)
			}
		default:
			eachMessage(value.Message(), visit)
		}
		return true
	})
}
