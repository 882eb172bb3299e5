package loop

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strings"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// Names of compaction events and outcomes (agent runtime contract, section 3.9).
const (
	compactionStarted   = "compaction_started"
	compactionCompleted = "compaction_completed"
	compactionFailed    = "compaction_failed"
	compactionArchived  = "compaction_overflow_archived"

	CompactionSkipped   = "skipped"
	CompactionCompacted = "compacted"
	CompactionFailed    = "failed"
	CompactionArchived  = "archived"
)

const (
	defaultSummaryPrefix = "Earlier conversation summary:"
	defaultStubPrefix    = "Earlier conversation archived without summarization."
)

// Summarizer shortens the head of a transcript. It returns a text or {summary, archived_items}. A failure keeps the
// transcript as it is. About has policy, total_messages, compact_count, retained_count and boundary.
type Summarizer interface {
	Summarize(ctx context.Context, head []envelope.Envelope, about map[string]any) (any, error)
}

// Compaction is the outcome of Compact.
type Compaction struct {
	Messages     []envelope.Envelope
	Status       string // skipped, compacted, failed, archived
	Metadata     map[string]any
	Events       []any               // {type, metadata}
	ArchiveItems []envelope.Envelope // what an overflow took out, for the caller to keep
}

// NormalizeCompactionPolicy fills the defaults, brings every setting into its range and keeps unknown members.
func NormalizeCompactionPolicy(raw map[string]any) map[string]any {
	policy := defaultPolicy()
	maps.Copy(policy, raw)

	for name, given := range defaultPolicy() {
		switch fallback := given.(type) {
		case bool:
			policy[name] = value.Truthy(policy[name])
		case string:
			policy[name] = textOr(policy[name], fallback)
		case float64:
			policy[name] = max(0, value.Finite(positive(policy[name])))
		case map[string]any:
			if !value.Container(policy[name]) {
				policy[name] = fallback
			}
		case int:
			policy[name] = max(0, value.Int32(policy[name]))
		}
	}

	limit, recent := max(1, value.Int32(policy["max_messages"])), max(1, value.Int32(policy["recent_messages"]))
	if recent >= limit {
		recent = max(1, limit-1)
	}

	policy["max_messages"], policy["recent_messages"] = limit, recent
	return policy
}

func defaultPolicy() map[string]any {
	return map[string]any{
		"enabled": false, "max_messages": 40, "recent_messages": 12,
		"summary_role": "system", "summary_prefix": defaultSummaryPrefix, "summary_model": "", "summary_provider": "",
		"preserve_tool_boundaries": true, "conservation_enabled": false, "minimum_conserved_byte_ratio": 1.0,
		"fail_on_conservation_failure": true, "overflow_archive_enabled": false, "overflow_threshold_bytes": 0,
		"overflow_retained_messages": 0, "overflow_retained_bytes": 0, "overflow_archive_pointer": map[string]any{},
		"overflow_stub_role": "system", "overflow_stub_prefix": defaultStubPrefix,
	}
}

// positive is float, except that booleans are no numbers here.
func positive(given any) float64 {
	if _, is := given.(bool); is {
		return 0
	}
	return value.Float(given)
}

func textOr(given any, fallback string) string {
	if text, has := value.NonBlank(given); has {
		return text
	}
	return fallback
}

// Compact shortens a transcript of canonical envelopes by the policy: an overflow archive first, even when compaction
// is not enabled, then a summary of the head once there are more than max_messages. It never fails: what goes wrong
// keeps the transcript and is in the events (agent runtime contract, section 3.9). An empty policy is the default one.
func Compact(ctx context.Context, messages []envelope.Envelope, policy map[string]any, summarizer Summarizer) Compaction {
	policy = NormalizeCompactionPolicy(policy)
	if overflows(messages, policy) {
		return archiveOverflow(messages, policy)
	}

	job := compactionJob{policy: policy, messages: messages, original: statsOf(messages)}
	if enabled, _ := policy["enabled"].(bool); !enabled || len(messages) <= value.Int32(policy["max_messages"]) {
		return job.skipped()
	}

	job.cutoff = boundary(messages, len(messages)-value.Int32(policy["recent_messages"]), policy)
	if job.cutoff <= 0 {
		return job.skipped()
	}
	return job.summarize(ctx, summarizer)
}

type compactionJob struct {
	policy   map[string]any
	messages []envelope.Envelope
	original stats
	cutoff   int
}

func (j *compactionJob) skipped() Compaction {
	metadata := conservation(j.policy, provenance{original: j.original, retained: j.original}, nil)
	return outcome(j.messages, CompactionSkipped, metadata)
}

func (j *compactionJob) summarize(ctx context.Context, summarizer Summarizer) Compaction {
	head, tail := j.messages[:j.cutoff], j.messages[j.cutoff:]
	about := map[string]any{
		"policy": j.policy, "total_messages": len(j.messages), "compact_count": len(head), "retained_count": len(tail),
		"boundary": map[string]any{"compact_until": j.cutoff - 1, "retain_from": j.cutoff},
	}

	counts := provenance{original: j.original, retained: statsOf(tail)}
	summary, archived, problem := callSummarizer(ctx, summarizer, head, about)
	if problem != "" {
		return j.failed(about, conservation(j.policy, counts, about), problem)
	}

	message := j.summaryMessage(summary)
	counts.compacted, counts.archived = statsOf([]envelope.Envelope{message}), statsOfAny(archived)
	metadata := conservation(j.policy, counts, about)
	metadata["summary_message"] = message.Value()
	if value.Truthy(value.Assoc(metadata["conservation"])["failed_closed"]) {
		return j.failed(about, metadata, "Compaction conservation check failed.")
	}

	compacted := append([]envelope.Envelope{message}, tail...)
	return outcome(compacted, CompactionCompacted, metadata, event(compactionStarted, about), event(compactionCompleted, metadata))
}

func (j *compactionJob) summaryMessage(summary string) envelope.Envelope {
	return plainText(value.Text(j.policy["summary_role"]), value.Text(j.policy["summary_prefix"])+"\n\n"+summary, map[string]any{
		"agents_api_compaction": map[string]any{
			"compacted_message_count": j.cutoff, "retained_message_count": len(j.messages) - j.cutoff,
			"summary_provider": j.policy["summary_provider"], "summary_model": j.policy["summary_model"],
		},
	})
}

func (j *compactionJob) failed(about, metadata map[string]any, problem string) Compaction {
	metadata["error"] = problem
	return outcome(j.messages, CompactionFailed, metadata, event(compactionStarted, about), event(compactionFailed, metadata))
}

func callSummarizer(ctx context.Context, summarizer Summarizer, head []envelope.Envelope, about map[string]any) (summary string, archived []any, problem string) {
	var given any
	err := guard("summarizer", func() (err error) {
		given, err = summarizer.Summarize(ctx, head, about)
		return err
	})
	if err != nil {
		return "", nil, publicText(err)
	}

	if object, is := given.(map[string]any); is {
		if value, has := object["summary"]; has {
			given = value
		}
		archived, _ = value.List(object["archived_items"])
	}

	summary, has := value.NonBlank(given)
	if !has {
		return "", nil, "Summary must be a non-empty string."
	}

	return summary, archived, ""
}

// boundary moves a cut back until it separates no tool call from its result.
func boundary(messages []envelope.Envelope, cutoff int, policy map[string]any) int {
	cutoff = max(0, cutoff)
	if keep, _ := policy["preserve_tool_boundaries"].(bool); !keep {
		return cutoff
	}

	for cutoff > 0 && cutoff < len(messages) && messages[cutoff].Type == envelope.TypeToolResult {
		cutoff--
	}

	for cutoff > 0 && messages[cutoff-1].Type == envelope.TypeToolCall {
		cutoff--
	}
	return cutoff
}

// outcome adds the status to a copy of the metadata: events hold the metadata without it.
func outcome(messages []envelope.Envelope, status string, metadata map[string]any, events ...any) Compaction {
	metadata = maps.Clone(metadata)
	metadata["status"] = status
	return Compaction{Messages: messages, Status: status, Metadata: metadata, Events: events}
}

func event(name string, metadata map[string]any) map[string]any {
	return map[string]any{"type": name, "metadata": metadata}
}

// plainText builds a text with a role from settings, which is never empty.
func plainText(role, content string, metadata map[string]any) envelope.Envelope {
	return envelope.Envelope{
		Type: envelope.TypeText, Role: role, Content: content, Payload: map[string]any{}, Metadata: metadata,
	}
}

// jsonSize is the length of the JSON that the contract measures.
func jsonSize(value any) int { return len(tool.Canonical(value)) }

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
