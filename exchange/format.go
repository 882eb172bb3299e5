package exchange

import (
	"bytes"
	"encoding/json"
)

// RouteFormat is the member of Inbound.Route under which an adapter keeps the form that the sender wants the answer to have: a Format. It is
// removed when the message is erased.
const RouteFormat = "format"

// Kinds of a Format.
const (
	FormatObject = "json_object" // any JSON object
	FormatSchema = "json_schema" // JSON of Format.Schema
)

// MaxFormat bounds the schema of a Format, in bytes.
const MaxFormat = 64 << 10

// Format is the form that an answer has to have. An agent that cannot hold its answers to it is not asked for it.
type Format struct {
	Kind        string          `json:"kind"`
	Name        string          `json:"name,omitempty"`        // of the schema
	Description string          `json:"description,omitempty"` // for the model
	Schema      json.RawMessage `json:"schema,omitempty"`      // a JSON Schema
	Strict      bool            `json:"strict,omitempty"`      // an answer that breaks the schema is none
}

// FormatIn reads what a route has under RouteFormat; nil = nothing. Nearly no route has it.
func FormatIn(route json.RawMessage) *Format {
	if !bytes.Contains(route, []byte(`"`+RouteFormat+`":{`)) {
		return nil
	}
	var notes struct {
		Format *Format `json:"format"`
	}
	_ = json.Unmarshal(route, &notes) // the adapter's own bytes; notes of another form have none
	if notes.Format == nil || notes.Format.Kind == "" {
		return nil
	}
	return notes.Format
}
