package email

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
			text = readable(text)
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
		text := readable(strings.Join(lines, "\n"))
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
		text = readable(text)
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
