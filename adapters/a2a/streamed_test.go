package a2a

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"inbox/normalized"
)

// TestCutText: pieces are bounded, whole characters, and joined they are the text.
func TestCutText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Repeat(rapid.SampledFrom([]string{"a", "é", "€", "🙂", "\xff"}).Draw(t, "character"), rapid.IntRange(0, 3*maxChunk).Draw(t, "count"))
		text = rapid.StringN(0, 3, -1).Draw(t, "head") + text
		joined := ""
		for piece, rest := cutText(text); ; piece, rest = cutText(rest) {
			if len(piece) > maxChunk || utf8.ValidString(text) && !utf8.ValidString(piece) || piece == "" && rest != "" {
				t.Fatalf("a piece of %d bytes", len(piece))
			}
			if joined += piece; rest == "" {
				break
			}
		}
		if joined != text {
			t.Fatal("the pieces are not the text")
		}
	})
}

func TestStreamedKnowsItsText(t *testing.T) {
	var s streamed
	for _, piece := range []string{"one ", "two "} {
		s.add(piece)
	}
	for text, want := range map[string]string{"one two ": "", "one two three": "three", "one two": "-", "one too three": "-", "": "-"} {
		rest, ok := s.cut(text)
		if !ok {
			rest = "-"
		}
		if rest != want {
			t.Errorf("%q: %q, want %q", text, rest, want)
		}
	}
	s.reset()
	if rest, ok := s.cut("all"); rest != "all" || !ok {
		t.Errorf("after a reset: %q, %v", rest, ok)
	}
}

// TestLongTextsGoInPieces: a slow reader holds up one piece and not the whole answer.
func TestLongTextsGoInPieces(t *testing.T) {
	long := strings.Repeat("é", 3*maxChunk)
	for name, streams := range map[string]bool{"streamed": true, "at once": false} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.engine.agent = func(_ context.Context, r *run) normalized.Response {
				if streams {
					r.say(long[:4*maxChunk])
				}
				return normalized.Response{Parts: []normalized.Part{normalized.Text(long)}}
			}
			frames := b.rpc(b.ada, "SendStreamingMessage", message("m1", "hello")).frames()
			if text, state := folded(t, frames); text != long || state != "TASK_STATE_COMPLETED" {
				t.Errorf("%d bytes, %s; want %d", len(text), state, len(long))
			}
			for _, frame := range frames {
				if len(frame.body) > 2*maxChunk {
					t.Errorf("an event of %d bytes", len(frame.body))
				}
			}
		})
	}
}
