package message

import (
	"strings"
	"testing"
)

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
