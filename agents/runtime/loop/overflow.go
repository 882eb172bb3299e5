package loop

import (
	"fmt"
	"strings"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

func overflows(messages []envelope.Envelope, policy map[string]any) bool {
	enabled, _ := policy["overflow_archive_enabled"].(bool)
	threshold := value.Int32(policy["overflow_threshold_bytes"])
	return enabled && threshold > 0 && jsonSize(envelope.Values(messages)) > threshold
}

// archiveOverflow takes the head out of a transcript that is too large to summarize and leaves a stub with its id
// (agent runtime contract, section 3.9).
func archiveOverflow(messages []envelope.Envelope, policy map[string]any) Compaction {
	size := jsonSize(envelope.Values(messages))
	cutoff := overflowBoundary(messages, policy)
	if cutoff <= 0 {
		return outcome(messages, CompactionSkipped, map[string]any{
			"policy": policy, "reason": "overflow_input_unsplittable", "total_messages": len(messages), "total_bytes": size,
		})
	}
	items, tail := messages[:cutoff], messages[cutoff:]
	id := "agents-api-overflow-" + digest16(envelope.Values(items))
	metadata := map[string]any{
		"strategy": "deterministic_overflow_archive", "archive_id": id,
		"archive_pointer": policy["overflow_archive_pointer"], "archive_count": len(items), "retained_count": len(tail),
		"total_messages": len(messages), "total_bytes": size, "policy": policy,
		"boundary": map[string]any{"archive_until": cutoff - 1, "retain_from": cutoff},
	}
	content := fmt.Sprintf("%s\n\nArchive ID: %s\nArchived messages: %d", policy["overflow_stub_prefix"], id, len(items))
	stub := plainText(value.Text(policy["overflow_stub_role"]), content, map[string]any{"agents_api_compaction_archive": metadata})
	archived := outcome(append([]envelope.Envelope{stub}, tail...), CompactionArchived, metadata, event(compactionArchived, metadata))
	archived.ArchiveItems = items
	return archived
}

func overflowBoundary(messages []envelope.Envelope, policy map[string]any) int {
	retained := value.Int32(policy["overflow_retained_messages"])
	if retained == 0 {
		retained = value.Int32(policy["recent_messages"])
	}
	cutoff := max(0, len(messages)-retained)
	if limit := value.Int32(policy["overflow_retained_bytes"]); limit > 0 {
		size := jsonSize(envelope.Values(messages[cutoff:]))
		for ; cutoff < len(messages)-1 && size > limit; cutoff++ {
			size -= jsonSize(messages[cutoff].Value()) + len(",")
		}
	}
	return boundary(messages, cutoff, policy)
}

// digest16 is 16 hexadecimal digits of the SHA-256 over the JSON of a value.
func digest16(value any) string { return strings.TrimPrefix(tool.Hash(value), "sha256:")[:16] }
