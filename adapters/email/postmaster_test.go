package email

import (
	"fmt"
	"strings"
	"testing"
)

func TestPostmasterNeedsNoDomain(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxConnectionsPerIP = 100 })
	for name, lines := range map[string]string{
		"alone":        "RCPT TO:<postmaster>\r\n",
		"in capitals":  "rcpt to: <PostMaster>\r\n",
		"with another": "RCPT TO:<postmaster>\r\nRCPT TO:<echo@inbox.test>\r\nRCPT TO:<Postmaster>\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := s.greet()
			w.say("MAIL FROM:<ann@plain.test>", "250")
			w.write(lines)
			for range strings.Count(lines, "\n") {
				w.expect("250")
			}
			w.say("DATA", "354")
			w.write(letter("x", "From: ann@plain.test", "To: postmaster@inbox.test", "Message-ID: <"+strings.ReplaceAll(name, " ", "-")+"@plain.test>"))
			w.say(".", "250")
		})
	}
	w := s.greet()
	w.say("MAIL FROM:<ann@plain.test>", "250")
	w.say("RCPT TO:<abuse>", "501")
	w.say("VRFY x", "252")
	w.say("RCPT TO:<postmaster@else.test>", "550 5.7.1")
	w.say("RCPT TO:<<postmaster>>", "501")
}

// TestBodiesAreNotQualified brings the line as a part of mails, in packets of its own.
func TestBodiesAreNotQualified(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxConnectionsPerIP = 100 })
	const line = "RCPT TO:<postmaster>\r\n"
	head := letter("first", "From: ann@plain.test")
	for name, script := range map[string][]string{
		"data":                  {"MAIL FROM:<ann@plain.test>\r\n", "250", "RCPT TO:<echo@inbox.test>\r\n", "250", "DATA\r\n", "354", head, "", line, "", ".\r\n", "250"},
		"data with RCPT":        {"MAIL FROM:<ann@plain.test>\r\n", "250", "RCPT TO:<echo@inbox.test>\r\nDATA\r\n", "250 354", head, "", line, "", ".\r\n", "250"},
		"data, all at once":     {"MAIL FROM:<ann@plain.test>\r\nRCPT TO:<echo@inbox.test>\r\nDATA\r\n", "250 250 354", head, "", line, "", ".\r\n", "250"},
		"chunks":                {"MAIL FROM:<ann@plain.test>\r\n", "250", "RCPT TO:<echo@inbox.test>\r\n", "250", fmt.Sprintf("BDAT %d\r\n%s", len(head), head), "250", fmt.Sprintf("BDAT %d LAST\r\n", len(line)), "", line, "250"},
		"chunks with RCPT":      {"MAIL FROM:<ann@plain.test>\r\n", "250", fmt.Sprintf("RCPT TO:<echo@inbox.test>\r\nBDAT %d\r\n%s", len(head), head), "250 250", fmt.Sprintf("BDAT %d LAST\r\n%s", len(line), line), "250"},
		"chunks, all at once":   {fmt.Sprintf("MAIL FROM:<ann@plain.test>\r\nRCPT TO:<echo@inbox.test>\r\nBDAT %d LAST\r\n", len(head)+len(line)), "250 250", head, "", line, "250"},
		"a command in two cuts": {"MAIL FROM:<ann@plain.test>\r\n", "250", "RCPT TO:<echo@inbox.test>\r\nBD", "250", fmt.Sprintf("AT %d LAST\r\n", len(head)+len(line)), "", head, "", line, "250"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(s.engine.all())
			w := s.greet()
			for i := 0; i < len(script); i += 2 {
				text := strings.ReplaceAll(script[i], "m1@sender.test", fmt.Sprintf("%02d@sender.test", before))
				w.write(text)
				for want := range strings.FieldsSeq(script[i+1]) {
					w.expect(want)
				}
			}
			w.say("NOOP", "250")
			all := s.engine.all()
			if len(all) != before+1 || !strings.HasSuffix(string(all[before].Original), "first\r\n"+line) {
				t.Errorf("%d mails, the last one %q", len(all)-before, all[len(all)-1].Original)
			}
		})
	}
}

func TestAddressesOfReceived(t *testing.T) {
	for ip, want := range map[string]string{"192.0.2.1": "[192.0.2.1]", "2001:db8::1": "[IPv6:2001:db8::1]"} {
		if got := addressLiteral(ip); got != want {
			t.Errorf("%s: %s", ip, got)
		}
	}
}
