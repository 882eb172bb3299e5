package request

import (
	"maps"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
)

func blank(given string) bool { return value.Trim(given) == "" }

// container keeps objects and lists; everything else becomes an empty object.
func container(given any) any {
	if value.Container(given) {
		return given
	}
	return map[string]any{}
}

// citedMetadata keeps metadata and brings its citations into form.
func citedMetadata(value any) any {
	metadata, ok := container(value).(map[string]any)
	if !ok {
		return value
	}
	raw, cited := metadata["citations"]
	if !cited {
		return metadata
	}
	metadata = maps.Clone(metadata)
	metadata["citations"] = envelope.Citations(raw)
	return metadata
}
