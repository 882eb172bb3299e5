package clip_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"inbox/internal/clip"
)

func TestBytes(t *testing.T) {
	for _, one := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 0, ""}, {"abc", 3, "abc"}, {"abc", 2, "ab"}, {"abc", 0, ""}, {"abc", -1, ""}, {"aé", 2, "a"}, {"é", 1, ""}, {"a😀b", 4, "a"},
		{"a😀b", 5, "a😀"}, {"\x80\x80\x80\x80\x80\x80", 5, "\x80\x80\x80\x80\x80"},
	} {
		if got := clip.Bytes(one.text, one.limit); got != one.want {
			t.Errorf("Bytes(%q, %d) = %q, want %q", one.text, one.limit, got, one.want)
		}
	}
	if got := clip.Marked("äöü", 3, " …"); got != "ä …" {
		t.Errorf("a marked text is %q", got)
	}
	if got := clip.Marked("äöü", 6, " …"); got != "äöü" {
		t.Errorf("a whole text is %q", got)
	}
}

// TestPieces: pieces of a text are the text, each of them whole characters where the text is.
func TestPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, limit := rapid.String().Draw(t, "text"), rapid.IntRange(utf8.UTFMax, 20).Draw(t, "limit")
		var joined strings.Builder
		for rest := text; rest != ""; {
			piece := clip.Bytes(rest, limit)
			if piece == "" || len(piece) > limit || utf8.ValidString(text) && !utf8.ValidString(piece) {
				t.Fatalf("%q is a piece of %q with at most %d bytes", piece, text, limit)
			}
			joined.WriteString(piece)
			rest = rest[len(piece):]
		}
		if joined.String() != text {
			t.Fatalf("the pieces are %q, want %q", joined.String(), text)
		}
	})
}
