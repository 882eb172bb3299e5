package message

import (
	"net/mail"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestDateEqualsLibrary: the short way to the usual form gives what net/mail gives, for every form and for damaged ones.
func TestDateEqualsLibrary(t *testing.T) {
	check := func(t interface {
		Helper()
		Errorf(format string, arguments ...any)
	}, text string,
	) {
		t.Helper()
		got, err := Date(text)
		want, refused := mail.ParseDate(text)
		if (err == nil) != (refused == nil) || err == nil && (!got.Equal(want) || got.Format(time.RFC1123Z) != want.Format(time.RFC1123Z)) {
			t.Errorf("Date(%q) = %v, %v; net/mail reads %v, %v", text, got, err, want, refused)
		}
	}
	for _, text := range []string{
		"", "now", "Mon, 02 Jan 2006 15:04:05 -0700", "Mon, 2 Jan 2006 15:04:05 -0700", "Tue, 2 Jan 2006 15:04:05 -0700", "2 Jan 2006 15:04 +0000",
		"Mon, 2 Jan 06 15:04:05 MST", "Mon, 2 Jan 2006 15:04:05 -0700 (MST)", "mon, 02 jan 2006 15:04:05 +0100", "Mon,02 Jan 2006 15:04:05 +0100",
		"Mon,  2 Jan 2006 15:04:05 +0100", " Mon, 2 Jan 2006 15:04:05 +0100", "Mon, 30 Feb 2006 15:04:05 +0100", "Mon, 2 Jan 2006 15:04:05 +0100 ",
		"Mon, 2 Jan 2006 24:04:05 +0100", "Mon, 2 Jan 2006 15:04:60 +0100", "Mon, 2 Jan 2006 15:04:05.5 +0100", "Mon, 2 Jan 2006 15:04:05 +9999",
		"Mon, 2 Jan 2006 15:04:05 GMT", "Mon, 2 Jan 2006\t15:04:05 +0100", "Mon, 2 Jan 2006 15:04:05 -0000",
	} {
		check(t, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		date := time.Unix(rapid.Int64Range(0, 1<<35).Draw(t, "second"), 0).In(time.FixedZone("", 60*rapid.IntRange(-14*60, 14*60).Draw(t, "zone")))
		text := []byte(date.Format(rapid.SampledFrom([]string{time.RFC1123Z, usualDate, time.RFC822Z, time.RFC1123, "2 Jan 2006 15:04:05 -0700"}).Draw(t, "form")))
		if rapid.Bool().Draw(t, "damaged") {
			text[rapid.IntRange(0, len(text)-1).Draw(t, "place")] = rapid.SampledFrom([]byte(" 0:,-aZ\t(")).Draw(t, "letter")
		}
		check(t, string(text))
	})
	if _, err := Date("Mon, 2 Jan 2006 15:04:05 -0700 (" + strings.Repeat("x", 200) + ")"); err == nil {
		t.Error("a date of more than 200 bytes is read")
	}
}
