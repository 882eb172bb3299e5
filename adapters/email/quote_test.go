package email

import (
	"strings"
	"testing"
)

func TestGreedyRulesAreNotOurs(t *testing.T) {
	for name, text := range map[string]string{
		"answer between quotations":        "On 1 May 2026, Bo wrote:\n> a\nyes\n> b",
		"quotation without an author":      "Look:\n> a",
		"own words that end in a colon":    "This is what I wrote:\n> a",
		"a separator with much behind it":  "a\n--\n" + strings.Repeat("line\n", 20) + "end",
		"a signature with an answer below": "a\n-- \nBo\n\nOn 1 May 2026, Bo wrote:\n> q\nanswer",
		"a line of underscores":            "a\n____________________\nb",
		"nothing else":                     "On 1 May 2026, Bo wrote:\n> a",
	} {
		if got := fresh(text, "Re: x", true); got != text {
			t.Errorf("%s: %q became %q", name, text, got)
		}
	}
}

func TestForwardedMailsStayWhole(t *testing.T) {
	const text = "Please handle.\n\nOn 1 May 2026, Bo wrote:\n> a"
	for _, subject := range []string{"Fwd: x", "FW: x", "WG: x", "TR: x", "RV: x", "I: x", "ENC: x", "PD: x", "Re: Fwd: x"} {
		if got := fresh(text, subject, true); got != text {
			t.Errorf("%s: %q", subject, got)
		}
	}
	if got := fresh(text, "Re: x", true); got != "Please handle." {
		t.Errorf("an answer became %q", got)
	}
}

func TestManyQuotationsCostLittle(t *testing.T) {
	for name, text := range map[string]string{
		"side by side": strings.Repeat(`<blockquote type=cite></blockquote>`, 10_000),
		"nested":       "x" + strings.Repeat(`<blockquote type=cite>`, 10_000),
		"signatures":   "x" + strings.Repeat(`<p class=gmail_signature></p>`, 10_000),
		"marks":        "x" + strings.Repeat(`<p id=appendonsend></p>`, 10_000),
	} {
		if content, _, own, _ := readHTML(text, false); len(own) > len(content) {
			t.Errorf("%s: what is new is longer than the whole", name)
		}
	}
}

func FuzzFresh(f *testing.F) {
	f.Add("Blue.\n\nOn 1 May 2026, Bo <bo@x.test> wrote:\n> a\n-- \nBo", "Re: x", true)
	f.Add("Blau.\n\n-----Ursprüngliche Nachricht-----\nVon: a\nGesendet: b\nAn: c\nBetreff: d\n\ne", "AW: x", false)
	f.Add("a\n____________________\nFrom: a\nSent: b\nTo: c\nSubject: d", "", true)
	f.Add("-- \n", "Fwd: x", true)
	f.Fuzz(func(t *testing.T, text, subject string, answers bool) {
		got := fresh(text, subject, answers)
		if visible(text) && !visible(got) {
			t.Errorf("nothing is left of %q", text)
		}
		if !strings.HasPrefix(text, got) && !strings.HasPrefix(strings.TrimSpace(text), got) {
			t.Errorf("%q is not the begin of %q", got, text)
		}
	})
}
