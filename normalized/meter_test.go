package normalized

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inbox/internal/fault"
	"inbox/policypart"
)

// narrowLimits are met by small answers.
func narrowLimits() Limits {
	limits := DefaultLimits()
	limits.Parts, limits.TextPart, limits.Text, limits.ToolJSON, limits.Document, limits.Inline = 8, 4<<10, 10<<10, 1<<10, 16<<10, 1<<10
	return limits
}

// drawLarge draws an answer whose parts have a valid form and any size.
func drawLarge(t *rapid.T) Response {
	r := Response{Metadata: map[string]string{}}
	size := func() int { return rapid.SampledFrom([]int{1, 300, 2 << 10, 5 << 10, 20 << 10}).Draw(t, "size") }
	for i := range rapid.IntRange(1, 20).Draw(t, "parts") {
		long := strings.Repeat(rapid.SampledFrom([]string{"x", "ä", "\n<x>", "\"", "😀"}).Draw(t, "text"), size())
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			r.Parts = append(r.Parts, Part{Kind: PartToolCall, ID: fmt.Sprint(i), Name: "n", Args: encode(long), Result: encode(long)})
		case 1:
			r.Parts = append(r.Parts, Part{Kind: PartToolCall, ID: fmt.Sprint(i), Name: "n", Error: &ToolError{Message: "no " + long}})
		case 2:
			r.Parts = append(r.Parts, Part{Kind: PartFile, MIME: "image/png", Name: long, BytesRef: Inline(make([]byte, size()))})
		case 3:
			r.Parts = append(r.Parts, Part{Kind: PartLink, URL: "https://a.test/" + strings.Repeat("p", size()), Title: long})
		default:
			r.Parts = append(r.Parts, Text("t"+long))
		}
	}
	if rapid.Bool().Draw(t, "metadata") {
		r.Metadata["a"], r.Metadata["b"] = strings.Repeat("m", 20<<10), "kept"
	}
	return r
}

func encode(text string) json.RawMessage {
	encoded, _ := json.Marshal(text)
	return encoded
}

// TestCompletedAnswersKeepTheLimits: an answer of valid parts is never refused for its size, and says so if something is left out.
func TestCompletedAnswersKeepTheLimits(t *testing.T) {
	question := goodMessage()
	rapid.Check(t, func(t *rapid.T) {
		limits, r := narrowLimits(), drawLarge(t)
		before := encoded(t, r.AppendJSON)
		got, err := r.Completed(question, limits, Left{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(before, encoded(t, r.AppendJSON)) {
			t.Fatal("the agent's own answer was changed")
		}
		again, err := got.Completed(question, limits, Left{})
		if err != nil || diff(again, got) != "" {
			t.Fatalf("a second time: %v %s", err, diff(again, got))
		}
		clean := r
		clean.Clean()
		if clean = clean.Answering(question); ValidateResponse(clean, question, limits) == nil && diff(clean, got) != "" {
			t.Fatal("an answer within its limits was changed:", diff(clean, got))
		}
		if trace := got.FitBytes(limits, Left{}, 2<<10); len(encoded(t, trace.AppendJSON)) > 2<<10+20 && len(got.Parts) > 1 && got.Metadata["b"] == "" {
			t.Fatalf("a trace has %d bytes", len(encoded(t, trace.AppendJSON)))
		}
	})
}

// TestFoldsKeepTheLimits: whatever an agent streams, the answer keeps its limits, and a reader who gets what was taken has the same answer.
func TestFoldsKeepTheLimits(t *testing.T) {
	question := goodMessage()
	rapid.Check(t, func(t *rapid.T) {
		limits, r := narrowLimits(), distinctCalls(drawLarge(t))
		fold, reader := NewFold(limits), NewFold(limits)
		for d := range split(t, r) {
			taken, some, err := fold.Take(d)
			if err != nil {
				t.Fatal(err)
			}
			if !some {
				continue
			}
			if err := reader.Add(taken); err != nil || !reader.Whole() {
				t.Fatalf("a reader has no room for what was taken: %v", err)
			}
		}
		if got, want := reader.Snapshot(), fold.Snapshot(); diff(got, want) != "" {
			t.Fatal("a reader has another answer:", diff(got, want))
		}
		got, err := fold.Response()
		if err != nil {
			t.Fatal(err)
		}
		said := got.Parts[max(0, len(got.Parts)-1)].Content
		if !fold.Whole() && !strings.Contains(PlainText(got.Parts), "shown.)") {
			t.Fatalf("nothing says that something is left out: %q", said)
		}
		if _, err := got.Completed(question, limits, Left{}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestEndlessAnswersAreBounded: an agent that never ends gets no more memory than an answer has.
func TestEndlessAnswersAreBounded(t *testing.T) {
	for name, deltas := range map[string]func(i int) []Delta{
		"text": func(int) []Delta { return []Delta{{Kind: DeltaText, Text: strings.Repeat("x", 64<<10)}} },
		"texts": func(int) []Delta {
			p := Text(strings.Repeat("x", 64<<10))
			return []Delta{{Kind: DeltaPartBegin, Part: &p}}
		},
		"files": func(int) []Delta {
			return []Delta{{Kind: DeltaPartBegin, Part: &Part{Kind: PartFile, MIME: "image/png", BytesRef: Inline(make([]byte, 64<<10))}}}
		},
		"calls": func(i int) []Delta {
			call := Part{Kind: PartToolCall, ID: fmt.Sprint(i), Name: "n", Args: encode(strings.Repeat("x", 60<<10))}
			ended := call
			ended.Result = call.Args
			return []Delta{{Kind: DeltaToolCallStart, Part: &call}, {Kind: DeltaToolCallEnd, Part: &ended}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fold, taken := NewFold(DefaultLimits()), 0
			for i := range 1000 {
				for _, d := range deltas(i) {
					got, some, err := fold.Take(d)
					if err != nil {
						t.Fatal(err)
					}
					if some {
						taken += len(encoded(t, got.AppendJSON))
					}
				}
			}
			if most := DefaultLimits().documentWithBytes(); taken > most {
				t.Errorf("%d bytes were passed on", taken)
			}
			r, err := fold.Response()
			if err != nil {
				t.Fatal(err)
			}
			if r, err = r.Completed(goodMessage(), DefaultLimits(), Left{}); err != nil || !strings.Contains(PlainText(r.Parts), "shown.)") {
				t.Errorf("%v: %.200q", err, PlainText(r.Parts))
			}
		})
	}
}

// TestFoldsKeepWhatIsSaidLast: an agent that says a sentence before each of its tool calls ends in its answer.
func TestFoldsKeepWhatIsSaidLast(t *testing.T) {
	for _, calls := range []int{31, 32, 40, 63, 64, 100} {
		for _, begins := range []bool{false, true} {
			fold := NewFold(DefaultLimits())
			say := func(text string) {
				d := Delta{Kind: DeltaText, Text: text}
				if begins {
					part := Text(text)
					d = Delta{Kind: DeltaPartBegin, Part: &part}
				}
				if err := fold.Add(d); err != nil {
					t.Fatal(err)
				}
			}
			for i := range calls {
				say("Let me look.")
				call := Part{Kind: PartToolCall, ID: fmt.Sprint(i), Name: "find"}
				ended := call
				ended.Result = json.RawMessage("1")
				for _, d := range []Delta{{Kind: DeltaToolCallStart, Part: &call}, {Kind: DeltaToolCallEnd, Part: &ended}} {
					if err := fold.Add(d); err != nil {
						t.Fatal(err)
					}
				}
			}
			say("The answer is 42.")
			r, err := fold.Response()
			if err != nil {
				t.Fatal(err)
			}
			said := PlainText(r.Parts)
			if strings.Count(said, "look.") != calls || !strings.Contains(said, "The answer is 42.") || (calls > 31) != strings.Contains(said, " not shown.)") {
				t.Errorf("%d calls: %d parts, %q", calls, len(r.Parts), said[max(0, len(said)-100):])
			}
		}
	}
}

func TestLeftIsSaid(t *testing.T) {
	for want, left := range map[string]Left{
		"":                                       {},
		"(1 more tool call is not shown.)":       {Calls: 1},
		"(2 more tool calls are not shown.)":     {Calls: 2},
		"(The rest of the answer is not shown.)": {Rest: true},
		"(2 more tool calls, 1 more part and 7 more bytes are not shown.)": {Calls: 2, Parts: 1, Bytes: 7},
		"(1 more source and the rest of the answer are not shown.)":        {Sources: 1, Rest: true},
	} {
		if got := left.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestNothingOfAnAnswerHasRoom: the line about a rest would say that there is more than nothing.
func TestNothingOfAnAnswerHasRoom(t *testing.T) {
	r, err := Response{}.Completed(goodMessage(), DefaultLimits(), Left{Rest: true})
	if err != nil || PlainText(r.Parts) != "(The answer is too large to be shown.)" || r.Left != (Left{Rest: true}) {
		t.Errorf("%q, %+v, %v", PlainText(r.Parts), r.Left, err)
	}

	asks := Part{Kind: PartPolicy, Policy: &policypart.Part{Kind: policypart.ConsentRequired, Message: "May I?"}}
	r = Response{Parts: []Part{asks}}.Fit(DefaultLimits(), Left{Rest: true})
	if len(r.Parts) != 2 || r.Parts[0].Content != "(The rest of the answer is not shown.)" {
		t.Errorf("beside a demand: %+v", r.Parts)
	}
}

// TestFitCounts: an answer that is cut twice counts what was left out each time.
func TestFitCounts(t *testing.T) {
	r := Response{Parts: []Part{Text(strings.Repeat("x", 1<<20+7))}}.Fit(DefaultLimits(), Left{Calls: 2})
	if want := (Left{Calls: 2, Bytes: 7}); r.Left != want {
		t.Errorf("%+v, want %+v", r.Left, want)
	}
	before := r.Left.Bytes
	r = r.FitBytes(DefaultLimits(), Left{}, 1<<20)
	if r.Left.Bytes <= before || r.Left.Calls != 2 {
		t.Errorf("after the second cut %+v", r.Left)
	}
}

// TestCutAnswersLoseOpenCalls: what was read of an answer that was too long to read is the answer.
func TestCutAnswersLoseOpenCalls(t *testing.T) {
	fold := NewFold(DefaultLimits())
	for _, d := range []Delta{{Kind: DeltaText, Text: "So far"}, {Kind: DeltaToolCallStart, Part: &Part{Kind: PartToolCall, ID: "1", Name: "n"}}} {
		if err := fold.Add(d); err != nil {
			t.Fatal(err)
		}
	}
	fold.Cut()
	r, err := fold.Response()
	if err != nil || PlainText(r.Parts) != "So far\n\n(1 more tool call and the rest of the answer are not shown.)" {
		t.Errorf("%q, %v", PlainText(r.Parts), err)
	}
}

func TestQuestionsToAgentsAreNotCut(t *testing.T) {
	r := Response{Dispatch: []Dispatch{{To: "@b@b.test", Parts: []Part{Text(strings.Repeat("x", 2<<20))}}}}
	if _, err := r.Completed(goodMessage(), DefaultLimits(), Left{}); !fault.Is(err, fault.TooLarge) {
		t.Errorf("a question that is too long: %v", err)
	}
}
