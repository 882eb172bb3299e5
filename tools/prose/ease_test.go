package main

import (
	"math"
	"strings"
	"testing"
)

func TestMeasure(t *testing.T) {
	t.Parallel()
	page := document("docs/page.md", kindGuide, "# A heading is no sentence\n\nThe peer sends it. It is never kept, e.g. by us!\n\n| a cell. | is none. |\n\n- `code` [is read](x.md)\n")
	got := measure(page)
	if got.sentences != 3 || got.words != 14 || got.passive != 2 {
		t.Errorf("%+v; want 3 sentences, 14 words, 2 passive", got)
	}
	if row := got.String(); !strings.HasPrefix(row, "14\t3\t4.7\t67 %\t") {
		t.Errorf("row %q", row)
	}
	if none := (&ease{}); none.flesch() != 0 || !strings.HasPrefix(none.String(), "0\t0\t0.0") {
		t.Errorf("nothing measures %s", none)
	}
}

func TestFlesch(t *testing.T) {
	t.Parallel()
	short, long := measure(document("a", kindGuide, "The cat sat on the mat.")), measure(document("b", kindGuide,
		"Notwithstanding considerable organisational complexity, authentication necessitates comprehensive documentation of administrative responsibilities."))
	if got := short.flesch(); math.Abs(got-116.1) > 0.1 {
		t.Errorf("a sentence of six syllables has the ease %.1f, want 116.1", got)
	}
	if long.flesch() > 0 {
		t.Errorf("a hard sentence has the ease %.1f", long.flesch())
	}
}

func TestSentences(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"One. Two! Three? Four":                  4,
		"It is 1.5 s, i.e. less than 2.0.":       1,
		"See https://agents.example/x. It works": 2,
		`It says "no." Then it ends.`:            2,
		"":                                       0,
	} {
		if got := sentences(text); len(got) != want {
			t.Errorf("%q has the sentences %q, want %d", text, got, want)
		}
	}
}

func TestSyllables(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]int{"the": 1, "message": 2, "table": 2, "kept": 1, "named": 1, "refused": 2, "waited": 2, "cases": 2, "authority": 4, "e": 1, "queue": 1, "Go": 1} {
		if got := syllables(word); got != want {
			t.Errorf("%s has %d syllables, want %d", word, got, want)
		}
	}
}
