package bridge

import (
	"encoding/json"

	"inbox/exchange"
)

// Surfaces of a route.
const (
	surfaceBridge    = "bridge"
	surfaceConnector = "connector"
)

// Ways by which an answer leaves.
const (
	wayQueue    = "queue"    // the client fetches it from its queue
	wayCallback = "callback" // the connector's callback is called
	wayResponse = "response" // the caller waits for it, or asks again
)

// route is what this adapter keeps with every turn. It never leaves the server.
type route struct {
	Surface      string `json:"surface"` // tells our turns from those of others
	Owner        string `json:"owner"`   // of the session
	Session      string `json:"session"`
	Way          string `json:"way"`
	Client       string `json:"client,omitempty"` // whose queue
	Connector    string `json:"connector,omitempty"`
	Provider     string `json:"provider,omitempty"`
	Conversation string `json:"conversation,omitempty"`
	ExternalID   string `json:"external_id,omitempty"` // of the message, as the other product has it
	Person       string `json:"person,omitempty"`      // who wrote it there
	Room         string `json:"room,omitempty"`
	Digest       string `json:"digest"`             // of the message: tells a repeat from another message with the same id
	Run          string `json:"run,omitempty"`      // of a chat client; not ours
	Imported     bool   `json:"imported,omitempty"` // it begins a session into which an earlier conversation was imported
}

func readRoute(raw json.RawMessage) route {
	var r route
	_ = json.Unmarshal(raw, &r) // our own bytes, or those of A2A and chat, which have no member surface
	return r
}

// Awaits reports whether the caller of a question waits for the answer, which no queue and no callback brings.
func (*Adapter) Awaits(kept json.RawMessage) bool { return readRoute(kept).Way == wayResponse }

// ownerOf returns to whom a turn belongs: the owner of its session, or its sender where it came another way.
func ownerOf(turn exchange.TurnRecord) string {
	if r := readRoute(turn.Route); r.Surface != "" {
		return r.Owner
	}
	return turn.Principal
}
