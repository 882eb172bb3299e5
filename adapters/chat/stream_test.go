package chat

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"inbox/adapters/chat/contract"
	"inbox/exchange"
	"inbox/normalized"
)

// stuck is a connection without a reader: writes fail at their deadline.
type stuck struct {
	*httptest.ResponseRecorder
	writes   int
	deadline time.Duration
}

func (s *stuck) Write(content []byte) (int, error) {
	if s.writes++; s.writes > 2 {
		return 0, errors.New("i/o timeout")
	}
	return s.ResponseRecorder.Write(content)
}

func (s *stuck) SetWriteDeadline(at time.Time) error {
	s.deadline = time.Until(at)
	return nil
}

func TestSlowReadersAreDropped(t *testing.T) {
	synctest.Test(t, slowReadersAreDropped)
}

func slowReadersAreDropped(t *testing.T) {
	connection := &stuck{ResponseRecorder: httptest.NewRecorder()}
	stopped := 0
	out := openEvents(t.Context(), connection, Options{WriteTimeout: 7 * time.Second, KeepAlive: time.Hour}, func() { stopped++ })
	if !out.write("t.1", event{"delta", ChatText{"a"}}, event{"delta", ChatText{"b"}}) {
		t.Error("a reader that reads was dropped")
	}
	if want := "event: delta\ndata: {\"text\":\"a\"}\n\nid: t.1\nevent: delta\ndata: {\"text\":\"b\"}\n\n"; connection.Body.String() != want {
		t.Errorf("written %q", connection.Body.String())
	}
	for range 3 {
		if out.write("t.2", event{data: raw("[DONE]")}) {
			t.Error("somebody who reads nothing stays")
		}
	}
	out.out.Close()
	if stopped != 1 || connection.writes != 3 || connection.deadline != 7*time.Second {
		t.Errorf("stopped %d times after %d writes with %s", stopped, connection.writes, connection.deadline)
	}
	if connection.Code != http.StatusOK || connection.Header().Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d %v", connection.Code, connection.Header())
	}
}

func TestQuietStreamsStayOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connection := httptest.NewRecorder()
		ctx, cancel := context.WithCancel(t.Context())
		out := openEvents(ctx, connection, Options{WriteTimeout: time.Second, KeepAlive: 15 * time.Second}, cancel)
		<-time.After(31 * time.Second)
		synctest.Wait()
		out.out.Close()
		cancel()
		if beats := strings.Count(connection.Body.String(), ": still here"); beats != 2 {
			t.Errorf("%d signs of life in 31 seconds", beats)
		}
	})
}

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
				steps, err := p.add(deltaEvent(int64(i), normalized.Delta{Kind: normalized.DeltaText, Text: word}))
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
		{Kind: normalized.DeltaToolCallEnd, Part: &normalized.Part{Kind: normalized.PartToolCall, ID: "c", Name: "map", Result: json.RawMessage(`[2]`)}},
		{Kind: normalized.DeltaToolCallEnd, Part: &normalized.Part{Kind: normalized.PartToolCall, ID: "c", Name: "map", Result: json.RawMessage(`[3]`)}},
		{Kind: normalized.DeltaToolCallEnd, Part: &normalized.Part{Kind: normalized.PartToolCall, ID: "d", Name: "no", Error: &normalized.ToolError{Message: "broke"}}},
		{Kind: normalized.DeltaPartBegin, Part: part(normalized.PartText, "")}, {Kind: normalized.DeltaText, Text: "two"},
		{Kind: normalized.DeltaResponse, Response: &normalized.Response{}},
	} {
		steps, err := p.add(deltaEvent(int64(i), delta))
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range steps {
			got = append(got, string(step.Kind)+" "+step.Text)
		}
	}
	if want := "content one|tool_call |tool_argument {\"q\":1}|tool_result [2]|tool_call |tool_result broke|content \n\ntwo"; strings.Join(got, "|") != want {
		t.Errorf("steps %q", strings.Join(got, "|"))
	}
	if _, err := p.add(exchange.Event{Body: json.RawMessage(`{`)}); err == nil {
		t.Error("a broken row was read")
	}
}

// TestAnswersAreNotSaidTwice ends streams whose text is the whole answer, its beginning, its tail or another answer.
func TestAnswersAreNotSaidTwice(t *testing.T) {
	const (
		tool = "(tool)" // a piece that is none
		no   = "(no)"   // what was sent is not of the answer
	)
	for name, c := range map[string]struct {
		sent  []string // parts, each in pieces that | separates; the runs of the turn are separated by restart
		reply string
		want  string
	}{
		"nothing was sent":              {nil, "The answer.", "The answer."},
		"all of it":                     {[]string{"The |answer."}, "The answer.", ""},
		"its beginning":                 {[]string{"The |ans"}, "The answer.", "wer."},
		"words before a tool":           {[]string{"Let me look.", tool, "The |answer."}, "The answer.", ""},
		"many words before many tools":  {[]string{"One.", tool, "Two.", tool, "Three.", tool, "The answer\n\nhas lines.|\n\nMany."}, "The answer\n\nhas lines.\n\nMany.", ""},
		"its last part has not come":    {[]string{"Let me look.", tool}, "The answer.", "\n\nThe answer."},
		"the rest of its last part":     {[]string{"Let me look.", tool, "The ans"}, "The answer.", "wer."},
		"all parts":                     {[]string{"One.", tool, "Two."}, "One.\n\nTwo.", ""},
		"some words and two parts":      {[]string{"Looking.", "One.", "Two."}, "One.\n\nTwo.\n\nThree.", "\n\nThree."},
		"another answer":                {[]string{"Let me look.", tool, "Draft."}, "The answer.", "\n\nThe answer."},
		"a paragraph is no part":        {[]string{"I say\n\nyes"}, "yes", "\n\nyes"},
		"after a restart":               {[]string{"Let me |look.", "restart", "Let me look.", tool, "The |answer."}, "The answer.", ""},
		"a restart with other words":    {[]string{"Let me |look.", "restart", "I look.", tool, "The answer."}, "The answer.", no},
		"a restart with another answer": {[]string{"one two| three", "restart"}, "Four.", no},
		"a restart with less":           {[]string{"one two| three", "restart", "one two"}, "one two", no},
		"a restart that goes on":        {[]string{"one two ", "restart"}, "one two three", "three"},
		"a restart with other spaces":   {[]string{"one  two ", "restart", "one two three"}, "one  two three", "three"},
		"a restart before any words":    {[]string{" ", "restart", "Draft."}, "The answer.", "The answer."},
		"the same draft again":          {[]string{"Draft.", "restart", "Draft."}, "The answer.", "\n\nThe answer."},
		"after a wait":                  {[]string{"May I?", "wait", "Done."}, "Done.", "\n\nDone."},
		"a space after equal text":      {[]string{"one two "}, "one two three", "three"},
		"a line after a space":          {[]string{"one two "}, "one two\n\nthree", "\n\nthree"},
		"white space around":            {[]string{"Let me look. ", tool, " The answer. "}, "The answer.", ""},
		"words that begin as the reply": {[]string{"The", tool, "The answer."}, "The answer.", ""},
	} {
		var p progress
		for _, part := range c.sent {
			if part == "restart" {
				p.restart()
				continue
			}
			if part == "wait" {
				p.begin()
				continue
			}
			deltas := []normalized.Delta{{Kind: normalized.DeltaToolCallStart, Part: &normalized.Part{Kind: normalized.PartToolCall, ID: "c", Name: "map"}}}
			if part != tool {
				deltas = []normalized.Delta{{Kind: normalized.DeltaPartBegin, Part: &normalized.Part{Kind: normalized.PartText, MIME: normalized.MIMEPlain}}}
				for piece := range strings.SplitSeq(part, "|") {
					deltas = append(deltas, normalized.Delta{Kind: normalized.DeltaText, Text: piece})
				}
			}
			for _, delta := range deltas {
				if _, err := p.add(deltaEvent(1, delta)); err != nil {
					t.Fatal(err)
				}
			}
		}
		got, one := p.lacks(c.reply)
		if !one {
			got = no
		}
		if got != c.want {
			t.Errorf("%s: the reader has %q and gets %q, want %q", name, p.sent.String(), got, c.want)
		}
	}
}

// TestResetsReplaceTheText: a reader that knows resets has the text of the last run alone, however often runs are cut off, and hears of no
// reset where a run says the same again.
func TestResetsReplaceTheText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ä", " ", "lo\n"}), 0, 6)
		p := progress{resets: true}
		got, resets := "", 0
		read := func(said []string) {
			for i, word := range said {
				steps, err := p.add(deltaEvent(int64(i), normalized.Delta{Kind: normalized.DeltaText, Text: word}))
				if err != nil {
					t.Fatal(err)
				}
				for _, step := range steps {
					if step.Kind == contract.DeltaReset {
						got, resets = "", resets+1
					}
					got += step.Text
				}
			}
		}
		for range rapid.IntRange(0, 3).Draw(t, "cuts") {
			before, beforeResets := got, resets
			said := words.Draw(t, "said")
			read(said)
			if whole := strings.Join(said, ""); strings.HasPrefix(before, whole) && (got != before || resets != beforeResets) {
				t.Fatalf("%q after %q is told as %q", whole, before, got)
			} else if !strings.HasPrefix(before, whole) && got != whole {
				t.Fatalf("%q after %q is told as %q", whole, before, got)
			}
			p.restart()
		}
	})
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
