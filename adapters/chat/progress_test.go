package chat

import (
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"inbox/exchange"
	"inbox/normalized"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func deltaEvent(seq int64, delta normalized.Delta) exchange.Event {
	body, _ := json.Marshal(delta)
	return exchange.Event{TurnID: "t", Seq: seq, Kind: exchange.EventDelta, Body: body}
}

// TestReadersGetTheTextOnce: however often runs are cut off, what a reader got is the beginning of what the first run that
// said so much said, and all of it where every run says the same.
func TestReadersGetTheTextOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ä", " ", "lo\n"}), 1, 8)
		whole := words.Draw(t, "whole")
		var p progress
		var got strings.Builder
		read := func(words []string) {
			for i, word := range words {
				steps, err := p.add(deltaEvent(int64(i), normalized.Delta{Kind: normalized.DeltaText, Text: word}), false)
				if err != nil {
					t.Fatal(err)
				}
				for _, step := range steps {
					got.WriteString(step.Text)
				}
			}
		}
		for range rapid.IntRange(0, 3).Draw(t, "cuts") {
			read(whole[:rapid.IntRange(0, len(whole)).Draw(t, "at")])
			p.restart()
		}
		read(whole)
		if want := strings.Join(whole, ""); got.String() != want {
			t.Fatalf("the reader has %q, want %q", got.String(), want)
		}
		p.restart()
		read(words.Draw(t, "another"))
		if !strings.HasPrefix(got.String(), strings.Join(whole, "")) {
			t.Fatalf("the reader has %q", got.String())
		}
	})
}

func TestPartsStandApart(t *testing.T) {
	var p progress
	part := func(kind, text string) *normalized.Part {
		return &normalized.Part{Kind: kind, MIME: normalized.MIMEPlain, Content: text}
	}
	var got []string
	for i, delta := range []normalized.Delta{
		{Kind: normalized.DeltaPartBegin, Part: part(normalized.PartText, "one")}, {Kind: normalized.DeltaPartEnd},
		{Kind: normalized.DeltaToolCallStart, Part: &normalized.Part{Kind: normalized.PartToolCall, ID: "c", Name: "map", Args: json.RawMessage(`{"q":1}`)}},
		{Kind: normalized.DeltaToolCallStart, Part: &normalized.Part{Kind: normalized.PartToolCall, ID: "c", Name: "map"}},
		{Kind: normalized.DeltaPartBegin, Part: part(normalized.PartText, "")}, {Kind: normalized.DeltaText, Text: "two"},
		{Kind: normalized.DeltaResponse, Response: &normalized.Response{}},
	} {
		steps, err := p.add(deltaEvent(int64(i), delta), true)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range steps {
			got = append(got, string(step.Kind)+" "+step.Text)
		}
	}
	if want := "content one|tool_call |tool_argument {\"q\":1}|content \n\ntwo"; strings.Join(got, "|") != want {
		t.Errorf("steps %q", strings.Join(got, "|"))
	}
	if _, err := p.add(exchange.Event{Body: json.RawMessage(`{`)}, true); err == nil {
		t.Error("a broken row was read")
	}
}

func FuzzEventID(f *testing.F) {
	for _, seed := range []string{"", ".", "01a2008f-1168-77f8-8482-9c57098e1a11.3", "01a2008f-1168-77f8-8482-9c57098e1a11.-1", "01a2008f-1168-77f8-8482-9c57098e1a11.99999999999999999999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		turn, seq, ok := splitEventID(text)
		if again, number, is := splitEventID(eventID(turn, seq)); ok && (!is || again != turn || number != seq || seq < 0) {
			t.Errorf("%q: %q %d", text, turn, seq)
		}
	})
}
