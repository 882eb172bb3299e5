package request

import (
	"maps"

	"inbox/agents/runtime/envelope"
)

func blank(value string) bool { return envelope.Trim(value) == "" }

// container keeps objects and lists; everything else becomes an empty object.
func container(value any) any {
	if envelope.Container(value) {
		return value
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
