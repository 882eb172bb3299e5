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
		if line, ok := keepsOrder(text, got); !ok {
			t.Errorf("%q is not in what is left of %q", line, text)
		}
	})
}

// TestAnnouncementsOfManyPrograms has one line for each order and language that a program writes; only quotes follow.
func TestAnnouncementsOfManyPrograms(t *testing.T) {
	for _, line := range []string{
		"Ann <ann@x.test> wrote on 23.11.2026 10:00:", "Ann wrote on 23/11/26 10:00:", "Ann <ann@x.test> writes:", "Quoting Ann <ann@x.test>:",
		"------- Original Message -------\nOn Monday, November 23rd, 2026 at 10:00 AM, Ann <ann@x.test> wrote:",
		"Ann <ann@x.test> schrieb am Mo., 23. Nov. 2026, 10:00:", "Ann hat am 23.11.2026 10:00 CET geschrieben:", "Zitat von Ann <ann@x.test>:",
		"Ann <ann@x.test> a écrit :", "Ann a écrit le 23/11/2026 10:00 :", "Ann escribió el 23/11/2026:", "Ann ha scritto il 23/11/2026:", "Ann schreef op 23-11-2026:",
		"Op 23 nov. 2026 om 10:00 heeft Ann <ann@x.test> het volgende geschreven:", "No dia 23 de nov. de 2026, às 10:00, Ann <ann@x.test> escreveu:",
		"Wiadomość napisana przez Ann <ann@x.test> w dniu 23 lis 2026, o godz. 10:00:", "pon., 23 lis 2026 o 10:00 Ann <ann@x.test> napisał(a):",
		"ma 23. marrask. 2026 klo 10.00 Ann (ann@x.test) kirjoitti:", "Ann <ann@x.test> ezt írta (időpont: 2026. nov. 23., H, 10:00):",
		"On Sat, 21 Nov 2026 at 12:00, Bo Long Name\n<bo@x.test> wrote:", "On Sat, 21 Nov 2026 at 12:00, Bo\nLong Name\n<bo@x.test> wrote:", "Bo Long Name\n<bo@x.test> wrote:", "<bo@x.test> wrote:",
		"În lun., 23 nov. 2026 la 10:00, Ann <ann@x.test> a scris:", "пн, 23 нояб. 2026 г. в 10:00, Ann <ann@x.test>:",
	} {
		if got := fresh("My answer.\n\n"+line+"\n> old\n> text\n", "Re: x", true); got != "My answer." {
			t.Errorf("%q: %q", line, got)
		}
	}
	for _, block := range []string{
		"-------- Original Message --------\nSubject: x\nFrom: Ann <ann@x.test>\nTo: bo@x.test\nDate: Mon",
		"-----Ursprüngliche Nachricht-----\nGesendet: Montag\nVon: Ann\nAn: Bo\nBetreff: x",
	} {
		if got := fresh("My answer.\n\n"+block+"\n\nold text\n", "Re: x", true); got != "My answer." {
			t.Errorf("%q: %q", block, got)
		}
	}
	if got := fresh("My answer.\n<bo@x.test> wrote:\n> old", "Re: x", true); got != "My answer." {
		t.Errorf("a sentence above an address: %q", got)
	}
	for _, own := range []string{
		"This is what the minister wrote on the matter:", "Please look at what I have geschrieben:", "The author writes:", "I am quoting from memory:",
	} {
		text := "My answer.\n\n" + own + "\n> old\n> text"
		if got := fresh(text, "Re: x", true); got != text {
			t.Errorf("%q was cut: %q", own, got)
		}
	}
}
