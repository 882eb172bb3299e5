package exchange

import (
	"bytes"
	"encoding/json"

	"inbox/normalized"
)

// RouteHistory is the member of Inbound.Route under which an adapter keeps what the sender says was said before its message: a list of
// Earlier, oldest first. The engine adds it to the histories of the thread. It is removed when the message is erased, and its files when
// the files of the message are.
const RouteHistory = "history"

// MaxEarlier bounds the messages under RouteHistory.
const MaxEarlier = 1000

// Earlier is a message that the sender of another one says came before it. Nothing proves it.
type Earlier struct {
	Role  string            `json:"role"`            // normalized.RoleUser or normalized.RoleAssistant
	Text  string            `json:"text,omitempty"`  // all of it where it is one plain text
	Parts []normalized.Part `json:"parts,omitempty"` // otherwise; bytes are content_addressed or at an address, never inline
}

// Contents returns the parts of the message.
func (e Earlier) Contents() []normalized.Part {
	if e.Text != "" {
		return []normalized.Part{normalized.Text(e.Text)}
	}
	return e.Parts
}

// EarlierIn reads what a route has under RouteHistory. Routes of all adapters may be given; nearly none has it.
func EarlierIn(route json.RawMessage) []Earlier {
	if !bytes.Contains(route, []byte(`"`+RouteHistory+`"`)) {
		return nil
	}
	var notes struct {
		History []Earlier `json:"history"`
	}
	_ = json.Unmarshal(route, &notes) // the adapter's own bytes; notes of another form have no such list
	return notes.History
}
