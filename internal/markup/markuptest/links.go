package markuptest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"inbox/internal/capability"
	"inbox/normalized"
	"inbox/policypart"
)

// linkPlaces are where a text has a link, by the type of the text.
var linkPlaces = map[string][]string{
	normalized.MIMEPlain: {
		"%", "Please allow it (%) today.", "Please allow it at %.", "Please pay at %, then write again.", "- one\n- %\n- three", "Is it %?", "\"%\"", "<%>",
		"First %\nthen %", "See %; or %: both lead there!", "| a | b |\n|---|---|\n| x | % |", "[%]",
	},
	normalized.MIMEMarkdown: {
		"%", "Please allow it (%) today.", "Please allow it at %.", "Please pay at %, then write again.", "- one\n- %\n- three", "1. a\n   - %", "Is it %?", "\"%\"", "<%>",
		"First %\nthen %", "See %; or %: both lead there!", "| a | b |\n|---|---|\n| x | % |\n| % | y |", "**%**", "> %", "## %", "[Continue](%)", "[Continue](<%>).", "**[Pay](%)**, please",
	},
	normalized.MIMEHTML: {
		`<a href="%">Continue</a>`, `<p>Please allow it (<a href='%'>here</a>).</p>`, `<ul><li>a</li><li><a href="%">b</a>,</li></ul>`, `<table><tr><td>a</td><td><a href="%">b</a></td></tr></table>`,
	},
}

// PolicyLinks fails where a reader of an answer does not reach the pages for consent, payment and approval that it names: ten thousand
// addresses with tokens as this server draws them, in every place where a text has a link. led returns where an answer leads, in order.
func PolicyLinks(t *testing.T, led func(Answer) []string) {
	t.Helper()
	const links = 10_000
	for mime, places := range linkPlaces {
		for at := 0; at < links; {
			var want, texts []string
			for range 10 {
				for _, place := range places {
					for strings.Contains(place, "%") {
						page := policyPage()
						want, place = append(want, page), strings.Replace(place, "%", page, 1)
					}
					texts = append(texts, place)
				}
			}
			one := Answer{MIME: mime, Content: strings.Join(texts, "\n\n")}
			if got := led(one); !slices.Equal(got, want) {
				t.Fatalf("%s\nleads to\n%s\nwant\n%s", one.Content, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			at += len(want)
		}
	}
}

// PolicyParts fails where the page of a demand or of a refusal is not reached from what a channel makes of it.
func PolicyParts(t *testing.T, led func(policypart.Part) []string) {
	t.Helper()
	for range 1000 {
		part := policypart.Part{Kind: policypart.ConsentRequired, Title: "Please <allow>", Message: "I need *your* calendar.", ActionLabel: "Allow", URL: policyPage()}
		if got := led(part); !slices.Contains(got, part.URL) {
			t.Fatalf("a demand leads to %q, want %s", got, part.URL)
		}
	}
}

func policyPage() string { return "https://inbox.test/policy/" + capability.Draw(capability.Long) }

// shownAddress is what mail programs make links of in plain text.
var shownAddress = regexp.MustCompile(`https?://[^\s<>"|]+`)

// Shown returns the web addresses in plain text, as mail programs find them: without the punctuation behind them. It shares no code with
// package markup.
func Shown(text string) (addresses []string) {
	for _, one := range shownAddress.FindAllString(text, -1) {
		for strings.ContainsRune(".,;:!?*]", rune(one[len(one)-1])) || one[len(one)-1] == ')' && !strings.Contains(one, "(") {
			one = one[:len(one)-1]
		}
		addresses = append(addresses, one)
	}
	return addresses
}
