package loop

import (
	"context"
	"maps"

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

// Summarizer shortens the head of a transcript. It gives a text or {summary, archived_items}. A failure keeps the
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
