package envelope

import (
	"maps"
	"math"
	"regexp"
	"strconv"
	"strings"

	"inbox/agents/runtime/value"
)

// Normalize reads one message of any age into the canonical envelope: typed envelopes, the early draft with `data` in
// the place of `payload`, and plain rows of role, content and metadata. Unknown members are dropped; normalizing twice
// changes nothing. Errors are of type *Error with code CodeEnvelope (agent runtime contract, sections 1.1 to 1.4).
func Normalize(given any) (Envelope, error) {
	message, is := value.Object(given)
	if !is {
		return Envelope{}, broken("message must be an array")
	}
	if Typed(message) {
		return fromTyped(message)
	}
	return fromPlain(message)
}

// NormalizeMany reads a list of messages and stops at the first bad one.
func NormalizeMany(given any) ([]Envelope, error) {
	list, is := value.List(given)
	if !is {
		return nil, broken("message must be an array")
	}

	envelopes := make([]Envelope, 0, len(list))
	for _, item := range list {
		envelope, err := Normalize(item)
		if err != nil {
			return nil, err
		}
		envelopes = append(envelopes, envelope)
	}
	return envelopes, nil
}

// Typed looks for the evidence of an envelope. A type without it belongs to someone else's row (agent runtime contract,
// section 1.1).
func Typed(given any) bool {
	message := value.Assoc(given)
	_, payload := message["payload"]
	_, data := message["data"]
	return message["version"] != nil && message["type"] != nil && (message["schema"] != nil || payload || data)
}

func fromTyped(message map[string]any) (Envelope, error) {
	if !versionOne(message["version"]) {
		return Envelope{}, broken("unsupported version")
	}

	kind := Type(value.Text(message["type"]))
	if !kind.Known() {
		return Envelope{}, broken("unsupported type")
	}

	payload := value.Assoc(message["payload"])
	if len(payload) == 0 {
		payload = value.Assoc(message["data"])
	}
	return build(message, kind, payload, value.Assoc(message["metadata"]))
}

func fromPlain(message map[string]any) (Envelope, error) {
	metadata := value.Assoc(message["metadata"])
	kind := infer(message["content"], metadata)
	return build(message, kind, extract(kind, metadata), metadata)
}

// canonical reports whether a message that normalizes without error is its own canonical form.
func canonical(message map[string]any) bool {
	version, _ := value.Integer(message["version"])
	_, payload := message["payload"].(map[string]any)
	_, metadata := message["metadata"].(map[string]any)
	members := 7
	for _, key := range []string{"id", "created_at", "updated_at"} {
		if value.Text(message[key]) != "" {
			members++
		}
	}

	return message["schema"] == Schema && version == Version && message["type"] != nil && message["role"] != nil &&
		message["content"] != nil && payload && metadata && len(message) == members
}

// infer finds the type of a row that does not say it in an envelope's way (section 1.3).
func infer(content any, metadata map[string]any) Type {
	hint := value.Text(metadata["type"])
	switch {
	case Type(hint).Known():
		return Type(hint)
	case hint == "multimodal", value.Container(content):
		return TypeMultimodalPart
	case metadata["error"] != nil:
		return TypeError
	}
	return TypeText
}

// moved are the members of a plain row's metadata that an envelope has in its payload.
var moved = map[Type][]string{
	TypeToolCall:   {"tool_name", "parameters", "turn"},
	TypeToolResult: {"tool_name", "success", "turn", "tool_data", "media", "error"},
}

func extract(kind Type, metadata map[string]any) map[string]any {
	payload := map[string]any{}
	for _, key := range moved[kind] {
		if member, there := metadata[key]; there {
			payload[key] = member
		}
	}
	return payload
}

// build checks role, then content, then whether everything can be written as JSON.
func build(source map[string]any, kind Type, payload, metadata map[string]any) (Envelope, error) {
	role, content := source["role"], source["content"]
	if role == nil {
		role = kind.DefaultRole()
	}
	if content == nil {
		content = ""
	}

	name := value.Text(role)
	if name == "" {
		return Envelope{}, broken("role must be a non-empty string")
	}
	if _, text := content.(string); !text && !value.Container(content) {
		return Envelope{}, broken("content must be a string or array")
	}
	if !value.Writable(content, 1) || !value.Writable(payload, 1) || !value.Writable(metadata, 1) {
		return Envelope{}, broken("envelope must be JSON serializable")
	}

	return Envelope{
		Type: kind, Role: name, Content: content, Payload: payload, Metadata: metadata,
		ID: value.Text(source["id"]), CreatedAt: value.Text(source["created_at"]), UpdatedAt: value.Text(source["updated_at"]),
	}, nil
}

var leadingNumber = regexp.MustCompile(`^[ \t\n\r\v\f]*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)`)

// versionOne accepts the integer 1 and every text whose number at the beginning is 1 after cutting its fraction.
func versionOne(given any) bool {
	text, is := given.(string)
	if !is {
		number, integer := value.Integer(given)
		return integer && number == Version
	}

	found := leadingNumber.FindStringSubmatch(text)
	if found == nil {
		return false
	}

	number, err := strconv.ParseFloat(strings.TrimPrefix(found[1], "+"), 64)
	return err == nil && math.Trunc(number) == Version
}

// Provider projects an envelope to the row of role, content and metadata that is made for a model provider's call and
// never stored. Type and payload go into the metadata without replacing what is there, except for the type.
func (e Envelope) Provider() map[string]any {
	row := map[string]any{"role": e.Role, "content": e.Content}
	if e.Type == TypeText && len(e.Payload) == 0 && len(e.Metadata) == 0 {
		return row
	}

	metadata := make(map[string]any, len(e.Metadata)+len(e.Payload)+1)
	maps.Copy(metadata, e.Payload)
	maps.Copy(metadata, e.Metadata)
	metadata["type"] = string(e.Type)
	row["metadata"] = metadata
	return row
}

// Coalesce merges runs of messages with the same role into one multimodal_part each, for providers that reject two
// messages of one role in a row. The parts keep the envelopes whole; the content joins their texts. A message that
// stands alone stays as it is, so coalescing twice changes nothing.
func Coalesce(list []Envelope) []Envelope {
	merged := make([]Envelope, 0, len(list))
	for start := 0; start < len(list); {
		end := start + 1
		for end < len(list) && list[end].Role == list[start].Role {
			end++
		}

		if end-start == 1 {
			merged = append(merged, list[start])
		} else {
			merged = append(merged, merge(list[start:end]))
		}
		start = end
	}

	return merged
}

func merge(run []Envelope) Envelope {
	var collected []any
	for _, e := range run {
		collected = append(collected, parts(e)...)
	}

	var texts []string
	for _, part := range collected {
		object := value.Assoc(part)
		if content := value.Text(object["content"]); content != "" && object["type"] == string(TypeText) {
			texts = append(texts, content)
		}
	}

	return Envelope{
		Type: TypeMultimodalPart, Role: run[0].Role, Content: strings.Join(texts, "\n\n"),
		Payload: map[string]any{"parts": collected}, Metadata: value.Filled(maps.Clone(run[0].Metadata)),
	}
}

// parts returns the objects that a message brings into a merged one: those inside of it, or itself.
func parts(e Envelope) []any {
	if e.Type != TypeMultimodalPart {
		return []any{e.Value()}
	}

	inside, _ := value.List(e.Payload["parts"])
	objects := make([]any, 0, len(inside))
	for _, part := range inside {
		if object, is := part.(map[string]any); is {
			objects = append(objects, object)
		}
	}

	if len(objects) == 0 {
		return []any{e.Value()}
	}

	return objects
}
