package text

import (
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inbox/internal/markup/markuptest"
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

// BenchmarkFresh is what is done to every text to find what is new in it.
func BenchmarkFresh(b *testing.B) {
	text := strings.TrimSpace(strings.Repeat("This is one line of an ordinary mail with an ordinary length.\n", 160))
	for b.Loop() {
		if fresh(text, "Question", false) != text {
			b.Fatal("something was cut")
		}
	}
}

// TestQuotations runs over the forms in which programs quote the mail that is answered, and over texts that only look so.
func TestQuotations(t *testing.T) {
	data, err := os.ReadFile("testdata/quotations.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := strings.Split(string(data), "#### ")[1:]
	if len(cases) < 50 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, one := range cases {
		name, rest, _ := strings.Cut(one, "\n")
		t.Run(name, func(t *testing.T) {
			text, want, found := strings.Cut(rest, "\n->")
			if !found {
				t.Fatal("no expectation")
			}
			text = Readable(text)
			if want = strings.TrimSpace(want); want == "all" {
				want = text
			}
			if got := fresh(text, "Re: Colour", true); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// TestFirstMailsAreNotCutAtUnquotedTexts: a mail that answers nothing may paste whatever it likes.
func TestFirstMailsAreNotCutAtUnquotedTexts(t *testing.T) {
	const text = "What does this mean?\n\nOn Sun, Nov 22, 2026 at 9:12 AM Lamp Desk <desk@lamps.example> wrote:\n\nWe have no blue one."
	if got := fresh(text, "A question", false); got != text {
		t.Errorf("%q", got)
	}
}

// drawLines makes texts out of what the rules look at.
func drawLines(t *rapid.T) []string {
	pieces := []string{
		"", "own words", "Hello,", "> quoted", ">", ">> deep", "> wrote:", ">:", "On Sun, Nov 22, 2026 at 9:12 AM Ann <a@b.example> wrote:", "On Nov 22, 2026, Ann <",
		"a4711@b.example> wrote:", "wrote:", "<a@b.example>", "-----Original Message-----", "From: a@b.example", "Sent: today", "To: c@d.example", "Subject: x", "-- ", "--", "ᐧ",
		"---- On Sun, 22 Nov 2026 09:12:36 Ann wrote ----", "________________________________", "> On 22 Nov 2026, at 09:12, Ann <a@b.example> wrote:", "> From: a@b.example",
		"2026/11/22 Ann <a@b.example>", "| bar", "(https://b.example) >", "> see (https://b.example/x", "y)", "LD> x", "---------- Forwarded message ----------", "Zeile:", "10:15",
	}
	return rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 16).Draw(t, "lines")
}

// keepsOrder reports whether every line of part stands in the text, in the same order, and returns the first that does not.
func keepsOrder(text, part string) (line string, ok bool) {
	for line := range strings.SplitSeq(part, "\n") {
		_, behind, found := strings.Cut(text, strings.TrimSpace(line))
		if !found {
			return line, false
		}
		text = behind
	}
	return "", true
}

// TestWhatIsNewIsPartOfTheText: nothing is invented, no order changes, and an answer that is all its sender's own is never cut.
func TestWhatIsNewIsPartOfTheText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := drawLines(t)
		text := Readable(strings.Join(lines, "\n"))
		got := fresh(text, "Re: x", rapid.Bool().Draw(t, "answers"))
		if visible(text) && !visible(got) {
			t.Fatal("nothing is left")
		}
		if line, ok := keepsOrder(text, got); !ok {
			t.Fatalf("%q is not in what is left of the text", line)
		}
		// Words behind the last line that could announce or mark anything are their sender's.
		last := lines[len(lines)-1]
		if last == "own words" && len(lines) > 1 && strings.HasPrefix(lines[len(lines)-2], ">") && !strings.HasSuffix(lines[len(lines)-2], ":") && !strings.Contains(text, "Original") &&
			!strings.Contains(text, "On ") && !strings.Contains(text, "From: ") && !strings.Contains(text, "--") && !strings.Contains(text, "2026/") && !strings.HasSuffix(got, last) {
			t.Fatalf("own words below a quotation are lost: %q", got)
		}
	})
}

// FuzzFresh bounds the time: a stranger chooses every line.
func FuzzQuotations(f *testing.F) {
	if data, err := os.ReadFile("testdata/quotations.txt"); err == nil {
		for one := range strings.SplitSeq(string(data), "#### ") {
			f.Add(one, true)
		}
	}
	for _, line := range hostileLines {
		f.Add(strings.Repeat(line, 64), true)
	}
	f.Fuzz(func(t *testing.T, text string, answers bool) {
		text = Readable(text)
		var got string
		if took, most := processorTime(func() { got = fresh(text, "Re: x", answers) }), 5*time.Millisecond+time.Duration(len(text))*time.Microsecond; took > most {
			t.Errorf("%d bytes took %v", len(text), took)
		}
		if visible(text) != visible(got) || len(got) > len(text)+1 {
			t.Errorf("%d bytes of %d", len(got), len(text))
		}
	})
}

var hostileLines = []string{
	":\n", ">:\n", "> wrote:\n", "On 1@:\n", "<\n", "a <\n>:\n", "From: a@b\nSent: 1\nTo: a@b\n", "--\n", "-----Original Message-----\n> a\nb\n",
	"On Sun, Nov 22, 2026 at 9:12 AM somebody at a@b.example does many things and ends it here 4711:\n", "Sent: 1\nFrom: a@b\nTo: a@b\n", "| a\n2026/11/22 A <a@b>\n",
	"On 22 Nov 2026 x <a@b.example> wrote\n", "> see (https://b.example/x\ny)\n", "On, On @ 10:10:\n> x\n", "a> b\n", "----------------------------------------------------------- x ---\n",
}

// TestHostileTextsCostLittle: 256 KiB of what the rules look at longest.
func TestHostileTextsCostLittle(t *testing.T) {
	for _, line := range hostileLines {
		text := strings.Repeat(line, maxTextBytes/len(line))
		if took := processorTime(func() { fresh(text, "Re: x", true) }); took > 256*time.Millisecond {
			t.Errorf("256 KiB of %q took %v", line, took)
		}
	}
}

// processorTime is what a function takes of the processor on its own thread, whatever else the machine does. Of the race
// detector's part it is free.
func processorTime(run func()) time.Duration {
	const ofThread = 1 // RUSAGE_THREAD of Linux
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after syscall.Rusage
	begun := time.Now()
	counted := syscall.Getrusage(ofThread, &before)
	run()
	if counted != nil || syscall.Getrusage(ofThread, &after) != nil {
		return time.Since(begun)
	}
	return time.Duration(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano()) / markuptest.Slowdown
}
