package message

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

func TestMend(t *testing.T) {
	const good = "From: a@b.test\r\nTo: c@d.test\r\n\r\nbody\r\n"
	for mail, want := range map[string]string{ // empty = stays ambiguous
		good: good,
		"From a@b.test Thu Nov 26 10:00:00 2026\r\n" + good:                 good,
		">>From x\r\nFrom y\r\n" + good:                                     good,
		"From x\r\n folded: x\r\n" + good:                                   "",
		"From : a@b.test\r\n\r\nbody":                                       "From : a@b.test\r\n\r\nbody",
		"From \t : a@b.test\r\n\r\nbody":                                    "From \t : a@b.test\r\n\r\nbody",
		"Subject: x\r\nX Y: z\r\nTo: c@d.test\r\n\r\nFrom: e@f.test\r\n":    "Subject: x\r\n\r\nX Y: z\r\nTo: c@d.test\r\n\r\nFrom: e@f.test\r\n",
		"Subject: x\r\nX Y: z\r\nTo: c@d.test\r\nfrom\t: e@f.test\r\n\r\nx": "",
		"Subject: x\r\nX Y: z\r\nFrom\u00a0: e@f.test\r\n\r\nx":             "",
		"Subject: x\r\nX Y: z\r\nFrom\xa0: e@f.test\r\n\r\nx":               "",
		"Subject: x\r\n\vfrom\f: e@f.test\r\n\r\nx":                         "",
		"Subject: x\r\nX Y: z\r\n From: e@f.test\r\n\r\nx":                  "Subject: x\r\n\r\nX Y: z\r\n From: e@f.test\r\n\r\nx",
		"Subject: x\r\nno field":                                            "Subject: x\r\n\r\nno field",
		"From x\r\nSubject: x\r\n: value\r\n\r\nx":                          "Subject: x\r\n\r\n: value\r\n\r\nx",
		"From x": "",
	} {
		got, err := Mend([]byte(mail))
		if mail == "From x" {
			if err != nil || len(got) != 0 {
				t.Errorf("%q gives %q, %v", mail, got, err)
			}
			continue
		}
		if string(got) != want || (want == "") != errors.Is(err, ErrDamaged) {
			t.Errorf("%q gives %q, %v; want %q", mail, got, err, want)
		}
	}
}

// TestNoFromHidesFarBelowDamage: a program that skips damaged lines reads past any bound of ours.
func TestNoFromHidesFarBelowDamage(t *testing.T) {
	for _, filler := range []string{"no field\r\n", "X-Y: z\r\n", "x\r\n"} {
		mail := "From: a@b.test\r\ndamaged\r\n" + strings.Repeat(filler, 10<<20/len(filler)) + "FROM : e@f.test\r\n\r\nbody\r\n"
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Mend([]byte(mail)); !errors.Is(err, ErrDamaged) {
			t.Errorf("a From below 10 MB of %q: %v", filler, err)
		}
		runtime.ReadMemStats(&after)
		if made := after.TotalAlloc - before.TotalAlloc; made > 10*uint64(len(mail)) { // an error for each line makes more
			t.Errorf("%q makes %d MB of garbage", filler, made>>20)
		}
	}
}

// FuzzMend: what was mended has one header, and all of its bytes but the lines of a mailbox file.
func FuzzMend(f *testing.F) {
	f.Add("From x\r\nSubject: x\r\nX Y: z\r\n\r\nbody")
	f.Add("Subject: x\r\n folded\r\n\tmore\r\n: y\r\nFrom: a@b.test\r\n\r\n")
	f.Fuzz(func(t *testing.T, mail string) {
		mended, err := Mend([]byte(mail))
		if err != nil {
			return
		}
		fields, body, err := Split(mended)
		if err != nil {
			t.Fatalf("%q is mended to %q: %v", mail, mended, err)
		}
		if !strings.HasSuffix(mail, string(body)) {
			t.Errorf("the body of %q is %q", mail, body)
		}
		above, damage, err := SplitEnclosed([]byte(mail))
		if err != nil || len(above) != len(fields) || string(damage) != string(body) {
			t.Errorf("%q has %d fields and the body %q, mended %d and %q: %v", mail, len(above), damage, len(fields), body, err)
		}
	})
}

func FuzzFrom(f *testing.F) {
	for _, seed := range []string{
		"Ann <ann@sender.test>", "ann@sender.test (boss@x.test)", "Team: a@b.test;", "=?utf-8?B?4oKs?= <a@b.test>", `"a@b.test" <c@d.test>`, "<@r.test:a@b.test>", "a@xn--mnchen-3ya.test", "ä@b.test", "a@b@c.test",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		fields, _, err := Split([]byte("From: " + value + "\r\n\r\n"))
		if err != nil {
			return
		}
		box, err := ParseFrom(fields)
		if err != nil {
			return
		}
		again, err := ParseMailbox(box.Address())
		if err != nil || again.Key() != box.Key() {
			t.Errorf("%q gives %+v, which gives %+v, %v", value, box, again, err)
		}
		if strings.ContainsAny(box.Name, "@\r\n") || strings.ContainsAny(box.Address(), " \r\n<>,;") {
			t.Errorf("%q gives %+v", value, box)
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add("From: a@b.test\r\nSubject: =?utf-8?q?a?=\r\n b\r\n\r\nbody")
	f.Add("From : a@b.test\r\nX\r\n\r\n")
	f.Add("References: <a@b> <c@d>\r\nTo: \"x\" <a@b.test>, Team: c@d.test;\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		fields, body, err := Split([]byte(text))
		if err != nil {
			return
		}
		size := len(body)
		for _, one := range fields {
			size += len(one.Raw)
		}
		if size > len(text) {
			t.Errorf("%d bytes of %d", size, len(text))
		}
		if from, err := ParseFrom(fields); err == nil && (from.Local == "" || from.Domain == "" || strings.ContainsAny(from.Address(), " \r\n<>")) {
			t.Errorf("From is %q", from.Address())
		}
		for _, id := range IDs(fields.Get("References")) {
			if strings.ContainsAny(id, "<> \r\n") {
				t.Errorf("id %q", id)
			}
		}
		if subject := fields.Decoded("Subject"); strings.ContainsAny(subject, "\r\n\x00\u202e") {
			t.Errorf("subject %q", subject)
		}
	})
}
