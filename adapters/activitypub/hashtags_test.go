package activitypub

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
			content := textHTML(normalized.Part{Kind: normalized.PartText, MIME: mime, Content: c.source}, new(note).picture)
			linked, words := linkHashtags(content, "https://inbox.example/@echo")
			if !slices.Equal(words, c.words) || (len(words) == 0) != (linked == content) {
				t.Errorf("%s, %s: %q in %s", c.name, mime, words, linked)
			}
			plain := reader{isUs: func(string) bool { return false }}
			if before, after := plainText(content, plain), plainText(linked, plain); before != after {
				t.Errorf("%s: readers see %q instead of %q", c.name, after, before)
			}
		}
	}
	if linked, words := linkHashtags("<p>#a#b #c#d</p>", ""); !slices.Equal(words, []string{"a", "c"}) || strings.Count(linked, "<a ") != 2 {
		t.Errorf("%q in %s", words, linked)
	}
	var many strings.Builder
	for i := range 3 * maxHashtags {
		many.WriteString(" #w" + strings.Repeat("x", i))
	}
	if linked, words := linkHashtags("<p>"+many.String()+"</p>", ""); len(words) != maxHashtags || strings.Count(linked, "<a ") != maxHashtags {
		t.Errorf("%d words, %d links", len(words), strings.Count(linked, "<a "))
	}
}

// TestHashtagsOfAnswers: Mastodon wants the tag and the link with its classes; what is private is not to be found.
func TestHashtagsOfAnswers(t *testing.T) {
	r := newRig(t)
	made := must(r.adapter.render(r.reply(r.question("1", "hello"), "sunny #Weather #Weather"), 1, nil, withoutAddress))
	tag := noteTag{"Hashtag", r.base + "/@echo", "#Weather"}
	link := `<a href="` + r.base + `/@echo" class="mention hashtag" rel="tag">#<span>Weather</span></a>`
	if len(made.Tag) != 2 || made.Tag[1] != tag || strings.Count(made.Content, link) != 2 {
		t.Errorf("%+v %s", made.Tag, made.Content)
	}
	private := must(r.adapter.render(r.reply(r.question("2", "psst", func(note map[string]any) { direct(r, note) }), "sunny #Weather"), 1, nil, withoutAddress))
	if len(private.Tag) != 1 || strings.Contains(private.Content, "hashtag") {
		t.Errorf("%+v %s", private.Tag, private.Content)
	}
}

func FuzzHashtags(f *testing.F) {
	for _, seed := range []string{"#a", "a #b<c", "&#35;x", "`#x`", "#\u0301x", "#x#y"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		content := plainHTML(source)
		linked, words := linkHashtags(content, "https://inbox.example/@echo")
		if len(words) > maxHashtags || sanitize(linked) != sanitize(sanitize(linked)) {
			t.Errorf("%q: %q %s", source, words, linked)
		}
		for _, word := range words {
			if strings.ContainsAny(word, `<>&"' `) {
				t.Errorf("%q: %q", source, word)
			}
		}
	})
}
