package loop

import (
	"maps"
	"math"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
)

// stats count items and the bytes of their content.
type stats struct{ items, bytes int }

func (s stats) object() map[string]any {
	return map[string]any{"item_count": s.items, "byte_count": s.bytes}
}

func statsOf(messages []envelope.Envelope) stats {
	total := stats{items: len(messages)}
	for i := range messages {
		total.bytes += bytesOf(messages[i].Content)
	}
	return total
}

func statsOfAny(items []any) stats {
	total := stats{items: len(items)}
	for _, item := range items {
		total.bytes += contentBytes(item)
	}
	return total
}

// contentBytes is the length of a string content, or of the JSON of any other; an item without content counts whole.
func contentBytes(item any) int {
	content := item
	if object, is := item.(map[string]any); is {
		if value, has := object["content"]; has {
			content = value
		}
	}
	return bytesOf(content)
}

func bytesOf(content any) int {
	if text, is := content.(string); is {
		return len(text)
	}
	return jsonSize(content)
}

// provenance says where the bytes of a transcript went.
type provenance struct{ original, compacted, retained, archived stats }

// conservation writes the metadata of a compaction: extra members, then policy, provenance, summarizer and the check
// that not too much was lost (agent runtime contract, section 3.9).
func conservation(policy map[string]any, counts provenance, extra map[string]any) map[string]any {
	metadata := map[string]any{}
	maps.Copy(metadata, extra)
	metadata["policy"] = policy
	metadata["provenance"] = map[string]any{
		"original": counts.original.object(), "compacted": counts.compacted.object(),
		"retained": counts.retained.object(), "archived": counts.archived.object(),
	}
	metadata["summarizer"] = map[string]any{
		"provider": value.Text(policy["summary_provider"]), "model": value.Text(policy["summary_model"]),
	}
	metadata["conservation"] = conservationCheck(policy, counts)
	return metadata
}

func conservationCheck(policy map[string]any, counts provenance) map[string]any {
	enabled, closes := value.Truthy(policy["conservation_enabled"]), true
	if given := policy["fail_on_conservation_failure"]; given != nil {
		closes = value.Truthy(given)
	}
	least := 1.0
	if given := policy["minimum_conserved_byte_ratio"]; given != nil {
		least = max(0, value.Finite(value.Float(given)))
	}
	conserved := counts.compacted.bytes + counts.retained.bytes + counts.archived.bytes
	required := int(min(math.Ceil(float64(counts.original.bytes)*least), math.MaxInt32))
	ratio := 1.0
	if counts.original.bytes > 0 {
		ratio = float64(conserved) / float64(counts.original.bytes)
	}
	passed := !enabled || conserved >= required
	return map[string]any{
		"enabled": enabled, "minimum_conserved_byte_ratio": least, "required_byte_count": required,
		"conserved_byte_count": conserved, "conserved_byte_ratio": ratio, "passed": passed,
		"failed_closed": enabled && closes && !passed,
	}
}
