package contract

import (
	"regexp"
	"slices"

	"inbox/agents/runtime/value"
)

// Kinds of rooms. Where the other product has no notion of rooms a message has none.
const (
	RoomDirect  = "dm"
	RoomGroup   = "group"
	RoomChannel = "channel"
)

// Message is what every connector makes of its product's payload (agent runtime contract, section 6.2). An empty string
// stands for a member that is null.
type Message struct {
	Text           string // trimmed; may be empty
	ConnectorID    string // which connector, [a-z0-9][a-z0-9-]*
	Provider       string // which network, the same grammar
	ConversationID string // opaque, as the next two
	MessageID      string
	SenderID       string
	FromSelf       bool   // the connector's own message came back
	RoomKind       string // RoomDirect, RoomGroup, RoomChannel or ""
	Attachments    []any  // of whatever form connector and agent agree on
	Raw            map[string]any
}

var name = regexp.MustCompile(`\A[a-z0-9][a-z0-9-]*\z`)

// NormalizeMessage brings an external message into its one form. Its errors are *Error with CodeInvalid.
func NormalizeMessage(given map[string]any) (Message, error) {
	message := Message{
		Text:           value.Trim(value.Scalar(given["text"])),
		ConnectorID:    dashed(value.Scalar(given["connector_id"])),
		Provider:       dashed(value.Scalar(given["external_provider"])),
		ConversationID: value.Word(given["external_conversation_id"]),
		MessageID:      value.Word(given["external_message_id"]),
		SenderID:       value.Word(given["sender_id"]),
		FromSelf:       value.Truthy(given["from_self"]),
		RoomKind:       value.Word(given["room_kind"]),
		Attachments:    value.Clone(value.Elements(given["attachments"])),
		Raw:            value.Clone(value.Assoc(given["raw"])),
	}
	return message, message.check()
}

func (m Message) check() error {
	switch {
	case !name.MatchString(m.ConnectorID):
		return invalid("connector_id must be a non-empty slug.")
	case !name.MatchString(m.Provider):
		return invalid("external_provider must be a non-empty slug.")
	case !slices.Contains([]string{"", RoomDirect, RoomGroup, RoomChannel}, m.RoomKind):
		return invalid("room_kind must be dm, group, channel, or null.")
	}
	return nil
}

// Value writes the message with all members of the contract.
func (m Message) Value() map[string]any {
	return map[string]any{
		"text": m.Text, "connector_id": m.ConnectorID, "external_provider": m.Provider,
		"external_conversation_id": value.OrNull(m.ConversationID), "external_message_id": value.OrNull(m.MessageID),
		"sender_id": value.OrNull(m.SenderID), "from_self": m.FromSelf, "room_kind": value.OrNull(m.RoomKind),
		"attachments": value.FilledList(m.Attachments), "raw": value.Filled(m.Raw),
	}
}

// SourceChannel is the usual source of a client_context from a channel.
const SourceChannel = "channel"

// ClientContext is what an agent gets to know about where the message came from; an empty source is SourceChannel.
func (m Message) ClientContext(source string) map[string]any {
	if source == "" {
		source = SourceChannel
	}
	return map[string]any{
		"source": source, "connector_id": m.ConnectorID, "client_name": m.ConnectorID, "external_provider": m.Provider,
		"external_conversation_id": value.OrNull(m.ConversationID), "external_message_id": value.OrNull(m.MessageID),
		"sender_id": value.OrNull(m.SenderID), "room_kind": value.OrNull(m.RoomKind),
	}
}
