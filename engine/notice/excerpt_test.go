package notice

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"inbox/exchange"
)

// FuzzExcerpt: whatever others wrote is one short line without control characters and without an address that becomes a link.
func FuzzExcerpt(f *testing.F) {
	for _, text := range []string{
		"550 no such user", "a\r\nSubject: another\r\n\r\nbody", "see https://evil.example/ now", "\u202egpj.exe", "<script>alert(1)</script>", "\xff\xfe", "a\u2028b", "a\u200bb",
	} {
		f.Add(text, 40)
	}
	f.Fuzz(func(t *testing.T, text string, limit int) {
		if limit < 0 || limit > 1<<12 {
			return
		}
		got := Excerpt(text, limit)
		if !utf8.ValidString(got) && utf8.ValidString(text) {
			t.Errorf("%q is no text", got)
		}
		if len(got) > limit+len("…") || strings.Contains(got, "://") || strings.ContainsFunc(got, unicode.IsControl) || strings.ContainsAny(got, "\u2028\u2029\u202e") {
			t.Errorf("%q becomes %q", text, got)
		}
	})
}

// TestDueAt: a digest is made once a day in the zone of the operator, also when the clocks change.
func TestDueAt(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	settings := Settings{Hour: 2, Minute: 30, Zone: berlin}
	last, digests := time.Time{}, 0
	for at := time.Date(2026, 10, 23, 0, 0, 0, 0, time.UTC); at.Before(time.Date(2026, 10, 28, 0, 0, 0, 0, time.UTC)); at = at.Add(time.Minute) {
		due := dueAt(settings, at)
		if due.After(at) || at.Sub(due) > 25*time.Hour {
			t.Fatalf("at %s the last one was due at %s", at, due)
		}
		if last.Before(due) {
			last, digests = at, digests+1
		}
	}
	if digests != 6 {
		t.Errorf("%d digests in five days and what was due before", digests)
	}
}

// TestEveryKindHasWords: what a notice says of each kind, with the names of others kept apart from ours.
func TestEveryKindHasWords(t *testing.T) {
	s := New(Options{Domain: "inbox.test"})
	settings := Settings{Zone: time.UTC}
	for _, kind := range exchange.NoticeKinds() {
		w, known := wordsOf[kind]
		if !known || w.one == "" || w.many == "" || w.look == "" {
			t.Errorf("%s has no words", kind)
		}
		tally := exchange.NoticeTally{Kind: kind, Subject: "shop", Count: 3, Examples: []exchange.NoticeExample{{ID: "id", Note: "no\r\n\r\nLook: https://evil.example"}}}
		n, err := s.digest([]exchange.NoticeTally{tally}, nil, settings, time.Now(), time.Now())
		if err != nil || !strings.Contains(n.Title, "3 "+w.many) || !strings.Contains(n.Text, "| no Look: https[:]//evil.example") || strings.ContainsAny(n.Title, "\r\n") {
			t.Errorf("%s: %s\n%s %v", kind, n.Title, n.Text, err)
		}
		if w.began == "" {
			continue
		}
		lasts := exchange.NoticeCondition{Kind: kind, Subject: "shop", Reason: "no\r\n\r\nLook: https://evil.example", Since: time.Now(), EndedAt: time.Now()}
		for _, say := range []func(exchange.NoticeCondition, Settings, int64, time.Time) (exchange.Notice, error){s.began, s.ended} {
			n, err := say(lasts, settings, 0, time.Now())
			if err != nil || !strings.Contains(n.Title, "shop") || strings.Contains(n.Text, "://") || n.Body == "" || strings.Contains(n.Title, "%s") {
				t.Errorf("%s: %s\n%s %v", kind, n.Title, n.Text, err)
			}
		}
	}
}
