package loop_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// TestBudgetTripsOnTheNthUnit: a ceiling of N tool calls lets exactly N run, whatever their turns.
func TestBudgetTripsOnTheNthUnit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom([]string{"tool_calls", "tool_calls_a/read", "turns"}).Draw(rt, "budget")
		ceiling := rapid.IntRange(1, 6).Draw(rt, "ceiling")
		used := rapid.IntRange(0, ceiling-1).Draw(rt, "used")
		r := newRig()
		r.options.MaxTurns = 20
		units := 0
		for units < ceiling+3 {
			batch := rapid.IntRange(1, 3).Draw(rt, "batch")
			turn := map[string]any{}
			list := []any{}
			for range batch {
				list = append(list, map[string]any{"name": "a/read"})
			}
			turn["tool_calls"] = list
			r.turns = append(r.turns, turn)
			if units++; name != "turns" {
				units += batch - 1
			}
		}
		r.options.Budgets = []*loop.Budget{loop.NewBudget(name, ceiling, used)}
		result, err := r.try(context.Background())
		if err != nil {
			rt.Fatal(err)
		}
		counted := len(r.executed)
		if name == "turns" {
			counted = r.ran
		}
		if counted != ceiling-used || result["budget"] != name || result["status"] != "budget_exceeded" {
			rt.Fatalf("%d units ran of %d, status %v", counted, ceiling-used, result["status"])
		}
		if got := r.payloads["budget_exceeded"]; len(got) != 1 || got[0]["current"] != ceiling {
			rt.Fatalf("events %v", got)
		}
	})
}

// TestPairsStayValid: whatever tools answer, no call is without its result, except for the one that waits for approval.
func TestPairsStayValid(t *testing.T) {
	approval := envelope.NewApprovalRequired("May I?", map[string]any{"action_id": "x"}, nil).Value()
	answers := []any{
		map[string]any{"success": true, "result": "text"}, map[string]any{"success": false}, map[string]any{}, nil,
		map[string]any{"success": true, "result": []any{strings.Repeat("é", 200)}}, errTest,
		map[string]any{"success": false, "status": "runtime_tool_pending"}, map[string]any{"success": true, "result": approval},
		map[string]any{"success": true, "result": map[string]any{"type": "approval_required"}},
	}
	decisions := []any{
		nil, nil, "?", map[string]any{"action": "reject"}, map[string]any{"action": "reject", "complete": true},
		map[string]any{"action": "pending"}, map[string]any{"action": "replace_result", "result": map[string]any{"success": true}},
	}
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig()
		for range rapid.IntRange(1, 4).Draw(rt, "turns") {
			list := []any{}
			for range rapid.IntRange(0, 4).Draw(rt, "calls") {
				list = append(list, map[string]any{
					"name": rapid.SampledFrom([]string{"a/read", "b__write", "client/pick", "unknown", ""}).Draw(rt, "name"),
					"id":   rapid.SampledFrom([]string{"", "1", "2", "3"}).Draw(rt, "id"),
				})
			}
			r.turns = append(r.turns, map[string]any{"tool_calls": list, "content": rapid.SampledFrom([]string{"", "x"}).Draw(rt, "content")})
		}
		r.execute = func(context.Context, tool.Call) (map[string]any, error) {
			answer := rapid.SampledFrom(answers).Draw(rt, "answer")
			if err, is := answer.(error); is {
				return nil, err
			}
			object, _ := answer.(map[string]any)
			return object, nil
		}
		r.options.Mediator = loop.MediatorFunc(func(context.Context, loop.Proposal) (any, error) {
			return rapid.SampledFrom(decisions).Draw(rt, "decision"), nil
		})
		r.options.Truncator = loop.NewByteTruncator(rapid.IntRange(1, 300).Draw(rt, "limit"))
		r.options.FailureTracker, r.options.SpinDetector = loop.NewConsecutiveFailures(2), loop.NewConsecutiveSpin(3)
		if rapid.Bool().Draw(rt, "budget") {
			r.options.Budgets = []*loop.Budget{loop.NewBudget("tool_calls", rapid.IntRange(1, 5).Draw(rt, "ceiling"), 0)}
		}
		if rapid.Bool().Draw(rt, "compaction") {
			r.options.CompactionPolicy = map[string]any{"enabled": true, "max_messages": 4, "recent_messages": rapid.IntRange(1, 3).Draw(rt, "recent")}
			r.options.Summarizer = loop.SummarizerFunc(func(context.Context, []envelope.Envelope, map[string]any) (any, error) {
				return "short", nil
			})
		}
		result, err := r.try(context.Background())
		if err != nil {
			rt.Fatal(err)
		}
		messages, err := envelope.NormalizeMany(result["messages"])
		if err != nil {
			rt.Fatal(err)
		}
		orphans := envelope.Orphans(messages)
		if result["approval_required"] != nil {
			if len(orphans) != 1 || orphans[0].Index != len(messages)-2 {
				rt.Fatalf("a call waits for approval, orphans are %+v", orphans)
			}
			return
		}
		if len(orphans) > 0 {
			rt.Fatalf("orphans %+v in %v", orphans, result["messages"])
		}
	})
}

// TestUsageSums: the usage of a run is the sum over its turns, exactly.
func TestUsageSums(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig()
		want := map[string]int64{"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
		for range rapid.IntRange(0, 5).Draw(rt, "turns") {
			usage := map[string]any{"model": "m"}
			for _, name := range []string{"prompt_tokens", "completion_tokens", "cached"} {
				if rapid.Bool().Draw(rt, name+" is there") {
					count := rapid.Int64Range(0, 1<<55).Draw(rt, name)
					usage[name] = count
					want[name] += count
				}
			}
			turn := calls("1", "a/read")
			turn["usage"] = usage
			r.turns = append(r.turns, turn)
		}
		result, err := r.try(context.Background())
		if err != nil {
			rt.Fatal(err)
		}
		for name, count := range want {
			got := value.Assoc(result["usage"])[name]
			if _, has := value.Assoc(result["usage"])[name]; has != (name != "cached" || got != nil) || (has && !value.Equal(got, count)) {
				rt.Fatalf("%s is %v, want %d", name, got, count)
			}
		}
	})
}

func TestUsageOfFloatsAndHugeNumbers(t *testing.T) {
	r := newRig()
	for _, usage := range []map[string]any{
		{"cost": 0.25, "prompt_tokens": int64(1<<63 - 1), "note": "a"}, {"cost": 1, "prompt_tokens": int64(1<<63 - 1), "note": "b"},
	} {
		turn := calls("1", "a/read")
		turn["usage"] = usage
		r.turns = append(r.turns, turn)
	}
	usage := value.Assoc(r.run(t)["usage"])
	if usage["cost"] != 1.25 || usage["prompt_tokens"] != float64(1<<64) || usage["note"] != "b" {
		t.Fatalf("usage %v", usage)
	}
}

// TestExcerptsAreWhole: an excerpt is valid UTF-8, no longer than the limit, and never ends within an escape.
func TestExcerptsAreWhole(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(1, 80).Draw(rt, "limit")
		text := rapid.StringOf(rapid.RuneFrom([]rune(`aé漢😀\u"/`))).Draw(rt, "text")
		result := map[string]any{"success": true, "tool_name": "t", "metadata": map[string]any{}, "result": text + strings.Repeat("x", limit)}
		got, err := loop.NewByteTruncator(limit).Truncate(result, "t", nil)
		if err != nil || !got.Truncated {
			rt.Fatal("not truncated")
		}
		excerpt := value.Text(value.Assoc(got.Result["result"])["excerpt"])
		if len(excerpt) > limit || !utf8.ValidString(excerpt) {
			rt.Fatalf("excerpt %q", excerpt)
		}
		head := `{"success":true,"tool_name":"t","result":`
		if len(excerpt) <= len(head)+1 {
			return
		}
		// Closed with a quote it must read back as a prefix of the text.
		given, err := value.Decode([]byte(excerpt[len(head):]+`"`), value.Limits{})
		if err != nil || !strings.HasPrefix(value.Text(result["result"]), value.Text(given)) {
			rt.Fatalf("excerpt %q reads as %q (%v)", excerpt, given, err)
		}
	})
}

// TestTruncationStartsAtTheLimit: a result is shortened if and only if its JSON has more bytes than the limit.
func TestTruncationStartsAtTheLimit(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("aé漢😀\"/\n\x01"))).Draw(rt, "text")
		result := map[string]any{"success": true, "result": map[string]any{text: []any{text, 1.5e300, -1 << 62, nil, true}}}
		limit := len(tool.Canonical(result)) + rapid.IntRange(-2, 2).Draw(rt, "off")
		got, err := loop.NewByteTruncator(limit).Truncate(result, "t", nil)
		if err != nil || got.Truncated != (len(tool.Canonical(result)) > limit) {
			rt.Fatalf("limit %d, truncated %v, %v", limit, got.Truncated, err)
		}
	})
}

func TestErrorsOfTheContractHaveCodes(t *testing.T) {
	_, err := loop.NormalizeProviderTurn(map[string]any{"usage": "x"})
	wrong, is := errors.AsType[*loop.Error](err)
	if !is || wrong.ErrorCode() != "invalid_agent_provider_turn_result" || wrong.Path != "usage" {
		t.Fatalf("error %v", err)
	}
}
