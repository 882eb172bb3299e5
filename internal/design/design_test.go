package design

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"
	"pgregory.net/rapid"

	"inbox/internal/markup/markuptest"
)

func get(t *testing.T, path string, header http.Header) *http.Response {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	maps.Copy(r.Header, header)
	recorder := httptest.NewRecorder()
	Assets().ServeHTTP(recorder, r)
	return recorder.Result()
}

func TestAssetsAreServedForEver(t *testing.T) {
	for name, want := range assets() {
		answer := get(t, Address(name), nil)
		body, _ := io.ReadAll(answer.Body)
		sum := sha256.Sum256(body)
		if answer.StatusCode != http.StatusOK || !strings.Contains(Address(name), hex.EncodeToString(sum[:8])) || string(body) != string(want.content) {
			t.Errorf("%s: status %d, %d bytes", name, answer.StatusCode, len(body))
		}
		if keep := answer.Header.Get("Cache-Control"); !strings.Contains(keep, "immutable") {
			t.Errorf("%s is kept %q", name, keep)
		}

		again := get(t, Address(name), http.Header{"If-None-Match": {`"x", W/` + answer.Header.Get("ETag")}})
		if again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: a kept copy is answered with %d", name, again.StatusCode)
		}

		packed := get(t, Address(name), http.Header{"Accept-Encoding": {"br, gzip"}})
		if want.kind == pngImage {
			if packed.Header.Get("Content-Encoding") != "" {
				t.Errorf("%s is compressed twice", name)
			}
			continue
		}
		unpacked, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if body, _ := io.ReadAll(unpacked); string(body) != string(want.content) {
			t.Errorf("%s is another one when compressed", name)
		}
		if packed.Header.Get("ETag") == answer.Header.Get("ETag") {
			t.Errorf("%s: both forms have the tag %s", name, answer.Header.Get("ETag"))
		}
	}
}

func TestAssetsOfAnotherVersionAreNotKept(t *testing.T) {
	answer := get(t, "/assets/0000000000000000/design.css", nil)
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("status %d, kept %q", answer.StatusCode, answer.Header.Get("Cache-Control"))
	}
	for _, path := range []string{"/assets/0000000000000000/other.css", "/assets/", "/assets/x/../design.go"} {
		if answer := get(t, path, nil); answer.StatusCode != http.StatusNotFound {
			t.Errorf("%s: status %d", path, answer.StatusCode)
		}
	}
}

func TestGzipIsWanted(t *testing.T) {
	for header, want := range map[string]bool{"": false, "gzip": true, "br;q=1, GZIP;q=0.5": true, "gzip;q=0": false, "gzip;Q=0": false, "gzip; q=x": false, "deflate": false, "*": false} {
		if got := acceptsGzip(header); got != want {
			t.Errorf("Accept-Encoding %q: %v", header, got)
		}
	}
}

// TestOthersScriptsAreThoseThatWereTaken: the license names versions; these are their contents.
func TestOthersScriptsAreThoseThatWereTaken(t *testing.T) {
	for name, want := range map[string]string{
		"htmx/htmx.js": "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717", // htmx.org 2.0.11, dist/htmx.min.js
		"htmx/sse.js":  "98a46496de0c3605fbffdce9167ba427bdd9553184f83f149c261891a92c0136", // htmx-ext-sse 2.2.4, dist/sse.min.js
	} {
		if got := fmt.Sprintf("%x", sha256.Sum256(file(name))); got != want {
			t.Errorf("%s has SHA-256 %s", name, got)
		}
	}
}

// TestNothingComesFromOutside: no file names another host, apart from the names of SVG and of XML.
func TestNothingComesFromOutside(t *testing.T) {
	outside := regexp.MustCompile(`(?i:(https?:)?//[a-z0-9.-]+\.[a-z]{2,})|@import|\burl\(`)
	for name, one := range assets() {
		if one.kind == pngImage {
			continue
		}
		for _, found := range outside.FindAllString(string(one.content), -1) {
			if found != "http://www.w3.org" {
				t.Errorf("%s names %s", name, found)
			}
		}
	}
}

// pairs are grounds with what is written on them.
var pairs = map[string][]string{
	"paper":       {"ink", "muted", "accent", "accent-strong", "ok", "warn", "bad", "info"},
	"surface":     {"ink", "muted", "accent", "accent-strong", "ok", "warn", "bad", "info", "fediverse", "mail", "a2a", "chat", "task", "bridge"},
	"sunken":      {"ink", "muted", "accent", "accent-strong", "bad", "fediverse", "mail", "a2a", "chat", "task", "bridge"},
	"accent":      {"on-accent"},
	"accent-soft": {"ink", "on-accent-soft"},
	"ok-soft":     {"ink", "ok", "accent"},
	"warn-soft":   {"ink", "warn", "accent"},
	"bad-soft":    {"ink", "bad", "accent"},
	"info-soft":   {"ink", "info", "accent"},
	"bad":         {"on-bad"},
}

// TestContrast demands what WCAG 2.2 success criterion 1.4.3 does of text, and 1.4.11 of the borders of controls.
func TestContrast(t *testing.T) {
	plain, more := colours(t)
	for _, theme := range []struct {
		name   string
		column int
		values map[string][2]string
	}{{"light", 0, plain}, {"dark", 1, plain}, {"high contrast, light", 0, more}, {"high contrast, dark", 1, more}} {
		for ground, texts := range pairs {
			for _, text := range texts {
				if got := ratio(t, theme.values[ground][theme.column], theme.values[text][theme.column]); got < 4.5 {
					t.Errorf("%s: --%s on --%s has a contrast of %.2f, below 4.5", theme.name, text, ground, got)
				}
			}
		}
		for _, ground := range []string{"paper", "surface"} {
			if got := ratio(t, theme.values[ground][theme.column], theme.values["edge"][theme.column]); got < 3 {
				t.Errorf("%s: --edge on --%s has a contrast of %.2f, below 3", theme.name, ground, got)
			}
		}
	}

	for _, name := range slices.Sorted(maps.Keys(plain)) {
		if plain[name] == more[name] && slices.Contains(strings.Fields("ink muted accent edge ok warn bad info"), name) {
			t.Errorf("--%s is the same in high contrast", name)
		}
	}
}

// colours returns the values of tokens in the light and in the dark, as they are and with high contrast.
func colours(t *testing.T) (plain, more map[string][2]string) {
	t.Helper()
	text := string(file("tokens.css"))
	found := contrast.FindStringSubmatchIndex(text)
	if found == nil {
		t.Fatal("no tokens of high contrast")
	}

	token := regexp.MustCompile(`--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);`)
	read := func(text string, into map[string][2]string) map[string][2]string {
		for _, match := range token.FindAllStringSubmatch(text, -1) {
			into[match[1]] = [2]string{match[2], match[3]}
		}
		return into
	}
	plain = read(text[:found[0]], map[string][2]string{})
	return plain, read(text[found[2]:found[3]], maps.Clone(plain))
}

// ratio is the contrast of two colours (WCAG 2.2, definition of contrast ratio).
func ratio(t *testing.T, one, other string) float64 {
	t.Helper()
	a, b := luminance(t, one), luminance(t, other)
	return (max(a, b) + 0.05) / (min(a, b) + 0.05)
}

func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	if len(colour) != 7 {
		t.Fatalf("a token has no colour: %q", colour)
	}
	total := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		value, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		part := float64(value) / 255
		if part <= 0.04045 {
			part /= 12.92
		} else {
			part = math.Pow((part+0.055)/1.055, 2.4)
		}
		total += weight * part
	}
	return total
}

// TestEveryTokenIsThere: a name that no token has makes a declaration void without a word.
func TestEveryTokenIsThere(t *testing.T) {
	sheet := string(assets()["design.css"].content)
	for _, used := range regexp.MustCompile(`var\(--([a-z0-9-]+)`).FindAllStringSubmatch(sheet, -1) {
		if !strings.Contains(sheet, "--"+used[1]+":") {
			t.Errorf("--%s is used and has no value", used[1])
		}
	}
	if shadow := ShadowTokens(); strings.Contains(shadow, ":root") || !strings.Contains(shadow, `:host([data-theme="dark"])`) || !strings.Contains(shadow, `:host([data-theme="contrast"])`) {
		t.Error("the tokens of shadow trees have selectors of the page")
	}
}

// TestClassesOfTheSpecimens: what the pages in testdata use has a rule.
func TestClassesOfTheSpecimens(t *testing.T) {
	sheet := string(assets()["design.css"].content)
	paths, err := filepath.Glob("testdata/*.html")
	if err != nil || len(paths) == 0 {
		t.Fatal("no specimens", err)
	}
	for _, path := range paths {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, list := range regexp.MustCompile(`class="([^"]*)"`).FindAllStringSubmatch(string(page), -1) {
			for class := range strings.FieldsSeq(list[1]) {
				if !regexp.MustCompile(`\.` + regexp.QuoteMeta(class) + `\b`).MatchString(sheet) {
					t.Errorf("%s: .%s has no rule", path, class)
				}
			}
		}
		for _, icon := range regexp.MustCompile(`\{\{icon:([^}]*)\}\}`).FindAllStringSubmatch(string(page), -1) {
			if icons[icon[1]] == "" {
				t.Errorf("%s: there is no icon %q", path, icon[1])
			}
		}
	}
}

func render(t *testing.T, component templ.Component) string {
	t.Helper()
	var out strings.Builder
	if err := component.Render(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestTextsNeverBecomeMarkup fills components with texts that try to leave their place.
func TestTextsNeverBecomeMarkup(t *testing.T) {
	for name, component := range map[string]func(text string) templ.Component{
		"page": func(text string) templ.Component {
			return Page(Head{
				Title: text, Lang: text, Description: text, Canonical: text, Robots: text, Class: text, OpenGraph: OpenGraph{text, text, Picture{text, text, 1}},
				Links: []Link{{text, text, text, text}}, Scripts: []string{"htmx.js"},
			})
		},
		"badge":      func(text string) templ.Component { return Badge(OK, text) },
		"channel":    Channel,
		"proven":     func(text string) templ.Component { return Evidence(text, true) },
		"unproven":   func(text string) templ.Component { return Evidence(text, false) },
		"avatar":     func(text string) templ.Component { return Avatar(text, "large") },
		"empty":      func(text string) templ.Component { return Empty("inbox", text, text) },
		"notice":     func(text string) templ.Component { return Notice(Bad, text) },
		"untrusted":  Untrusted,
		"name":       Name,
		"copyable":   Copyable,
		"difference": func(text string) templ.Component { return Diff("a", strings.ReplaceAll(text, "\n", " ")) },
	} {
		want, err := markuptest.Skeleton(render(t, component("harmless")))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, text := range markuptest.Hostile {
			got, err := markuptest.Skeleton(render(t, component(text)))
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s with %q: %v\n%v\nwant\n%v", name, text, err, got, want)
			}
		}
	}
}

func TestHiddenCharactersAreWritten(t *testing.T) {
	for words, want := range map[string]string{
		"plain\r\n\ttext": "plain\n\ttext", "abc\u202ecba": "abc[U+202E]cba", "a\u200bb\x00": "a[U+200B]b[U+0000]", "👩\u200d💻": "👩\u200d💻",
		"\u2066x\u2069": "[U+2066]x[U+2069]", "\U000e0041": "[U+E0041]", "\u2028": "[U+2028]", "گ\u200cو": "گ\u200cو",
	} {
		if got := Visible(words); got != want {
			t.Errorf("%q is shown as %q; want %q", words, got, want)
		}
	}
	for name, sign := range map[string]string{"emoji": "\U0001F469\u200d", "syllable": "\u1100", "conjunct": "\u0915\u094d", "accent": "\u0301"} {
		long := strings.Repeat(sign, 100)
		if got := VisibleLine(long); strings.ReplaceAll(got, "\u200b", "") != long || strings.Count(got, "\u200b") < 4 {
			t.Errorf("%s: a line may break nowhere in %q", name, got)
		}
	}
	for _, words := range []string{"👨\u200d👩\u200d👧\u200d👦", strings.Repeat("مُدَرِّسَة", 9), strings.Repeat("हिन्दी", 9), strings.Repeat("W", 400)} {
		if got := VisibleLine(words); got != words {
			t.Errorf("%q is shown as %q", words, got)
		}
	}
	if got := VisibleLine("a\n  b\u202e\t"); got != "a b[U+202E]" {
		t.Errorf("a line is shown as %q", got)
	}
}

func TestTimes(t *testing.T) {
	at := time.Date(2026, 11, 26, 2, 30, 0, 0, time.FixedZone("", 3600))
	if got := render(t, Time(at)); !strings.Contains(got, `datetime="2026-11-26T01:30:00Z"`) || !strings.Contains(got, "26 November 2026, 01:30 UTC") {
		t.Error(got)
	}
	if got := render(t, Ago(time.Time{})); strings.Contains(got, "<time") {
		t.Error(got)
	}
}

// TestAvatarsAreAlwaysTheSame: people know an agent by it, so neither a letter's case nor a new version may change it.
func TestAvatarsAreAlwaysTheSame(t *testing.T) {
	one, same, other := draw("@Support@agents.example"), draw("@support@agents.example"), draw("@sales@agents.example")
	if one != same || one == other {
		t.Errorf("%v, %v, %v", one, same, other)
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%v", one)))[:12]; got != "d907234d77c4" {
		t.Errorf("the avatar has changed: %s", got)
	}
}

// TestDifferences: the lines that are not added are the old text, those that are not removed the new one, and what both have in
// common is not shown as changed where that is avoidable.
func TestDifferences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom([]string{"a", "b", "c", ""})
		before := strings.Join(rapid.SliceOfN(line, 1, 12).Draw(t, "before"), "\n")
		after := strings.Join(rapid.SliceOfN(line, 1, 12).Draw(t, "after"), "\n")

		var old, made []string
		for _, line := range diff(before, after) {
			if line.Change != added {
				old = append(old, line.Text)
			}
			if line.Change != removed {
				made = append(made, line.Text)
			}
			if before == after && line.Change != kept {
				t.Fatalf("%q differs from itself", before)
			}
		}
		if strings.Join(old, "\n") != before || strings.Join(made, "\n") != after {
			t.Fatalf("%q and %q read %q and %q", before, after, old, made)
		}
	})

	large := strings.Repeat("x\n", 2000)
	if lines := diff("a\n"+large, "b\n"+strings.ReplaceAll(large, "x", "y")); len(lines) != 4003 {
		t.Errorf("texts beyond the bound have %d lines", len(lines))
	}
}
