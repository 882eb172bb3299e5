package text

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
	"inbox/internal/fault"
	"inbox/normalized"
)

func TestTextIsCut(t *testing.T) {
	for _, parts := range []int{1, 5} { // the limit is for all of them together
		c := &contentReader{}
		for range parts {
			c.addText(readableText{text: strings.Repeat("é", maxTextBytes/2), mime: normalized.MIMEPlain, own: strings.Repeat("o", maxTextBytes)})
		}
		c.addText(readableText{text: "end", mime: normalized.MIMEPlain})
		for _, text := range []string{joined(c.texts), joined(c.own)} {
			if len(text) > maxTextBytes+100 || !strings.HasSuffix(text, "the original mail is kept.]") {
				t.Errorf("%d bytes, end %q", len(text), text[len(text)-50:])
			}
		}
	}
}

func TestHarmlessTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching("[ -~\n\t]{0,40}"), rapid.StringMatching("[ -~]{0,20}[\x00-\x7f][ -~]{0,20}")).Draw(t, "text")
		want := !strings.ContainsFunc(text, func(r rune) bool { return r >= 0x7f || r < ' ' && r != '\n' && r != '\t' })
		if got := harmless(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	})
}

// TestHostileStructuresAreCheap guards against the quadratic and worse cases. It counts memory: what copies for every element
// takes thousands of bytes for each byte here. The bounds of time are generous.
func TestHostileStructuresAreCheap(t *testing.T) {
	began := time.Now()
	fields, body, err := message.Split([]byte(emailtest.Nested(20_000)))
	if err == nil {
		_, err = (&message.Parser{}).Parse(fields, body, 0)
	}
	if err == nil {
		t.Error("20,000 levels are accepted")
	}
	for name, text := range map[string]string{
		"divs":       strings.Repeat("<div>", 200_000),
		"tables":     strings.Repeat("<table><tr><td>", 50_000),
		"attributes": "<p " + strings.Repeat("a=b ", 100_000) + ">x",
		"quotes":     strings.Repeat("<blockquote>x", 20_000),
		"lists":      strings.Repeat("<ul><li>x", 20_000),
		"bold":       strings.Repeat("<b>x", 50_000),
		"links":      strings.Repeat(`<a href="https://x.test">x`, 20_000),
		"stars":      strings.Repeat("*_`[", 100_000),
		"entities":   strings.Repeat("&lt;", 100_000),
	} {
		one := time.Now()
		if took := allocated(func() { FromHTML(text) }) / uint64(len(text)); took > 300 {
			t.Errorf("%s took %d bytes of memory for each of its own", name, took)
		}
		if took := time.Since(one); took > 5*time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("hostile input took %s", took)
	}
}

// allocated returns the bytes that a function takes from memory.
func allocated(run func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestUnflow(t *testing.T) {
	for in, want := range map[string]string{
		"a \nb":         "a b",
		"a\nb":          "a\nb",
		"> a \n> b":     "> a b",
		"> a \nb":       "> a \nb",
		">> a \n> b":    ">> a \n> b",
		"a \n-- \nb":    "a \n-- \nb",
		" > not quoted": "> not quoted",
		"":              "",
	} {
		if got := unflow(in, false); got != want {
			t.Errorf("%q: %q; want %q", in, got, want)
		}
	}
	if got := unflow("a \r\nb", true); got != "ab" {
		t.Errorf("delsp: %q", got)
	}
}

func TestCleanName(t *testing.T) {
	for in, want := range map[string]string{
		"../../etc/passwd": "passwd", `C:\x\y.doc`: "y.doc", "...hidden": "hidden", "a\r\nb.txt": "a b.txt", "rep\u202efdp.exe": "repfdp.exe", "": "",
	} {
		if got := CleanName(in); got != want {
			t.Errorf("%q: %q; want %q", in, got, want)
		}
	}
	if got := CleanName(strings.Repeat("ü", 300)); len(got) > maxNameBytes {
		t.Errorf("%d bytes", len(got))
	}
}

// FuzzFileName reads names as they stand in Content-Disposition.
func FuzzFileName(f *testing.F) {
	f.Add(`attachment (x); filename==?utf-8?b?w7w?=; filename=a b (1).txt`)
	f.Add(`attachment; filename*0*=utf-8''%C3; filename*1*=%BC..%2f`)
	f.Fuzz(func(t *testing.T, text string) {
		_, params := message.MediaType(text, "text/plain")
		if name := CleanName(message.DecodeWords(params["filename"])); len(name) > maxNameBytes || !utf8.ValidString(name) || strings.ContainsAny(name, "/\r\n\x00") {
			t.Errorf("name %q", name)
		}
	})
}

func FuzzUnflow(f *testing.F) {
	f.Add("a \n> b \n>> c\n-- \n", true)
	f.Fuzz(func(t *testing.T, text string, deleteSpace bool) {
		if got := unflow(text, deleteSpace); len(got) > 2*len(text)+1 {
			t.Errorf("%d bytes of %d", len(got), len(text))
		}
	})
}

func FuzzMIME(f *testing.F) {
	files, _ := filepath.Glob("testdata/mail/*.eml")
	for _, file := range files {
		if mail, err := os.ReadFile(file); err == nil {
			f.Add(mail)
		}
	}
	f.Fuzz(func(t *testing.T, mail []byte) {
		fields, body, err := message.Split(mail)
		if err != nil {
			return
		}
		size := len(body)
		for _, one := range fields {
			size += len(one.Raw)
		}
		if size > len(mail) {
			t.Fatalf("header and body have %d of %d bytes", size, len(mail))
		}
		walk := &message.Parser{}
		root, err := walk.Parse(fields, body, 0)
		if err != nil {
			return
		}
		reader := &contentReader{walk: walk, budget: 2*len(mail) + 64<<10}
		if err := reader.read(t.Context(), root, false); err != nil && !fault.Is(err, fault.Malformed) {
			t.Fatal(err)
		}
		for _, part := range append(reader.result.Files, reader.result.Links...) {
			if _, err := json.Marshal(part); err != nil {
				t.Fatal(err)
			}
		}
		if said := joined(reader.texts); len(said) > maxTextBytes+100 || !utf8.ValidString(said) {
			t.Errorf("%d bytes of text", len(said))
		}
	})
}

func TestMailLocale(t *testing.T) {
	for lines, want := range map[string]string{
		"":                        "",
		"Content-Language: de-CH": "de-CH",
		"Accept-Language: fr\r\nContent-Language: de":         "fr",
		"Accept-Language: *\r\nContent-Language: de":          "de",
		"Accept-Language: en;q=0.5, de-AT;Q=0.9, fr;q=0.9":    "de-AT",
		"Accept-Language: en ; q = 0, fr;q=0.1":               "fr",
		"Accept-Language: en;q=0":                             "",
		"Accept-Language: en;q=NaN, fr;q=2, de;q=-1, it;q=.1": "it",
		"Content-Language: i-default":                         "",
		"Content-Language: mi (Maori), en (English)":          "mi",
		"Content-Language: de\r\n\t, en":                      "de",
		"Content-Language: d\xc3\xa9, x\x00y, <b>":            "",
		"Content-Language: " + strings.Repeat("en,", 1000):    "",
		"Content-Language: " + strings.Repeat("a", 36):        "",
	} {
		fields, _, err := message.Split([]byte(lines + "\r\n\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := Locale(fields); got != want {
			t.Errorf("%.60q: %q, want %q", lines, got, want)
		}
	}
}

func FuzzBestLanguage(f *testing.F) {
	f.Add("de-AT, en;q=0.5")
	f.Add("*;q=0, i-default (x")
	f.Fuzz(func(t *testing.T, list string) {
		if got := BestLanguage(list); strings.ContainsAny(got, " \r\n,;<>") || len(got) > 35 {
			t.Errorf("%q: %q", list, got)
		}
	})
}

func FuzzCalendar(f *testing.F) {
	f.Add("BEGIN:VCALENDAR\nMETHOD:REQUEST\nBEGIN:VEVENT\nDTSTART;TZID=\"a:b\":20261123T1000\nORGANIZER;CN=x:mailto:a@b\nEND:VEVENT")
	f.Fuzz(func(t *testing.T, text string) {
		if method, events := readCalendar(text); len(events) > maxEvents || len(method) > len(text)*4 {
			t.Errorf("%d events", len(events))
		}
		_ = calendarText(text)
	})
}

func TestCalendarsAreReadAsFarAsTheyGo(t *testing.T) {
	for name, text := range map[string]string{
		"whole":                  "BEGIN:VCALENDAR\r\nMETHOD:REQUEST\r\nBEGIN:VEVENT\r\nSUMMARY:Lunch\\, with Bo\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n",
		"a line without a colon": "BEGIN:VCALENDAR\r\nMETHOD:REQUEST\r\nBEGIN:VEVENT\r\nthis is no line\r\nSUMMARY:Lunch\\, with Bo\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n",
		"without its end":        "BEGIN:VCALENDAR\r\nMETHOD:REQUEST\r\nBEGIN:VEVENT\r\nSUMMARY:Lunch\\, with Bo\r\nEND:VEVENT\r\n",
	} {
		if got := calendarText(text); got != "Invitation\nWhat: Lunch, with Bo" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
