package contract

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"

	"inbox/agents/runtime/value"
)

// Status is what came of the last attempt to deliver an item. It removes nothing.
type Status string

// The statuses (agent runtime contract, section 6.4).
const (
	Pending   Status = "pending"
	Delivered Status = "delivered"
	Failed    Status = "failed"
)

// Item is one text for a client. An empty string stands for a member that is null.
type Item struct {
	ID          string // unique among all clients
	ClientID    string // a Slug; the client needs no registration
	ConnectorID string // a Slug
	Agent       string // a Slug
	SessionID   string
	Role        string // assistant, system or tool
	Content     string
	Completed   bool   // false = the agent wants something more
	CreatedAt   string // ISO 8601
	Status      Status
	Metadata    map[string]any
}

var (
	roles    = []string{"assistant", "system", "tool"}
	statuses = []Status{Pending, Delivered, Failed}
)

// ReadItem reads the JSON text of an item of at most twice MaxContentBytes.
func ReadItem(data []byte) (Item, error) {
	given, err := value.Decode(data, value.Limits{Bytes: 2 * MaxContentBytes})
	if err != nil {
		return Item{}, fmt.Errorf("read queue item: %w", err)
	}
	object, is := value.Object(given)
	if !is {
		return Item{}, invalid("a queue item must be an object.")
	}
	return NormalizeItem(object)
}

// NormalizeItem brings an item into its one form: an id is made if there is none, and everything else that may be
// missing gets its default. Its errors are *Error with CodeInvalid (agent runtime contract, section 6.4).
func NormalizeItem(given map[string]any) (Item, error) {
	item := Item{
		ID: value.Word(either(given["queue_id"], newID)), ClientID: slugOf(given["client_id"]),
		ConnectorID: slugOf(given["connector_id"]), Agent: slugOf(given["agent"]), SessionID: value.Word(given["session_id"]),
		Role: slugOf(or(given["role"], "assistant")), Content: value.Word(given["content"]),
		Completed: value.Truthy(or(given["completed"], true)), CreatedAt: timestamp(given["created_at"]),
		Status: Status(slugOf(or(given["delivery_status"], string(Pending)))), Metadata: value.Clone(value.Assoc(given["metadata"])),
	}
	return item, item.check()
}

func (i Item) check() error {
	switch {
	case i.ID == "":
		return invalid("queue_id must be non-empty.")
	case i.ClientID == "":
		return invalid("client_id must be a non-empty slug.")
	case i.Agent == "":
		return invalid("agent must be a non-empty slug.")
	case !slices.Contains(roles, i.Role):
		return invalid("role must be assistant, system, or tool.")
	case i.Content == "":
		return invalid("content must be non-empty.")
	case !slices.Contains(statuses, i.Status):
		return invalid("delivery_status must be pending, delivered, or failed.")
	case len(i.Content) > MaxContentBytes:
		return invalid("content must not be longer than 1 MiB.")
	case max(len(i.ID), len(i.ClientID), len(i.ConnectorID), len(i.Agent), len(i.SessionID)) > MaxIDBytes:
		return invalid("ids must not be longer than 255 bytes.")
	}
	return nil
}

// Value writes the item with all members of the contract.
func (i Item) Value() map[string]any {
	return map[string]any{
		"queue_id": i.ID, "client_id": i.ClientID, "connector_id": value.OrNull(i.ConnectorID), "agent": i.Agent,
		"session_id": value.OrNull(i.SessionID), "role": i.Role, "content": i.Content, "completed": i.Completed,
		"created_at": i.CreatedAt, "delivery_status": string(i.Status), "metadata": value.Filled(i.Metadata),
	}
}

// WithStatus returns a copy with another delivery status, which is read like the one of an item.
func (i Item) WithStatus(status string) (Item, error) {
	i.Status = Status(Slug(status))
	i.Metadata = value.Clone(i.Metadata)
	return i, i.check()
}

func newID() any {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails since Go 1.24
	return "bridge_" + hex.EncodeToString(random)
}

func or(value, fallback any) any {
	if value == nil {
		return fallback
	}
	return value
}

func either(value any, fallback func() any) any {
	if value == nil {
		return fallback()
	}
	return value
}
