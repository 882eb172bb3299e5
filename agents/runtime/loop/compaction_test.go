package loop_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/value"
)

func conversation(texts ...string) []envelope.Envelope {
	messages := make([]envelope.Envelope, len(texts))
	for i, text := range texts {
		messages[i] = envelope.UserText(text, nil)
	}
	return messages
}

func summary(value any) loop.Summarizer {
	return loop.SummarizerFunc(func(context.Context, []envelope.Envelope, map[string]any) (any, error) {
		if err, is := value.(error); is {
			return nil, err
		}
		return value, nil
	})
}

func TestPolicyDefaultsAndRanges(t *testing.T) {
	policy := loop.NormalizeCompactionPolicy(map[string]any{
		"enabled": "yes", "max_messages": "3", "recent_messages": 9, "summary_role": " ", "overflow_threshold_bytes": -4,
		"minimum_conserved_byte_ratio": "0.5", "overflow_archive_pointer": 7, "own": true,
	})
	for name, want := range map[string]any{
		"enabled": true, "max_messages": 3, "recent_messages": 2, "summary_role": "system", "overflow_threshold_bytes": 0,
		"minimum_conserved_byte_ratio": 0.5, "own": true, "summary_prefix": "Earlier conversation summary:",
		"overflow_archive_pointer": map[string]any{},
	} {
		if diff := cmp.Diff(want, policy[name]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestCompactionKeepsTheTranscriptWhenItFails(t *testing.T) {
	policy := map[string]any{"enabled": true, "max_messages": 3, "recent_messages": 1}
	strict := map[string]any{"enabled": true, "max_messages": 3, "recent_messages": 1, "conservation_enabled": true}
	messages := conversation("one", "two", "three", strings.Repeat("x", 100))
	for name, test := range map[string]struct {
		policy  map[string]any
		summary any
		problem string
	}{
		"error":        {policy, errTest, "test failure"},
		"blank":        {policy, "  ", "Summary must be a non-empty string."},
		"number":       {policy, 5, "Summary must be a non-empty string."},
		"conservation": {strict, map[string]any{"summary": "s", "archived_items": []any{}}, "Compaction conservation check failed."},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "conservation" {
				messages = conversation(strings.Repeat("a", 500), "two", "three", "x")
			}
			got := loop.Compact(t.Context(), messages, test.policy, summary(test.summary))
			if got.Status != loop.CompactionFailed || len(got.Messages) != 4 || len(got.Events) != 2 {
				t.Fatalf("%+v", got)
			}
			failed := value.Assoc(got.Events[1])
			if failed["type"] != "compaction_failed" || value.Assoc(failed["metadata"])["error"] != test.problem {
				t.Fatalf("event %v", failed)
			}
		})
	}
}

func TestConservationCountsWhatIsArchived(t *testing.T) {
	long := strings.Repeat("a", 500)
	got := loop.Compact(t.Context(), conversation(long, "two", "three", "x"),
		map[string]any{"enabled": true, "max_messages": 3, "recent_messages": 1, "conservation_enabled": true},
		summary(map[string]any{"summary": "s", "archived_items": []any{map[string]any{"content": long}, "two", []any{"three"}}}))
	if got.Status != loop.CompactionCompacted || len(got.Messages) != 2 {
		t.Fatalf("%+v", got)
	}
	archived := value.Assoc(value.Assoc(got.Metadata["provenance"])["archived"])
	if diff := cmp.Diff(map[string]any{"item_count": 3, "byte_count": 512}, archived); diff != "" {
		t.Fatal(diff)
	}
}

func TestOverflowArchive(t *testing.T) {
	messages := conversation(strings.Repeat("a", 2000), "two", "three")
	policy := map[string]any{
		"overflow_archive_enabled": true, "overflow_threshold_bytes": 1000, "overflow_retained_messages": 2,
		"overflow_archive_pointer": map[string]any{"path": "x"},
	}
	got := loop.Compact(t.Context(), messages, policy, nil)
	if got.Status != loop.CompactionArchived || len(got.Messages) != 3 || len(got.ArchiveItems) != 1 {
		t.Fatalf("%+v", got)
	}
	stub := got.Messages[0]
	id := value.Text(got.Metadata["archive_id"])
	want := "Earlier conversation archived without summarization.\n\nArchive ID: " + id + "\nArchived messages: 1"
	if stub.Text() != want || stub.Role != "system" || !strings.HasPrefix(id, "agents-api-overflow-") || len(id) != 36 {
		t.Fatalf("stub %+v", stub)
	}
	policy["overflow_retained_bytes"] = 150
	if got = loop.Compact(t.Context(), messages, policy, nil); len(got.Messages) != 2 {
		t.Fatalf("%d messages", len(got.Messages))
	}
	policy["overflow_retained_messages"] = 3
	delete(policy, "overflow_retained_bytes")
	if got = loop.Compact(t.Context(), messages, policy, nil); got.Status != loop.CompactionSkipped || got.Metadata["reason"] != "overflow_input_unsplittable" {
		t.Fatalf("%+v", got)
	}
}
