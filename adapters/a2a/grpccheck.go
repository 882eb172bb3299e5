package a2a

import (
	"strconv"

	pb1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
)

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
