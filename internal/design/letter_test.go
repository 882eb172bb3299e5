package design

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"inbox/internal/markup/markuptest"
)

func letterOf(text string) string {
	return Letter{Lang: text, Site: text, Body: LetterTitle(text) + LetterText("| "+strings.ReplaceAll(text, "\n", " ")+"\n"+strings.ReplaceAll(text, "\n", " ")) +
		LetterLink(text, "https://agents.example/"+text) + LetterRemark(text)}.HTML()
}

// TestLettersAreText: no word of others becomes markup of a mail, and none loads anything.
func TestLettersAreText(t *testing.T) {
	own := regexp.MustCompile(` style="[A-Za-z0-9:;#%., '-]*"`) // of a text nothing is left in which a quotation mark stands
	skeleton := func(text string) ([]string, error) {
		return markuptest.Skeleton(own.ReplaceAllString(strings.Replace(letterOf(text), "<style>\n"+letterDark()+"</style>\n", "", 1), ""))
	}
	want, err := skeleton("harmless")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range markuptest.Hostile {
		got, err := skeleton(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v\n%v\nwant\n%v", text, err, got, want)
		}
	}

	letter := letterOf("x")
	if found := regexp.MustCompile(`(?i)<(img|link|script|iframe|object|svg)|url\(|@import|src=|background=`).FindString(letter); found != "" {
		t.Errorf("a letter has %s", found)
	}
	for _, address := range []string{"javascript:alert(1)", "data:text/html,x", "//agents.example", ""} {
		if got := LetterLink("x", address); strings.Contains(got, "href") {
			t.Errorf("%q is a link: %s", address, got)
		}
	}
}

// TestLettersHaveColours: each is a token, in the light at its element and in the dark by a rule, and what is read stands out.
func TestLettersHaveColours(t *testing.T) {
	plain, _ := colours(t)
	letter := letterOf("x")
	for _, role := range letterRoles {
		if !strings.Contains(letter, ` class="`+role.class+`" style="`) {
			t.Errorf("no element is %s", role.class)
		}
		for _, one := range role.colours {
			value, is := plain[one[1]]
			if !is || !strings.Contains(letter, one[0]+":"+value[0]) || !strings.Contains(letter, one[0]+":"+value[1]+"!important;") {
				t.Errorf("%s has no %s of the token %s, which is %v", role.class, one[0], one[1], value)
			}
		}
	}
	for _, pair := range [][2]string{{"paper", "accent"}, {"surface", "ink"}, {"surface", "muted"}, {"accent-soft", "ink"}, {"accent-soft", "accent"}, {"sunken", "ink"}} {
		for theme := range 2 {
			if got := ratio(t, plain[pair[0]][theme], plain[pair[1]][theme]); got < 4.5 {
				t.Errorf("%v: contrast %.2f", pair, got)
			}
		}
	}
}

func TestLetterTexts(t *testing.T) {
	for text, want := range map[string][]string{
		"one\ntwo\n\nthree":           {">one<br>\ntwo</p>", ">three</p>"},
		"What:\n| a\n| b\nBy: ann":    {">What:</p>\n<blockquote", ">a<br>\nb</blockquote>", ">By: ann</p>"},
		"echo: 3\n  Look: inbox held": {"echo: 3<br>\n&nbsp;&nbsp;Look: inbox held"},
		"a\u202eb":                    {"a[U+202E]b"},
		"|no quotation":               {">|no quotation</p>"},
	} {
		got := LetterText(text)
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%q: no %q in\n%s", text, part, got)
			}
		}
	}
	if got := LetterText("\n\n"); got != "" {
		t.Errorf("nothing is %q", got)
	}
}
