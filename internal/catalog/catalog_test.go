package catalog_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"inbox/internal/catalog"
)

func translated(topics ...string) fs.FS {
	files := fstest.MapFS{}
	for i, topic := range topics {
		files[fmt.Sprintf("de/%d.json", i)] = &fstest.MapFile{Data: []byte(topic)}
	}
	return files
}

var texts = catalog.New(translated(`{"Held by {name}": "Gehalten von {name}"}`, `{"Held by {name}": "Gehalten von {name}", "{n} messages": ["eine Nachricht", "{n} Nachrichten"]}`))

func TestText(t *testing.T) {
	german := catalog.WithLanguage(t.Context(), "de")
	for _, one := range []struct{ got, want string }{
		{texts.Text(t.Context(), "Held by {name}", "name", "{n}"), "Held by {n}"},
		{texts.Text(german, "Held by {name}", "name", "Ann"), "Gehalten von Ann"},
		{texts.Text(german, "Not translated"), "Not translated"},
		{texts.Count(german, 1, "{n} message", "{n} messages"), "eine Nachricht"},
		{texts.Count(german, 0, "{n} message", "{n} messages"), "0 Nachrichten"},
		{texts.Count(context.Background(), 1, "{n} message", "{n} messages"), "1 message"},
		{texts.Count(context.Background(), 12, "{n} message", "{n} messages"), "12 messages"},
	} {
		if one.got != one.want {
			t.Errorf("text %q; want %q", one.got, one.want)
		}
	}
}

func TestSaid(t *testing.T) {
	said := catalog.New(translated(`{
		"{agent} is not paused": "{agent} pausiert nicht", "it fails: {why}": "es scheitert: {why}", "there is none": "es gibt keinen",
		"{n} of {all} (about *.{name})": "von {all} {n} (zu *.{name})", "{a}{b}": "nichts", "{x} is not": "{x} nicht", "clock": "Uhr"
	}`))
	german := catalog.WithLanguage(t.Context(), "de")
	for sentence, want := range map[string]string{
		"echo is not paused": "echo pausiert nicht", "echo is not": "echo nicht", "there is none": "es gibt keinen", "there is none.": "there is none.",
		"it fails: it fails: there is none": "es scheitert: es scheitert: es gibt keinen", "it fails: x": "es scheitert: x", "it fails: ": "it fails: ",
		"1 of 2 (about *.x)": "von 2 1 (zu *.x)", "1 of 2 (about axx)": "1 of 2 (about axx)", "clock is not paused": "clock pausiert nicht",
		"{n}\n is not paused": "{n}\n pausiert nicht", "": "",
	} {
		if got := said.Said(german, sentence); got != want {
			t.Errorf("%q is %q; want %q", sentence, got, want)
		}
		if got := said.Said(t.Context(), sentence); got != sentence {
			t.Errorf("%q in English is %q", sentence, got)
		}
	}
	long := strings.Repeat("it fails: ", 100_000)
	if got := said.Said(german, long); got != long {
		t.Error("what is too long for a sentence was changed")
	}
	if got := said.Said(german, strings.Repeat("it fails: ", 300)+"x"); !strings.HasPrefix(got, "es scheitert: es") {
		t.Error(got)
	}
}

func TestForReader(t *testing.T) {
	for header, want := range map[string]string{
		"": "en", "de": "de", "de-AT, en;q=0.5": "de", "fr, en;q=0.2, de;q=0.9": "de", "en;q=0, de;q=0": "en", "*": "en", "DE-ch": "de", "x;q=zz": "en",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("Accept-Language", header)
		if got := catalog.Language(catalog.ForReader(r).Context()); got != want {
			t.Errorf("Accept-Language %q reads %s; want %s", header, got, want)
		}
	}

	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header.Set("Accept-Language", "en")
	r.AddCookie(&http.Cookie{Name: catalog.Cookie, Value: "de"})
	if got := catalog.Language(catalog.ForReader(r).Context()); got != "de" {
		t.Errorf("a chosen language reads %s", got)
	}
}

func TestUnreadableTranslationsStopTheProgram(t *testing.T) {
	for _, topics := range [][]string{{`{`}, {`{"a": ["b"]}`}, {`{"a": 1}`}, {`{"a": "b"}`, `{"a": "c"}`}, {}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was taken", topics)
				}
			}()
			catalog.New(translated(topics...)).Text(t.Context(), "a")
		}()
	}
}

func FuzzAccepted(f *testing.F) {
	f.Add("de-AT, en;q=0.5, *;q=0.1")
	f.Fuzz(func(t *testing.T, header string) {
		if tags := catalog.Accepted(header); len(tags) > 20 || slices.Contains(tags, "") {
			t.Errorf("%q has tags %q", header, tags)
		}
	})
}
