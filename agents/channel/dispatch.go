package channel

import (
	"context"
	"fmt"

	"inbox/agents/runtime/envelope"
)

// Outgoing is a message that leaves without a question before it (agent runtime contract, section 6.2).
type Outgoing struct {
	Channel        string // which transport
	Recipient      string // in the transport's own form
	Text           string
	ConversationID string // "" = none
	Attachments    []any
	ClientContext  map[string]any
	Metadata       map[string]any
}

// ReadOutgoing reads the input of the dispatch-message action. Channel, recipient and message must be there.
func ReadOutgoing(value map[string]any) (Outgoing, error) {
	for _, member := range []string{"channel", "recipient", "message"} {
		if trimmed(value[member]) == "" {
			return Outgoing{}, invalid(member + " must be a non-empty string.")
		}
	}
	return Outgoing{
		Channel: trimmed(value["channel"]), Recipient: trimmed(value["recipient"]), Text: envelope.Scalar(value["message"]),
		ConversationID: trimmed(value["conversation_id"]), Attachments: envelope.Clone(envelope.Elements(value["attachments"])),
		ClientContext: envelope.Clone(envelope.Assoc(value["client_context"])), Metadata: envelope.Clone(envelope.Assoc(value["metadata"])),
	}, nil
}

// Value writes the action's input.
func (o Outgoing) Value() map[string]any {
	value := map[string]any{
		"channel": o.Channel, "recipient": o.Recipient, "message": o.Text, "attachments": filledList(o.Attachments),
		"client_context": filledObject(o.ClientContext), "metadata": filledObject(o.Metadata),
	}
	if o.ConversationID != "" {
		value["conversation_id"] = o.ConversationID
	}
	return value
}

// Transport sends an outgoing message and gives {sent, channel, recipient, message_id?, metadata?}. Members that it
// leaves out are filled in by Dispatch.
type Transport func(ctx context.Context, outgoing Outgoing) (map[string]any, error)

// Dispatch is the dispatch-message action: it reads the input, asks the transport and gives its result in the one form.
// A nil transport is an *Error of CodeNoDispatchHandler, a nil result one of CodeInvalidDispatch.
func Dispatch(ctx context.Context, value map[string]any, transport Transport) (map[string]any, error) {
	outgoing, err := ReadOutgoing(value)
	if err != nil {
		return nil, err
	}
	if transport == nil {
		return nil, &Error{CodeNoDispatchHandler, "No transport sends messages to this channel."}
	}
	sent, err := transport(ctx, outgoing)
	if err != nil {
		return nil, fmt.Errorf("dispatch message: %w", err)
	}
	if sent == nil {
		return nil, &Error{CodeInvalidDispatch, "The transport gave no result."}
	}
	return dispatched(outgoing, sent), nil
}

func dispatched(outgoing Outgoing, sent map[string]any) map[string]any {
	result := map[string]any{"sent": true, "channel": outgoing.Channel, "recipient": outgoing.Recipient}
	if said, is := sent["sent"]; is {
		result["sent"] = envelope.Truthy(said)
	}
	for _, member := range []string{"channel", "recipient", "message_id"} {
		if text := trimmed(sent[member]); text != "" {
			result[member] = text
		}
	}
	if metadata := envelope.Assoc(sent["metadata"]); len(metadata) > 0 {
		result["metadata"] = metadata
	}
	return result
}
