package pages

import (
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestSentencesAreSaid holds the translations to the rooms whose sentences they are: a sentence that no room says any more is not read in
// German, and no one would notice.
func TestSentencesAreSaid(t *testing.T) {
	var literals []string
	for _, room := range []string{
		"../..", "../../operator", "../../operator/*", "../../identity", "../../engine/*", "../../internal/fault", "../../internal/simulation", "../../internal/config",
		"../../adapters/email", "../../console/*", "../../agents/*",
	} {
		paths, err := filepath.Glob(filepath.Join(room, "*.go"))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no source in %s: %v", room, err)
		}
		for _, path := range paths {
			if !strings.HasSuffix(path, "_test.go") && !strings.HasSuffix(path, "_templ.go") {
				literals = append(literals, literalsOf(t, path)...)
			}
		}
	}
	source := strings.Join(literals, "\n")

	placeholder := regexp.MustCompile(`\{[a-z]+\}`)
	names := func(text string) []string {
		found := placeholder.FindAllString(text, -1)
		slices.Sort(found)
		return found
	}
	translated := sentences.Translated("de")
	if len(translated) < 200 {
		t.Fatalf("there are %d sentences", len(translated))
	}
	for english, forms := range translated {
		if len(forms) != 1 || !slices.Equal(names(english), names(forms[0])) {
			t.Errorf("%q has other placeholders in German: %q", english, forms)
		}
		for _, words := range placeholder.Split(english, -1) {
			for part := range strings.SplitSeq(words, "; ") { // of the settings: what is wrong, and what to write
				if part = strings.Trim(part, " :;,()"); !strings.Contains(source, part) && !joined(literals, part) {
					t.Errorf("no room says %q any more (%q)", english, part)
				}
			}
		}
	}
}

// joined reports whether the end of one text and the beginning of another are the words.
func joined(texts []string, words string) bool {
	const shortest = 3
	for at := shortest; at <= len(words)-shortest; at++ {
		ends := slices.ContainsFunc(texts, func(text string) bool { return strings.HasSuffix(text, words[:at]) })
		if ends && slices.ContainsFunc(texts, func(text string) bool { return strings.HasPrefix(text, words[at:]) }) {
			return true
		}
	}
	return false
}

// literalsOf returns the texts in a file of Go.
func literalsOf(t *testing.T, path string) (texts []string) {
	t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile(path, -1, len(source)), source, nil, 0)
	for {
		_, kind, literal := s.Scan()
		if kind == token.EOF {
			return texts
		}
		if kind == token.STRING {
			if text, err := strconv.Unquote(literal); err == nil {
				texts = append(texts, text)
			}
		}
	}
}
