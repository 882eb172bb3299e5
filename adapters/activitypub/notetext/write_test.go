package notetext

import (
	"slices"
	"strings"
	"testing"

	"inbox/normalized"
)

func TestHashtagsInText(t *testing.T) {
	cases := []struct {
		name, source string
		words        []string
	}{
		{"one", "about #weather today", []string{"weather"}},
		{"at the begin, in brackets, with an end", "#one (#two), #three. *#four*", []string{"one", "two", "three", "four"}},
		{"twice in other letters", "#Fediverse and #fediverse", []string{"Fediverse"}},
		{"other scripts", "#Größe #天気 #हिन्दी #under_score #a1", []string{"Größe", "天気", "हिन्दी", "under_score", "a1"}},
		{"after an ampersand", "this &#weather", nil},
		{"numbers", "#1 #2026 see issue #123", nil},
		{"colors", "#fff #c0ffee #A1B2C3", nil},
		{"in code", "`#include` and\n\n```\n#define X\n```", nil},
		{"in a link", "[#there](https://m.example/#there) https://m.example/page#part", nil},
		{"joined", "one;#two", nil},
		{"inside words", "C#major a/#b x=#y ##double q@#z", nil},
		{"escapes", "it's \"quoted\" & <b>", nil},
		{"heading", "# Title\n\ntext", nil},
		{"too long", "#" + strings.Repeat("a", maxHashtagRunes+1), nil},
	}
	for _, c := range cases {
		for _, mime := range []string{normalized.MIMEMarkdown, normalized.MIMEPlain} {
			if mime == normalized.MIMEPlain && (strings.Contains(c.source, "`") || strings.Contains(c.source, "[") || strings.Contains(c.source, "*")) {
				continue
			}
			content := HTML(normalized.Part{Kind: normalized.PartText, MIME: mime, Content: c.source}, attached)
			linked, words := LinkHashtags(content, "https://inbox.example/@echo")
			if !slices.Equal(words, c.words) || (len(words) == 0) != (linked == content) {
				t.Errorf("%s, %s: %q in %s", c.name, mime, words, linked)
			}
			plain := Reader{IsUs: func(string) bool { return false }}
			if before, after := Plain(content, plain), Plain(linked, plain); before != after {
				t.Errorf("%s: readers see %q instead of %q", c.name, after, before)
			}
		}
	}
	if linked, words := LinkHashtags("<p>#a#b #c#d</p>", ""); !slices.Equal(words, []string{"a", "c"}) || strings.Count(linked, "<a ") != 2 {
		t.Errorf("%q in %s", words, linked)
	}
	var many strings.Builder
	for i := range 3 * maxHashtags {
		many.WriteString(" #w" + strings.Repeat("x", i))
	}
	if linked, words := LinkHashtags("<p>"+many.String()+"</p>", ""); len(words) != maxHashtags || strings.Count(linked, "<a ") != maxHashtags {
		t.Errorf("%d words, %d links", len(words), strings.Count(linked, "<a "))
	}
}

func FuzzHashtags(f *testing.F) {
	for _, seed := range []string{"#a", "a #b<c", "&#35;x", "`#x`", "#\u0301x", "#x#y"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		content := PlainHTML(source)
		linked, words := LinkHashtags(content, "https://inbox.example/@echo")
		if len(words) > maxHashtags || Sanitize(linked) != Sanitize(Sanitize(linked)) {
			t.Errorf("%q: %q %s", source, words, linked)
		}
		for _, word := range words {
			if strings.ContainsAny(word, `<>&"' `) {
				t.Errorf("%q: %q", source, word)
			}
		}
	})
}
