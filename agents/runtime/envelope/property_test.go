package envelope_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
)

func TestNormalizingTwiceChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := rows.Draw(t, "row")
		before := value.Clone(row)
		once, err := envelope.Normalize(row)
		if diff := cmp.Diff(before, row); diff != "" {
			t.Fatalf("normalizing changed its input: %s", diff)
		}
		if err != nil {
			return
		}
		twice, err := envelope.Normalize(once.Value())
		if err != nil {
			t.Fatalf("a canonical envelope is refused: %v", err)
		}
		if diff := cmp.Diff(once.Value(), twice.Value()); diff != "" {
			t.Fatal(diff)
		}
		data, err := value.Encode(once.Value())
		if err != nil {
			t.Fatal(err)
		}
		var read envelope.Envelope
		if err := read.UnmarshalJSON(data); err != nil || !value.Equal(read.Value(), once.Value()) {
			t.Fatalf("writing and reading changed the envelope: %v\n%s", err, data)
		}
	})
}

func TestExportOfImportIsTheMessage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		message := frameworkRows.Draw(t, "message")
		before := value.Clone(message)
		imported, err := envelope.Import(message)
		if err != nil {
			t.Fatalf("import: %v", err)
		}
		stored, err := envelope.Normalize(imported.Value())
		if err != nil {
			t.Fatalf("an imported message is no valid envelope: %v", err)
		}
		if diff := cmp.Diff(before, envelope.Export(stored, "nobody")); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(before, message); diff != "" {
			t.Fatalf("import changed its input: %s", diff)
		}
	})
}

func TestExportOfAnyEnvelopeIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		row := rows.Draw(t, "row")
		e, err := envelope.Normalize(row)
		if err != nil || envelope.FrameworkType(value.Text(value.Assoc(e.Metadata["agent_framework"])["type"])).Known() {
			return
		}
		e.CreatedAt = "2026-04-28 12:00:00"
		if e.Type == envelope.TypeToolCall && value.Trim(e.ToolName()) == "" || value.Flag(e.Payload["synthesis"]) {
			return
		}
		if operation, there := e.Payload["operation"]; there && value.Trim(value.Text(operation)) == "" {
			return
		}
		message := envelope.Export(e, "agent")
		if err := envelope.ValidateFramework(message); err != nil {
			t.Fatalf("%v\n%s", err, value.EncodeText(message))
		}
		if _, err := envelope.Import(message); err != nil {
			t.Fatal(err)
		}
	})
}

func transcript(t *rapid.T) []envelope.Envelope {
	var list []envelope.Envelope
	for _, row := range rapid.SliceOfN(rows, 0, 12).Draw(t, "rows") {
		if e, err := envelope.Normalize(row); err == nil {
			list = append(list, e)
		}
	}
	return list
}

func TestCoalescingTwiceChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		once := envelope.Coalesce(transcript(t))
		for i := 1; i < len(once); i++ {
			if once[i-1].Role == once[i].Role {
				t.Fatalf("messages %d and %d have one role", i-1, i)
			}
		}
		if diff := cmp.Diff(envelope.Values(once), envelope.Values(envelope.Coalesce(once))); diff != "" {
			t.Fatal(diff)
		}
		if _, err := envelope.NormalizeMany(envelope.Values(once)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestPrunedTranscriptsHaveOnlyPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := transcript(t)
		pruned := envelope.Prune(list)
		if len(pruned.Messages)+len(pruned.Removed) != len(list) {
			t.Fatalf("%d messages became %d and %d removed", len(list), len(pruned.Messages), len(pruned.Removed))
		}
		if left := envelope.Orphans(pruned.Messages); len(left) > 0 {
			t.Fatalf("orphans are left: %v", left)
		}
	})
}

func TestResultsNormalizeTwiceToTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		result := objects(map[string]*rapid.Generator[any]{
			"messages": rapid.Map(rapid.SliceOfN(rows, 0, 3), func(list []map[string]any) any { return value.Plain(list) }),
			"status":   anyOf("failed", "budget_exceeded", " Stalled ", "interrupted", "odd"), "budget": anyOf("turns", "tool_calls"),
			"completed": anyOf(true, false), "run_outcome": values(2), "final_content": words.AsAny(),
		}).Draw(t, "result")
		once, err := envelope.NormalizeResult(result)
		if err != nil {
			return
		}
		list, err := envelope.NormalizeMany(result["messages"])
		if err != nil || !value.Equal(once["messages"], envelope.Values(list)) {
			t.Fatalf("%v: the messages are not canonical: %s", err, value.EncodeText(once["messages"]))
		}
		twice, err := envelope.NormalizeResult(once)
		if err != nil || !value.Equal(once, twice) {
			t.Fatalf("%v: %s", err, cmp.Diff(once, twice))
		}
	})
}

func TestEqualityIsThatOfTheText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		given := values(3).Draw(t, "value")
		data, err := value.Encode(given)
		if err != nil {
			t.Fatal(err)
		}
		read, err := value.Decode(data, value.Limits{})
		if err != nil || !value.Equal(given, read) || !value.Equal(value.Clone(given), read) {
			t.Fatalf("%v: %s", err, data)
		}
	})
}
