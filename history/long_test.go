package history

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/normalized"
)

// long makes the texts of some turns longer.
func long(turns []normalized.HistoricalMessage, sizes map[int]int) []normalized.HistoricalMessage {
	for i, size := range sizes {
		turns[i].Parts = []normalized.Part{normalized.Text(fmt.Sprint(i, strings.Repeat(" ä", size/3)))}
	}
	return turns
}

func textOf(kept []normalized.HistoricalMessage) (bytes int) {
	for i := range kept {
		t := outlineOf(&kept[i])
		bytes += t.text
	}
	return bytes
}

// TestOneLongMessageLeavesRoomForOthers: a message over the whole budget is shortened where one sees it, at the start of the thread
// and later, and the history goes on growing.
func TestOneLongMessageLeavesRoomForOthers(t *testing.T) {
	const huge = 300 << 10
	for name, c := range map[string]struct {
		sizes map[int]int
		whole string // turns that stay whole
	}{
		"the first message":           {map[int]int{0: huge}, "1 2 19"},
		"the first answer":            {map[int]int{1: huge}, "0 2 19"},
		"the first message and reply": {map[int]int{0: huge, 1: huge}, "2 19"},
		"a later message":             {map[int]int{7: huge}, "0 1 2 19"},
		"two later messages":          {map[int]int{7: huge, 12: huge}, "0 1 2 19"},
		"the head and a later one":    {map[int]int{0: huge, 12: huge}, "1 2 19"},
	} {
		kept, _ := Trim(long(thread(strings.Repeat("ua", 10)), c.sizes), DefaultPolicy(), start)
		if len(kept) != 20 {
			t.Errorf("%s: %d of 20 turns", name, len(kept))
			continue
		}
		if size := textOf(kept); size > 256<<10 {
			t.Errorf("%s: %d bytes", name, size)
		}
		for i := range kept {
			text := kept[i].Parts[0].Content
			if _, is := c.sizes[i]; is != strings.HasSuffix(text, shortMark) || is && len(text) < 30<<10 {
				t.Errorf("%s: turn %d has %d bytes and ends with %q", name, i, len(text), text[max(0, len(text)-20):])
			}
		}
	}
}

// TestNoFieldTakesTheRoomOfOthers puts a long value into each field of a part, and into up to 64 parts of a message.
func TestNoFieldTakesTheRoomOfOthers(t *testing.T) {
	long := strings.Repeat("ä ", 20<<10)
	object, _ := json.Marshal(map[string]string{"content": long})
	for name, part := range map[string]normalized.Part{
		"arguments":   {Kind: normalized.PartToolCall, ID: "1", Name: "write", Args: object, Result: json.RawMessage(`"ok"`)},
		"results":     {Kind: normalized.PartToolCall, ID: "1", Name: "read", Args: json.RawMessage(`{}`), Result: object},
		"failures":    {Kind: normalized.PartToolCall, ID: "1", Name: "read", Error: &normalized.ToolError{Message: long}},
		"alt":         {Kind: normalized.PartFile, MIME: "image/png", Alt: long, BytesRef: normalized.At("https://files.test/1")},
		"titles":      {Kind: normalized.PartLink, URL: "https://files.test/1", Title: long},
		"description": {Kind: normalized.PartLink, URL: "https://files.test/1", Description: long},
	} {
		for _, at := range []int{0, 1, 7} {
			turns := thread(strings.Repeat("ua", 10))
			for range 8 {
				turns[at].Parts = append(turns[at].Parts, part)
			}
			before := written(t, turns[at:at+1])
			kept, _ := Trim(turns, DefaultPolicy(), start)
			if len(kept) != 20 || textOf(kept) > 256<<10 {
				t.Errorf("%s in turn %d: %d of 20 turns, %d bytes", name, at, len(kept), textOf(kept))
				continue
			}
			if !cmp.Equal(before, written(t, turns[at:at+1])) {
				t.Errorf("%s in turn %d: the thread itself is shortened", name, at)
			}
			for _, short := range kept[at].Parts[1:] {
				if len(short.Args) > 0 && short.Args[0] != '{' {
					t.Errorf("%s in turn %d: the arguments are no object: %.100s", name, at, short.Args)
				}
			}
		}
	}
}

// TestTheNewestTurnsStayWhole: what was said last is never shortened.
func TestTheNewestTurnsStayWhole(t *testing.T) {
	kept, _ := Trim(long(thread("ua"), map[int]int{0: 300 << 10}), DefaultPolicy(), start)
	if strings.HasSuffix(kept[0].Parts[0].Content, shortMark) {
		t.Error("the question before the last answer is shortened")
	}
}

// TestShortenedTurnsStayAsTheyAre: a long turn is shortened once, when it is no longer among the newest, and has the same bytes until it
// leaves the window. What the breakpoint covers is the same at the next run.
func TestShortenedTurnsStayAsTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := map[int]int{}
		for range rapid.IntRange(1, 3).Draw(t, "long turns") {
			sizes[rapid.IntRange(0, 19).Draw(t, "turn")] = rapid.SampledFrom([]int{2 << 10, 40 << 10, 90 << 10, 300 << 10}).Draw(t, "size")
		}
		turns := long(thread(strings.Repeat("ua", 10)), sizes)
		for n := 4; n+2 <= len(turns); n += 2 {
			now, breakpoint := Trim(turns[:n], DefaultPolicy(), start)
			next, _ := Trim(turns[:n+2], DefaultPolicy(), start)
			if len(now) != n || len(next) != n+2 { // so many long ones that turns leave
				return
			}
			stays := n - protected
			if d := cmp.Diff(written(t, now[:stays]), written(t, next[:stays])); d != "" {
				t.Fatalf("after %d turns: %.500s", n, d)
			}
			if at := at(breakpoint) + 1; !cmp.Equal(written(t, now[:at]), written(t, next[:at])) {
				t.Fatalf("after %d turns the prefix up to %d changes", n, at)
			}
		}
	})
}
