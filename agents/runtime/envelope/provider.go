package envelope

import (
	"maps"
	"strings"

	"inbox/agents/runtime/value"
)

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

// parts gives the objects that a message brings into a merged one: those inside of it, or itself.
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
