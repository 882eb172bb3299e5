package store

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPlainWordsAreThoseOfOtherTexts: a text of ASCII has the words that it has before a letter beyond it.
func TestPlainWordsAreThoseOfOtherTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.StringMatching(`[ -~\n\t]{0,12}|[a-zA-Z0-9]{70,100}`)).Draw(t, "text"), "")
		most := rapid.IntRange(1, 30).Draw(t, "most")
		want := wordsOf(text+" é", maxSearchedWords)
		want = want[:min(len(want)-1, most)]
		if got := wordsOf(text, most); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	})
}
