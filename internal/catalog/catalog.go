// Package catalog translates the texts of pages. The English text in the source is the key; a room keeps the other
// languages beside its pages, one JSON file a language and topic, and catalogtest holds the files to the source.
package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// English is the language of the source.
const English = "en"

// Languages are the tags (RFC 5646) of the languages in which pages exist, English first.
func Languages() []string { return []string{English, "de"} }

// Catalog holds the translations of one room.
type Catalog struct {
	translations func() map[string]map[string]entry // by language, then by English text; read when a text is first asked for
	patterns     func() map[string][]*pattern       // by language; made when a sentence is first asked for
}

// entry is a translation: one form, or the forms for one and for several.
type entry []string

// UnmarshalJSON reads a text, or a list of two.
func (e *entry) UnmarshalJSON(data []byte) error {
	var single string
	if json.Unmarshal(data, &single) == nil {
		*e = entry{single}
		return nil
	}

	var forms []string
	if err := json.Unmarshal(data, &forms); err != nil {
		return err
	}
	if len(forms) != 2 {
		return fmt.Errorf("a translation has one form, or two for one and for several; it has %d", len(forms))
	}

	*e = forms
	return nil
}

// New returns the translations of a room: files <language>/<topic>.json, each a JSON object from English texts to a text, or to a list of
// the forms for one and for several. They are read when a text is first asked for, so that commands do not wait for them; that panics when one
// cannot be read, or when two files disagree, since the files are part of the program.
func New(files fs.FS) *Catalog { return Below(files, ".") }

// Below is New for files below a directory.
func Below(files fs.FS, directory string) *Catalog {
	c := &Catalog{translations: sync.OnceValue(func() map[string]map[string]entry { return readAll(files, directory) })}
	c.patterns = sync.OnceValue(func() map[string][]*pattern {
		patterns := map[string][]*pattern{}
		for language, translations := range c.translations() {
			patterns[language] = patternsOf(translations)
		}
		return patterns
	})
	return c
}

func readAll(files fs.FS, directory string) map[string]map[string]entry {
	all := map[string]map[string]entry{}
	paths, err := fs.Glob(files, path.Join(directory, "*/*.json"))
	if err != nil || len(paths) == 0 {
		panic(fmt.Sprint("catalog: no translations: ", err))
	}

	for _, file := range paths {
		language := path.Base(path.Dir(file))
		if all[language] == nil {
			all[language] = map[string]entry{}
		}
		if err := read(files, file, all[language]); err != nil {
			panic("catalog: " + file + ": " + err.Error())
		}
	}
	return all
}

func read(files fs.FS, file string, into map[string]entry) error {
	content, err := fs.ReadFile(files, file)
	if err != nil {
		return err
	}
	var texts map[string]entry
	if err := json.Unmarshal(content, &texts); err != nil {
		return err
	}

	for english, forms := range texts {
		if before, is := into[english]; is && !slices.Equal(before, forms) {
			return fmt.Errorf("%q is translated in another way elsewhere: %q", english, before)
		}
		into[english] = forms
	}
	return nil
}

// Text returns a text in the language of ctx. pairs are names and values of placeholders: Text(ctx, "Held by {name}", "name", name).
// A text without translation is returned in English.
func (c *Catalog) Text(ctx context.Context, english string, pairs ...any) string {
	text := english
	if forms := c.translations()[Language(ctx)][english]; len(forms) == 1 {
		text = forms[0]
	}
	return fill(text, pairs)
}

// Count returns the form of a text for n, which stands for {n} in it. The key of its translation is the English form for several.
func (c *Catalog) Count(ctx context.Context, n int, one, several string, pairs ...any) string {
	forms := []string{one, several}
	if translated := c.translations()[Language(ctx)][several]; len(translated) == 2 {
		forms = translated
	}

	text := forms[1]
	if n == 1 {
		text = forms[0]
	}

	return fill(text, append([]any{"n", strconv.Itoa(n)}, pairs...))
}

// maxSaid bounds the sentences that are looked for; a longer one is no sentence.
const maxSaid = 4 << 10

// Said returns a sentence that another room wrote in English, such as an error, in the language of ctx. Its key has placeholders where the
// room fills something in: "%s is not paused" is "{agent} is not paused". What stands at {why} is such a sentence itself. Of several keys
// that fit, the one with most words outside of placeholders counts. A sentence without translation is returned as it is.
func (c *Catalog) Said(ctx context.Context, sentence string) string {
	if Language(ctx) == English || len(sentence) > maxSaid {
		return sentence
	}

	for _, one := range c.patterns()[Language(ctx)] {
		values := one.form.FindStringSubmatch(sentence)
		if values == nil {
			continue
		}
		var pairs []any
		for i, name := range one.names {
			value := values[i+1]
			if name == "why" {
				value = c.Said(ctx, value) // which is shorter
			}
			pairs = append(pairs, name, value)
		}
		return fill(one.translation, pairs)
	}
	return sentence
}

// pattern is a sentence with placeholders.
type pattern struct {
	form        *regexp.Regexp
	names       []string // of the placeholders, in order
	words       int      // bytes outside of them
	translation string
}

var placeholder = regexp.MustCompile(`\{([a-z]+)\}`)

// patternsOf returns the sentences of a language, those with most words first. A key of placeholders alone fits nothing.
func patternsOf(translations map[string]entry) []*pattern {
	var list []*pattern
	for english, forms := range translations {
		if len(forms) != 1 {
			continue
		}
		one, form, rest := &pattern{translation: forms[0]}, "(?s)^", english
		for _, found := range placeholder.FindAllStringSubmatchIndex(english, -1) {
			at := found[0] - (len(english) - len(rest))
			form += regexp.QuoteMeta(rest[:at]) + "(.+?)"
			one.names, one.words, rest = append(one.names, english[found[2]:found[3]]), one.words+at, english[found[1]:]
		}
		if one.words += len(rest); one.words > 0 {
			one.form = regexp.MustCompile(form + regexp.QuoteMeta(rest) + "$")
			list = append(list, one)
		}
	}
	slices.SortFunc(list, func(a, b *pattern) int {
		return cmp.Or(b.words-a.words, strings.Compare(a.form.String(), b.form.String()))
	})
	return list
}

// Translated returns the English texts that have a translation into a language, and the number of forms of each.
func (c *Catalog) Translated(language string) map[string][]string {
	texts := map[string][]string{}
	for english, forms := range c.translations()[language] {
		texts[english] = slices.Clone(forms)
	}
	return texts
}

// fill replaces {name} by its value. Values are not searched for placeholders again.
func fill(text string, pairs []any) string {
	if len(pairs) == 0 {
		return text
	}

	replacements := make([]string, 0, len(pairs))
	for i := 0; i+1 < len(pairs); i += 2 {
		replacements = append(replacements, "{"+fmt.Sprint(pairs[i])+"}", fmt.Sprint(pairs[i+1]))
	}

	return strings.NewReplacer(replacements...).Replace(text)
}

type languageKey struct{}

// WithLanguage returns a context whose texts are in the language.
func WithLanguage(ctx context.Context, language string) context.Context {
	return context.WithValue(ctx, languageKey{}, language)
}

// Language returns the language of the texts of ctx, English where none was set.
func Language(ctx context.Context) string {
	if language, set := ctx.Value(languageKey{}).(string); set {
		return language
	}
	return English
}

// Cookie is the name of the cookie that keeps the language that a reader chose.
const Cookie = "inbox-language"

// ForReader returns the request with the language that its reader chose, or else likes best of those that exist.
func ForReader(r *http.Request) *http.Request {
	return r.WithContext(WithLanguage(r.Context(), choose(r)))
}

func choose(r *http.Request) string {
	if cookie, err := r.Cookie(Cookie); err == nil && slices.Contains(Languages(), cookie.Value) {
		return cookie.Value
	}

	for _, tag := range Accepted(r.Header.Get("Accept-Language")) {
		base, _, _ := strings.Cut(strings.ToLower(tag), "-")
		if slices.Contains(Languages(), base) {
			return base
		}
	}

	return English
}

const maxAccepted = 20

// Accepted reads Accept-Language (RFC 9110 section 12.5.4) and returns at most 20 tags, the best first. What cannot be read is left out.
func Accepted(header string) []string {
	type weighted struct {
		tag    string
		weight float64
	}

	var wanted []weighted
	for item := range strings.SplitSeq(header, ",") {
		tag, parameters, _ := strings.Cut(strings.TrimSpace(item), ";")
		weight := 1.0
		if text, ok := strings.CutPrefix(strings.ReplaceAll(parameters, " ", ""), "q="); ok {
			weight, _ = strconv.ParseFloat(text, 64)
		}
		if tag != "" && tag != "*" && weight > 0 && len(wanted) < maxAccepted {
			wanted = append(wanted, weighted{strings.TrimSpace(tag), weight})
		}
	}

	slices.SortStableFunc(wanted, func(a, b weighted) int {
		switch {
		case a.weight > b.weight:
			return -1
		case a.weight < b.weight:
			return 1
		}
		return 0
	})

	tags := make([]string, 0, len(wanted))
	for _, w := range wanted {
		tags = append(tags, w.tag)
	}

	return tags
}
