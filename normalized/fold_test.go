package normalized

import (
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inbox/internal/fault"
)

func foldAll(t *rapid.T, deltas iter.Seq[Delta]) Response {
	f := NewFold(DefaultLimits())
	for d := range deltas {
		if err := f.Add(d); err != nil {
			t.Fatalf("%v in %+v", err, d)
		}
	}
	r, err := f.Response()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// split makes any stream of deltas whose fold must be the response: texts in random pieces, tool calls started early and
// ended late, fields beside the parts before, between or after.
func split(t *rapid.T, r Response) iter.Seq[Delta] {
	var deltas []Delta
	var ends []Delta
	beside := r
	beside.Parts = nil
	for _, p := range r.Parts {
		switch {
		case p.Kind == PartText:
			deltas = append(deltas, splitText(t, p)...)
		case p.Kind == PartToolCall && !p.running():
			bare := p
			bare.Result, bare.Error = nil, nil
			deltas = append(deltas, Delta{Kind: DeltaToolCallStart, Part: &bare})
			ends = append(ends, Delta{Kind: DeltaToolCallEnd, Part: &p})
		default:
			deltas = append(deltas, Delta{Kind: DeltaPartBegin, Part: &p})
			if rapid.Bool().Draw(t, "explicit end") {
				deltas = append(deltas, Delta{Kind: DeltaPartEnd})
			}
		}
	}
	deltas = append(deltas, ends...)
	at := rapid.IntRange(0, len(deltas)).Draw(t, "status at")
	deltas = append(deltas[:at], append([]Delta{{Kind: DeltaStatus, Response: &beside}}, deltas[at:]...)...)
	return func(yield func(Delta) bool) {
		for _, d := range deltas {
			if !yield(d) {
				return
			}
		}
	}
}

func splitText(t *rapid.T, p Part) (deltas []Delta) {
	begin := p
	begin.Content = ""
	rest := p.Content
	cut := func() (piece string) {
		at := rapid.IntRange(0, len(rest)).Draw(t, "cut")
		for at < len(rest) && rest[at]&0xc0 == 0x80 {
			at++
		}
		piece, rest = rest[:at], rest[at:]
		return piece
	}
	begin.Content = cut()
	deltas = append(deltas, Delta{Kind: DeltaPartBegin, Part: &begin})
	for range rapid.IntRange(0, 3).Draw(t, "pieces") {
		deltas = append(deltas, Delta{Kind: DeltaText, Text: cut()})
	}
	deltas = append(deltas, Delta{Kind: DeltaText, Text: rest})
	if rapid.Bool().Draw(t, "explicit end") {
		deltas = append(deltas, Delta{Kind: DeltaPartEnd})
	}
	return deltas
}

// distinctCalls returns every tool call an id of its own, as a stream needs.
func distinctCalls(r Response) Response {
	for i := range r.Parts {
		if r.Parts[i].Kind == PartToolCall {
			r.Parts[i].ID += strings.Repeat("'", i)
		}
	}
	return r
}

func TestFoldOfAnySplitIsTheResponse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		question := drawMessage(t)
		r := distinctCalls(drawResponse(t, &question))
		got := foldAll(t, split(t, r))
		if !got.Equal(r) {
			t.Fatalf("got  %s\nwant %s", encoded(t, got.AppendJSON), encoded(t, r.AppendJSON))
		}
	})
}

func TestFoldOfAWholeResponseIsThatResponse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		question := drawMessage(t)
		r := drawResponse(t, &question)
		f := NewFold(DefaultLimits())
		if rapid.Bool().Draw(t, "after text") {
			_ = f.Add(Delta{Kind: DeltaText, Text: "void"})
		}
		for d, err := range Whole(r) {
			if err != nil || f.Add(d) != nil {
				t.Fatal("refused")
			}
		}
		if got, err := f.Response(); err != nil || diff(got, r) != "" {
			t.Fatal(diff(got, r), err)
		}
		if f.Add(Delta{Kind: DeltaText, Text: "late"}) == nil {
			t.Fatal("text after the whole response")
		}
	})
}

func TestFoldEndsAsTheSnapshotsGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		question := drawMessage(t)
		r := distinctCalls(drawResponse(t, &question))
		f := NewFold(DefaultLimits())
		length := 0
		for d := range split(t, r) {
			if err := f.Add(d); err != nil {
				t.Fatal(err)
			}
			snapshot := f.Snapshot()
			grown := partTexts(snapshot.Parts)
			if grown < length {
				t.Fatalf("a snapshot lost text: %d after %d", grown, length)
			}
			length = grown
		}
		if got := f.Snapshot(); !got.Equal(r) {
			t.Fatal("the last snapshot is not the response")
		}
	})
}

func TestFoldRefuses(t *testing.T) {
	call := &Part{Kind: PartToolCall, ID: "1", Name: "n"}
	ended := &Part{Kind: PartToolCall, ID: "1", Name: "n", Result: json.RawMessage("1")}
	both := &Part{Kind: PartToolCall, ID: "1", Name: "n", Result: json.RawMessage("1"), Error: &ToolError{Message: "x"}}
	text := Text("x")
	for name, c := range map[string]struct {
		deltas []Delta
		field  string
	}{
		"unknown kind":          {[]Delta{{Kind: "hum"}}, "kind"},
		"begin without part":    {[]Delta{{Kind: DeltaPartBegin}}, "part"},
		"begin of a call":       {[]Delta{{Kind: DeltaPartBegin, Part: call}}, "part.kind"},
		"end without begin":     {[]Delta{{Kind: DeltaPartEnd}}, "kind"},
		"start without part":    {[]Delta{{Kind: DeltaToolCallStart}}, "part"},
		"start of a text":       {[]Delta{{Kind: DeltaToolCallStart, Part: &text}}, "part"},
		"start with outcome":    {[]Delta{{Kind: DeltaToolCallStart, Part: ended}}, "part"},
		"start twice":           {[]Delta{{Kind: DeltaToolCallStart, Part: call}, {Kind: DeltaToolCallStart, Part: call}}, "part.id"},
		"end of nothing":        {[]Delta{{Kind: DeltaToolCallEnd, Part: ended}}, "part.id"},
		"end without outcome":   {[]Delta{{Kind: DeltaToolCallStart, Part: call}, {Kind: DeltaToolCallEnd, Part: call}}, "part"},
		"end with both":         {[]Delta{{Kind: DeltaToolCallStart, Part: call}, {Kind: DeltaToolCallEnd, Part: both}}, "part.error"},
		"end twice":             {[]Delta{{Kind: DeltaToolCallStart, Part: call}, {Kind: DeltaToolCallEnd, Part: ended}, {Kind: DeltaToolCallEnd, Part: ended}}, "part.id"},
		"status without fields": {[]Delta{{Kind: DeltaStatus}}, "response"},
		"status with parts":     {[]Delta{{Kind: DeltaStatus, Response: &Response{Parts: []Part{text}}}}, "response.parts"},
		"response without one":  {[]Delta{{Kind: DeltaResponse}}, "response"},
	} {
		f := NewFold(DefaultLimits())
		var err error
		for _, d := range c.deltas {
			if err = f.Add(d); err != nil {
				break
			}
		}
		if got := fault.Of(err); err == nil || got.Field != c.field {
			t.Errorf("%s: got %v in %q, want %q", name, err, got.Field, c.field)
		}
		if again := f.Add(Delta{Kind: DeltaText, Text: "x"}); !errors.Is(again, err) {
			t.Errorf("%s: the error did not stay", name)
		}
		if _, last := f.Response(); !errors.Is(last, err) {
			t.Errorf("%s: the response hides the error", name)
		}
	}
}

func TestFoldOfUnfinishedCalls(t *testing.T) {
	f := NewFold(DefaultLimits())
	_ = f.Add(Delta{Kind: DeltaToolCallStart, Part: &Part{Kind: PartToolCall, ID: "1", Name: "pay"}})
	if _, err := f.Response(); err == nil {
		t.Error("a call that never ended is no answer")
	}
	_ = f.Add(Delta{Kind: DeltaStatus, Response: &Response{Status: StatusInputRequired}})
	if r, err := f.Response(); err != nil || len(r.Parts) != 1 {
		t.Errorf("a call that waits for approval is: %v", err)
	}
}

func TestFoldKeepsArgsAndInterleavesText(t *testing.T) {
	f := NewFold(DefaultLimits())
	for _, d := range []Delta{
		{Kind: DeltaText, Text: "Let me "}, {Kind: DeltaText, Text: "look."},
		{Kind: DeltaToolCallStart, Part: &Part{Kind: PartToolCall, ID: "1", Name: "search", Args: json.RawMessage(`{"q":1}`)}},
		{Kind: DeltaText, Text: "Meanwhile"},
		{Kind: DeltaToolCallEnd, Part: &Part{Kind: PartToolCall, ID: "1", Name: "search", Result: json.RawMessage(`[]`)}},
		{Kind: DeltaText, Text: ", nothing."}, {Kind: DeltaPartEnd}, {Kind: DeltaText, Text: " \n"},
	} {
		if err := f.Add(d); err != nil {
			t.Fatal(err)
		}
	}
	got, err := f.Response()
	want := Response{Parts: []Part{
		Text("Let me look."),
		{Kind: PartToolCall, ID: "1", Name: "search", Args: json.RawMessage(`{"q":1}`), Result: json.RawMessage(`[]`)},
		Text("Meanwhile, nothing."),
	}}
	if err != nil || !got.Equal(want) {
		t.Errorf("got %+v %v", got, err)
	}
}

// TestFoldIsLinear counts allocations: ten thousand small appends must not copy the text each time.
func TestFoldIsLinear(t *testing.T) {
	allocations := testing.AllocsPerRun(3, func() {
		f := NewFold(DefaultLimits())
		for range 10_000 {
			if err := f.Add(Delta{Kind: DeltaText, Text: "word "}); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := f.Response(); err != nil || len(r.Parts[0].Content) != 50_000 {
			t.Fatal(err)
		}
	})
	if allocations > 100 {
		t.Errorf("%v allocations for 10,000 appends", allocations)
	}
}

// TestFoldTakesDispatches: a streamed answer may end as a question to other agents.
func TestFoldTakesDispatches(t *testing.T) {
	var asked Response
	ask(&asked)
	for name, deltas := range map[string][]Delta{
		"status":   {{Kind: DeltaStatus, Response: &Response{Dispatch: asked.Dispatch}}},
		"response": {{Kind: DeltaText, Text: "Let me ask."}, {Kind: DeltaResponse, Response: &asked}},
	} {
		fold := NewFold(DefaultLimits())
		for _, d := range deltas {
			if err := fold.Add(d); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		r, err := fold.Response()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := ValidateResponse(r.Answering(goodMessage()), goodMessage(), DefaultLimits()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(r.Dispatch) != 1 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	large := asked
	large.Dispatch = many(4, Dispatch{To: "@b@b.test", Parts: many(9, Part{Kind: PartFile, MIME: "image/png", BytesRef: Inline(make([]byte, 1<<20))})})
	if err := NewFold(DefaultLimits()).Add(Delta{Kind: DeltaResponse, Response: &large}); err == nil {
		t.Error("a response over the limit was taken")
	}
}

func TestCleanReachesDispatches(t *testing.T) {
	var r Response
	ask(&r)
	r.Dispatch[0].Parts = append(r.Dispatch[0].Parts, Text("  "), Text("a\x00b"))
	r.Clean()
	if got := r.Dispatch[0].Parts; len(got) != 2 || got[1].Content != "ab" {
		t.Errorf("%+v", got)
	}
}
