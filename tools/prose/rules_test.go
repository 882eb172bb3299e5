package main

import (
	"strings"
	"testing"
)

// TestRulesHaveExamples holds each pattern to what it refuses and to what an author may write instead.
func TestRulesHaveExamples(t *testing.T) {
	t.Parallel()
	for i, one := range rules {
		if one.reason == "" || one.write == "" {
			t.Errorf("%s has no reason, or nothing to write instead", one.pattern)
		}
		if !compiled[i].MatchString(one.refuses) {
			t.Errorf("%s takes %q", one.pattern, one.refuses)
		}
		if found := constructions(one.takes, kindGuide); len(found) > 0 {
			t.Errorf("%s: the example %q is refused itself: %v", one.pattern, one.takes, found)
		}
	}
}

func TestDoubledWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"It has " + "the " + "the key.":            1,
		"It has\nthe The key.":                     1,
		"The fact " + "that " + "that key is old.": 0,
		"Write 5 5 or a, a list.":                  0,
		"The agent, agent and back end.":           0,
		"It had " + "had enough of words, words.":  0,
	} {
		if found := constructions(text, kindGuide); len(found) != want {
			t.Errorf("%q: %v, want %d", text, found, want)
		}
	}
	if found := constructions("Nobody reads it in order to know.", kindComments); len(found) != 1 {
		t.Errorf("a comment: %v, want what is said of nobody", found)
	}
	if found := constructions("INSERT VALUES values", kindProgram); len(found) > 0 {
		t.Errorf("texts of programs: %v", found)
	}
}

// TestCheckReadsEachKind finds one construction where it stands in a document, a catalogue, the help of a command, an error and a comment.
func TestCheckReadsEachKind(t *testing.T) {
	t.Parallel()
	page := document("docs/page.md", kindGuide, "# Whoever\n\nA line of text,\nand nobody.\n\n| a | anybody |\n\n```sh\n# whoever\n```\n\n> somebody said\n\n"+
		"- `whoever` and \"nobody\" are skipped\n<!-- somebody -->\n")
	page.passages = append(page.passages, document("docs/page.md", kindGuide, strings.Repeat("\n", 20)+"whoever\n").passages...)
	texts := []text{page, document("docs/decisions/0001.md", kindDecision, "Whoever reads it.")}

	pages, err := catalogue("de/x.json", []byte("{\n  \"Allow\": \"Erlauben\",\n  \"Nobody waits\": [\"whoever\", \"nobody\"]\n}"))
	if err != nil {
		t.Fatal(err)
	}
	source := "package x\n\nimport \"nobody knows whoever\"\n\ntype T struct {\n\tA int `nobody:\"or whoever it is\"`\n}\n\n// Whoever reads comments.\n" +
		"var c = &cobra.Command{Short: \"Keep somebody out\", Use: \"nobody\"}\n\nfunc f() error {\n\tc.Flags().StringVar(&x, \"x\", \"\", \"what nobody \" +\n\t\t\"wants here\")\n" +
		"\treturn fmt.Errorf(\"%s is there twice\", \"`nobody at all`\")\n}\n"
	program, err := goSource("cmd/x/x.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, one := range check(append(append(texts, pages), program...)) {
		place, _, _ := strings.Cut(one.String(), ": it ")
		got = append(got, place)
	}
	want := []string{
		`docs/page.md:1: "Whoever"`, `docs/page.md:3: "nobody"`, `docs/page.md:6: "anybody"`, `docs/page.md:21: "whoever"`, `de/x.json:3: "Nobody"`,
		`cmd/x/x.go:10: "somebody"`, `cmd/x/x.go:13: "nobody"`, `cmd/x/x.go:15: "is there twice"`, `cmd/x/x.go:9: "Whoever"`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
