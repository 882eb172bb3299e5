package redact

import (
	"encoding/base64"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func quickRedactor() *Redactor {
	return New(
		[]string{"inbox.test:8443", "xn--bcher-kva.example"},
		Key{Path: "/policy/", Length: 43}, Key{Path: "/v1/Files/"}, Key{Path: "/media/", Query: "key"}, Key{Tag: 26},
		Key{Near: "approve", Pattern: regexp.MustCompile(`(?i)\bapprove[ \t]+#?([0-9][0-9a-z]{5})\b`)},
		Key{Near: "link-", Pattern: regexp.MustCompile(`(?im)^[ \t]*>.*?\b(link-[0-9a-z]{16})\b`)},
	)
}

const quickToken = "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_abcde"

// hostileText draws a text of keys, pieces of keys, and what stands inside of them.
func hostileText(t *rapid.T) string {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{
			"https://inbox.test/policy/" + quickToken, "inbox.test", "/policy/", quickToken, "/POLICY/", "/v1/files/abc", "https://inbox.test/media/a?key=b",
			"a+abcdefghijklmnopqrstuvwxyz@inbox.test", "approve 7k3mq2", "APPROVE", "7k3mq2", "> link-0123456789abcdef", "lin\u212a-0123456789abcdef",
			"https-3A__inbox.test_policy_" + quickToken, "-3A__", "\n", "\r\n> ", "<wbr>", "<", ">", "\u200b", "\u00ad", "\u212a", "\u023a", "é", "中", "\\", "/", "@", "%", "&", ";", " ",
		}),
		rapid.StringMatching(`[A-Za-z0-9+/_-]{0,70}`),
		rapid.StringMatching(`[ -~]{0,12}`),
	)
	text := strings.Join(rapid.SliceOfN(piece, 1, 6).Draw(t, "pieces"), "")
	for _, encode := range rapid.SliceOfN(rapid.SampledFrom([]func(string) string{
		url.QueryEscape, html.EscapeString, func(s string) string { return strings.ReplaceAll(s, "/", `\/`) },
		func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) },
		func(s string) string { return strings.ReplaceAll(s, "li", "l\ni") },
		func(s string) string { return strings.ReplaceAll(s, "o", "<b>o") },
		func(s string) string { return "before " + s + " after" },
	}), 0, 3).Draw(t, "encodings") {
		text = encode(text)
	}
	return text
}

// TestAQuickLookMissesNothing: no text is passed over in which the search finds a key.
func TestAQuickLookMissesNothing(t *testing.T) {
	r := quickRedactor()
	rapid.Check(t, func(t *rapid.T) {
		text := hostileText(t)
		if found := r.search(text, true); len(found) > 0 && !r.mayHold(text) {
			t.Fatalf("%q: %v is passed over", text, found)
		}
	})
}

// TestSearchesFindWhatPlainOnesFind compares each shortcut with the plain way to say it.
func TestSearchesFindWhatPlainOnesFind(t *testing.T) {
	r := quickRedactor()
	rapid.Check(t, func(t *rapid.T) {
		text := hostileText(t)
		joined, _ := view{text: text, blind: true}.apply(anyOf("\n\r<"), joinLines)
		if has := strings.Contains(asciiLower(joined.text), "/policy/"); has && !r.mayBeBroken(text) {
			t.Errorf("%q has a path over several lines", text)
		}

		for _, one := range r.words {
			if strings.Contains(asciiLower(text), one.Near) != one.near(text) {
				t.Errorf("%q: %s near: %v", text, one.Near, one.near(text))
			}
		}

		var runs, quick []string
		for _, run := range strings.FieldsFunc(text, func(c rune) bool { return c >= 0x80 || !isBase64(byte(c)) }) {
			if len(run) >= shortestBase64 {
				runs = append(runs, run)
			}
		}
		for begin, end := nextBase64(text, 0); begin < end; begin, end = nextBase64(text, end) {
			quick = append(quick, text[begin:end])
		}
		if strings.Join(runs, " ") != strings.Join(quick, " ") {
			t.Errorf("%q: runs of base64 %q, want %q", text, quick, runs)
		}

		plain, _ := view{text: text, blind: true}.apply(everywhere, dropInvisible)
		if read, _ := (view{text: text, blind: true}).apply(nextInvisible, dropInvisible); read.text != plain.text {
			t.Errorf("%q: without what no one sees %q, want %q", text, read.text, plain.text)
		}
	})
}

// everywhere stops at every byte.
func everywhere(text string) int {
	if text == "" {
		return -1
	}
	return 0
}

func asciiLower(text string) string {
	small := []byte(text)
	for i := range small {
		small[i] = lower(small[i])
	}
	return string(small)
}
