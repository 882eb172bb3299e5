package bridge

import (
	"encoding/json"
	"slices"
	"strings"

	"inbox/agents/runtime/envelope"
	"inbox/internal/fault"
)

// collected keeps the messages of the older framework whose types belong to a collection (agent runtime contract, section 8):
// conversation, execution_trace, completion or planning. An empty name keeps all.
func collected(document Document, name string) ([]json.RawMessage, error) {
	if name == "" {
		return document.Messages, nil
	}

	if document.Format != FormatFramework {
		return nil, fault.InField("collection", "goes with the format "+FormatFramework+": envelopes have no collections")
	}
	collection := envelope.Collection(strings.ToUpper(name))
	if !slices.ContainsFunc(envelope.FrameworkTypes(), collection.Has) {
		return nil, fault.InField("collection", "must be conversation, execution_trace, completion or planning")
	}

	kept := make([]json.RawMessage, 0, len(document.Messages))
	for _, message := range document.Messages {
		var typed struct {
			Type envelope.FrameworkType `json:"type"`
		}
		if err := json.Unmarshal(message, &typed); err == nil && collection.Has(typed.Type) {
			kept = append(kept, message)
		}
	}

	return kept, nil
}
