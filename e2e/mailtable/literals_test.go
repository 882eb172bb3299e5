package mailtable

import (
	"strings"
	"testing"
)

// smuggled is a mail with a second one behind an end of data that is none (each of them is one for some server).
func smuggled(end string) row {
	return row{sign: nobody, code: malformed, raw: "From: ann@{d}\r\nTo: echo@inbox.test\r\nMessage-ID: <m@{d}>\r\n\r\nfirst" + end +
		"MAIL FROM:<ann@{d}>\r\nRCPT TO:<echo@inbox.test>\r\nDATA\r\nFrom: ann@{d}\r\nMessage-ID: <second@{d}>\r\n\r\nsecond\r\n"}
}

// literals is what the bytes on the wire may be.
func literals() []row {
	rows := []row{}
	for name, end := range map[string]string{
		"LF.LF": "\n.\n", "LF.CRLF": "\n.\r\n", "CRLF.LF": "\r\n..\n", "CR.CR": "\r.\r", "CR.CRLF": "\r.\r\n", "CRLF.CR": "\r\n..\r", "CRLF NUL .CRLF": "\r\n\x00.\r\n", "CRLF. NUL CRLF": "\r\n..\x00\r\n",
	} {
		one := smuggled(end)
		one.name = "smuggling with " + name
		rows = append(rows, one)
	}
	sized := func(size int) func(*testing.T, *world, string, string) string {
		return func(_ *testing.T, _ *world, _, mail string) string {
			missing := size - len(mail)
			line := strings.Repeat("x", 98) + "\r\n"
			return mail + strings.Repeat(line, missing/100) + strings.Repeat("y", missing%100)
		}
	}
	return append(rows,
		row{name: "a lone LF in the header", sign: nobody, code: malformed, raw: "From: ann@{d}\nTo: echo@inbox.test\r\n\r\nx\r\n"},
		row{name: "a NUL in the body", sign: nobody, body: "a\x00b", code: malformed},
		row{name: "a lone CR in the body", sign: nobody, body: "a\rb", code: malformed},
		row{name: "a line of 4,000 bytes", body: strings.Repeat("x", 3998), holds: []string{"xxx"}},
		row{name: "a line of 4,001 bytes", sign: nobody, body: strings.Repeat("x", 4001), code: malformed},
		row{name: "a mail of exactly the limit", sign: nobody, alter: func(t *testing.T, w *world, domain, mail string) string {
			return strings.TrimSuffix(sized(maxMail-2)(t, w, domain, mail), "\r\n") + "\r\n"
		}, method: unproven},
		row{name: "a mail of a byte more", sign: nobody, alter: func(t *testing.T, w *world, domain, mail string) string {
			return sized(maxMail-1)(t, w, domain, mail) + "\r\n"
		}, code: "552 5.3.4"},
		row{name: "a header and no body", sign: nobody, raw: "From: ann@{d}\r\nTo: echo@inbox.test\r\nMessage-ID: <m@{d}>\r\nSubject: only this\r\n", method: unproven, text: "only this"},
		row{name: "nothing at all", sign: nobody, raw: "\r\n", code: malformed},
		row{name: "neither subject nor text", sign: nobody, head: []string{"-Subject:"}, body: "\n", code: malformed},
		row{name: "a greeting that is an address literal", helo: "[127.0.0.1]"},
		row{name: "a greeting without a dot", helo: "localhost"},
		row{name: "8-bit words", body: "Grüße", text: "Grüße"},
	)
}
