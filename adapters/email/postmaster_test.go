package email

import (
	"fmt"
	"strings"
	"testing"

	"inbox/adapters/email/emailtest"
)

func TestPostmasterNeedsNoDomain(t *testing.T) {
	s, config := startSecure(t)
	greet := map[string]func() *wire{"plain": s.greet, "TLS": func() *wire { return s.greetSecure(config) }}
	for name, lines := range map[string]string{
		"alone":        "RCPT TO:<postmaster>\r\n",
		"in capitals":  "rcpt to: <PostMaster>\r\n",
		"with another": "RCPT TO:<postmaster>\r\nRCPT TO:<echo@inbox.test>\r\nRCPT TO:<Postmaster>\r\n",
	} {
		for kind, begin := range greet {
			for _, together := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, together %t", name, kind, together), func(t *testing.T) {
					w := begin()
					w.t = t
					mail := emailtest.Letter("x", "From: ann@plain.test", "To: postmaster@inbox.test", "Message-ID: <"+strings.ReplaceAll(name, " ", "-")+"@plain.test>")
					w.sayGroup(together, "MAIL FROM:<ann@plain.test>\r\n", lines)
					w.sayGroup(together, "DATA\r\n", mail+".\r\n")
				})
			}
		}
	}
	for _, begin := range greet {
		w := begin()
		w.say("MAIL FROM:<ann@plain.test>", "250")
		w.say("RCPT TO:<abuse>", "501")
		w.say("VRFY x", "252")
		w.say("RCPT TO:<postmaster@else.test>", "550 5.7.1")
		w.say("RCPT TO:<<postmaster>>", "501")
	}
}

// sayGroup brings two groups of lines, with or without waiting for the answers to the first (RFC 2920).
func (w *wire) sayGroup(together bool, first, second string) {
	w.t.Helper()
	if together {
		w.write(first + second)
		w.expectEach(first)
	} else {
		w.write(first)
		w.expectEach(first)
		w.write(second)
	}
	w.expectEach(second)
}

// expectEach reads a good answer to each command, and the one to a mail.
func (w *wire) expectEach(lines string) {
	w.t.Helper()
	if strings.HasSuffix(lines, "\r\n.\r\n") {
		w.expect("250")
		return
	}
	for line := range strings.Lines(lines) {
		w.expect(map[bool]string{true: "354", false: "250"}[strings.HasPrefix(line, "DATA")])
	}
}

// TestBodiesAreNotQualified brings the line as a part of mails, in packets of its own.
func TestBodiesAreNotQualified(t *testing.T) {
	s, config := startSecure(t)
	const line = "RCPT TO:<postmaster>\r\n"
	head := emailtest.Letter("first", "From: ann@plain.test")
	for name, script := range map[string][]string{
		"data":                  {"MAIL FROM:<ann@plain.test>\r\n", "250", "RCPT TO:<echo@inbox.test>\r\n", "250", "DATA\r\n", "354", head, "", line, "", ".\r\n", "250"},
		"data with RCPT":        {"MAIL FROM:<ann@plain.test>\r\n", "250", "RCPT TO:<echo@inbox.test>\r\nDATA\r\n", "250 354", head, "", line, "", ".\r\n", "250"},
		"data, all at once":     {"MAIL FROM:<ann@plain.test>\r\nRCPT TO:<echo@inbox.test>\r\nDATA\r\n", "250 250 354", head, "", line, "", ".\r\n", "250"},
		"chunks":                {"MAIL FROM:<ann@plain.test>\r\n", "250", "RCPT TO:<echo@inbox.test>\r\n", "250", fmt.Sprintf("BDAT %d\r\n%s", len(head), head), "250", fmt.Sprintf("BDAT %d LAST\r\n", len(line)), "", line, "250"},
		"chunks with RCPT":      {"MAIL FROM:<ann@plain.test>\r\n", "250", fmt.Sprintf("RCPT TO:<echo@inbox.test>\r\nBDAT %d\r\n%s", len(head), head), "250 250", fmt.Sprintf("BDAT %d LAST\r\n%s", len(line), line), "250"},
		"chunks, all at once":   {fmt.Sprintf("MAIL FROM:<ann@plain.test>\r\nRCPT TO:<echo@inbox.test>\r\nBDAT %d LAST\r\n", len(head)+len(line)), "250 250", head, "", line, "250"},
		"greeting and all":      {"EHLO x.test\r\nMAIL FROM:<ann@plain.test>\r\nRCPT TO:<echo@inbox.test>\r\nDATA\r\n" + head + line + ".\r\n", "250 250 250 354 250"},
		"a second mail":         {"MAIL FROM:<ann@plain.test>\r\nRSET\r\nMAIL FROM:<ann@plain.test>\r\nRCPT TO:<echo@inbox.test>\r\nDATA\r\n" + head, "250 250 250 250 354", line, "", ".\r\n", "250"},
		"a chunk after a reset": {"MAIL FROM:<ann@plain.test>\r\n", "250", "RSET\r\nMAIL FROM:<ann@plain.test>\r\nRCPT TO:<echo@inbox.test>\r\nBDAT " + fmt.Sprint(len(head)+len(line)) + " LAST\r\n" + head, "250 250 250", line, "250"},
		"a command in two cuts": {"MAIL FROM:<ann@plain.test>\r\n", "250", "RCPT TO:<echo@inbox.test>\r\nBD", "250", fmt.Sprintf("AT %d LAST\r\n", len(head)+len(line)), "", head, "", line, "250"},
	} {
		for kind, begin := range map[string]func() *wire{"plain": s.dial, "TLS": func() *wire { return s.greetSecure(config) }} {
			t.Run(name+", "+kind, func(t *testing.T) {
				w := begin()
				w.t = t
				if kind == "plain" {
					w.say("EHLO client.sender.test", "250")
				}
				s.bodyStays(t, w, script, line)
			})
		}
	}
}

// bodyStays plays a script of what is sent and what is answered, and demands that one mail came of it that ends as it was sent.
func (s *setup) bodyStays(t *testing.T, w *wire, script []string, line string) {
	t.Helper()
	before := len(s.engine.all())
	for i := 0; i < len(script); i += 2 {
		w.write(strings.ReplaceAll(script[i], "m1@sender.test", fmt.Sprintf("%02d@sender.test", before)))
		for want := range strings.FieldsSeq(script[i+1]) {
			w.expect(want)
		}
	}
	w.say("NOOP", "250")
	all := s.engine.all()
	if len(all) != before+1 || !strings.HasSuffix(string(all[before].Original), "first\r\n"+line) {
		t.Errorf("%d mails, the last one %q", len(all)-before, all[len(all)-1].Original)
	}
}

func TestAddressesOfReceived(t *testing.T) {
	for ip, want := range map[string]string{"192.0.2.1": "[192.0.2.1]", "2001:db8::1": "[IPv6:2001:db8::1]"} {
		if got := addressLiteral(ip); got != want {
			t.Errorf("%s: %s", ip, got)
		}
	}
}
