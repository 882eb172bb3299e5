package mailtable

import (
	"strings"
	"testing"
	"time"

	"inbox/e2e/load"
	"inbox/operator"
)

const malformed = "554 5.6.0"

func named(want string) func(*testing.T, operator.Shown, load.Received) {
	return func(t *testing.T, shown operator.Shown, _ load.Received) {
		t.Helper()
		if got := shown.Turn.Message.Sender.DisplayName; got != want {
			t.Errorf("name %q; want %q", got, want)
		}
	}
}

func subject(want string) func(*testing.T, operator.Shown, load.Received) {
	return func(t *testing.T, _ operator.Shown, reply load.Received) {
		t.Helper()
		if got := reply.Header.Get("Subject"); got != want {
			t.Errorf("subject of the reply %q; want %q", got, want)
		}
	}
}

// damagedMail is a mail with more lines at the end of its header.
func damagedMail(lines string) string {
	return "From: ann@{d}\r\nTo: echo@inbox.test\r\nSubject: A question\r\nDate: " + time.Now().Format(time.RFC1123Z) + "\r\nMessage-ID: <m@{d}>\r\n" +
		strings.ReplaceAll(lines, "\n", "\r\n") + "\r\n\r\nWhat time is it?\r\n"
}

// damaged is headers with a line that is no field. As with Postfix, it ends the header, and lines of a mailbox file are left out above it.
func damaged() []row {
	const ended = "Cc: friend@example.test\nReply-To: boss@bank.test"
	holds := func(name, line string) row {
		return row{
			name: name, raw: damagedMail(line + "\n" + ended), sign: nobody, claims: []string{`"result":"pass"`}, text: line + "\n" + ended + "\n\nWhat time is it?",
			alter: func(t *testing.T, w *world, domain, mail string) string {
				mended := strings.Replace(mail, "\r\n"+line, "\r\n\r\n"+line, 1)
				signed := tagged{tags: "v=1; a=rsa-sha256; d=" + domain + "; s=s1; " + goodNames + ":cc:reply-to"}.sign(t, w.key, mended)
				return strings.TrimSuffix(signed, mended) + mail
			},
		}
	}
	rows := []row{
		holds("a blank in a field name", "X Spam Status: No"),
		holds("a line without a colon", "this is no field"),
		holds("a field without a name", ": value"),
		holds("letters that are not ASCII in a field name", "Betreffü: x"),
		holds("a line of a mailbox file below the first one", "From ann@sender.test Thu Nov 26 10:00:00 2026"),
		{name: "damaged, signed as other software reads it", raw: damagedMail("this is no field"), method: unproven, claims: []string{"body hash did not verify"}},
		{name: "a damaged line above To", raw: "From: ann@{d}\r\nMessage-ID: <m@{d}>\r\nno field\r\nTo: echo@inbox.test\r\n\r\nx\r\n", sign: nobody, method: unproven, claims: []string{`"addressed":false`}, state: "silent"},
		{name: "a damaged line above From", raw: "To: echo@inbox.test\r\nno field\r\nFrom: ann@{d}\r\n\r\nx\r\n", sign: nobody, code: malformed},
		{name: "a damaged line between two From fields", raw: damagedMail("no field\nfrom : boss@bank.test"), sign: nobody, code: malformed},
		{name: "a NUL in a field name", raw: damagedMail("X\x00Y: x"), sign: nobody, code: malformed},
		{name: "the first line is folded", raw: " folded\r\nFrom: ann@{d}\r\n\r\nx\r\n", sign: nobody, code: malformed},
		{name: "no field at all", raw: "Hello,\r\nwhat time is it?\r\n", sign: nobody, code: malformed},
	}
	for name, lines := range map[string]string{
		"a line of a mailbox file first":    "From ann@{d} Thu Nov 26 10:00:00 2026",
		"an escaped line of a mailbox file": ">From ann@{d} Thu Nov 26 10:00:00 2026",
		"several lines of mailbox files":    "From boss@bank.test Thu Nov 26 10:00:00 2026\r\n>From ann",
	} {
		one := row{name: name, text: "What time is it?", lacks: []string{"10:00:00"}, alter: func(_ *testing.T, _ *world, domain, mail string) string {
			return strings.ReplaceAll(lines, "{d}", domain) + "\r\n" + mail
		}}
		rows = append(rows, one)
	}
	return rows
}

// headers is what a header may look like (RFC 5322, RFC 2047), and what makes it one that different software reads
// differently.
func headers() []row {
	return append(damaged(), []row{
		{name: "two From fields", head: []string{"From: ann@{d}\nFrom: bo@{d}"}, code: malformed},
		{name: "no From", head: []string{"-From:"}, sign: nobody, code: malformed},
		{name: "an empty From", head: []string{"From:"}, sign: nobody, code: malformed},
		{name: "two addresses in From", head: []string{"From: ann@{d}, bo@{d}"}, code: malformed},
		{name: "a group in From", head: []string{"From: Team: ann@{d};"}, code: malformed},
		{name: "a group without members in From", head: []string{"From: undisclosed-recipients:;"}, code: malformed},
		{name: "a blank before the colon of From", head: []string{"-From:", "From : ann@{d}"}, sign: nobody, code: malformed},
		{name: "a From in disguise beside one", head: []string{"From: ann@{d}\nfrom : bo@{d}"}, sign: nobody, code: malformed},
		{name: "an address literal in From", head: []string{"From: ann@[127.0.0.1]"}, code: malformed},
		{name: "a route in From", head: []string{"From: <@relay.test:ann@{d}>"}, code: malformed},
		{name: "a quoted local part in From", head: []string{`From: "a b"@{d}`}, code: malformed},
		{name: "two angles in From", head: []string{"From: <ann@{d}> <bo@{d}>"}, code: malformed},
		{name: "a NUL in From", head: []string{"From: ann\x00@{d}"}, sign: nobody, code: malformed},
		{name: "From of one label", head: []string{"From: ann@localhost"}, sign: nobody, method: unproven, state: "held"},
		{name: "a comment as name", head: []string{"From: ann@{d} (The Boss)"}, check: named("The Boss")},
		{name: "a name that looks like an address", head: []string{`From: "boss@bank.test" <ann@{d}>`}, check: named("")},
		{name: "an encoded name that looks like an address", head: []string{"From: =?utf-8?q?boss=40bank.test?= <ann@{d}>"}, check: named("")},
		{name: "an encoded name with a line end", head: []string{"From: =?utf-8?q?Ann=0D=0ABcc=3A_x?= <ann@{d}>"}, check: named("Ann Bcc: x")},
		{name: "a name that turns the reading direction", head: []string{"From: =?utf-8?b?4oCuQW5u4oCs?= <ann@{d}>"}, check: named("Ann")},
		{name: "a name in Latin-1", head: []string{"From: =?iso-8859-1?q?J=FCrgen?= <ann@{d}>"}, check: named("Jürgen")},
		{name: "a name in raw UTF-8", head: []string{"From: Jürgen <ann@{d}>"}, check: named("Jürgen")},
		{name: "a name in raw Latin-1", head: []string{"From: J\xfcrgen <ann@{d}>"}, check: named("Jürgen")},
		{name: "a domain in capitals", head: []string{"From: ann@{d}"}, from: "ann@{d}"},
		{name: "Sender is not the identity", head: []string{"Sender: boss@bank.test"}},
		{name: "two subjects: the lower one", head: []string{"Subject: On top\nSubject: Below"}, check: subject("Re: Below"), holds: []string{"Subject: Below"}, lacks: []string{"On top"}},
		{name: "two dates", head: []string{"Date: Sat, 21 Nov 2026 12:00:00 +0000\nDate: Sun, 22 Nov 2026 12:00:00 +0000"}},
		{name: "no date", head: []string{"-Date:"}},
		{name: "a date that cannot be read", head: []string{"Date: tomorrow"}},
		{name: "two To fields: the agent in the signed one", head: []string{"To: friend@example.test\nTo: echo@inbox.test"}, claims: []string{`"addressed":true`}},
		{name: "no To", head: []string{"-To:", "Cc: echo@inbox.test"}, claims: []string{`"addressed":true`}},
		{name: "a group in To", head: []string{"To: Agents: echo@inbox.test, helper@inbox.test;"}, claims: []string{`"addressed":true`}},
		{name: "undisclosed recipients", head: []string{"To: undisclosed-recipients:;"}, method: unproven, state: "silent"},
		{name: "a To was added to that of others", head: []string{"To: friend@example.test"}, alter: addedField("To: echo@inbox.test"), method: unproven, claims: []string{`"addressed":true`, `"uncovered":["to"]`}},
		{name: "a Resent-To was added", head: []string{"To: friend@example.test"}, alter: addedField("Resent-To: echo@inbox.test"), method: unproven, claims: []string{`"uncovered":["resent-to"]`}},
		{name: "no subject", head: []string{"-Subject:"}, text: "What time is it?"},
		{name: "a subject and no text", head: []string{"Subject: What time is it?"}, body: "\n", text: "What time is it?"},
		{name: "a subject in two encoded words", head: []string{"Subject: =?utf-8?q?Gr=C3=BC?=\n =?utf-8?q?=C3=9Fe?="}, holds: []string{"Subject: Grüße"}},
		{name: "a subject in ISO-2022-JP", head: []string{"Subject: =?iso-2022-jp?B?GyRCJDMkcyRLJEEkTxsoQg==?="}, holds: []string{"こんにちは"}},
		{name: "a subject of an unknown charset", head: []string{"Subject: =?x-klingon?q?qapla?="}},
		{name: "a subject with an encoded line end", head: []string{"Subject: =?utf-8?q?One=0D=0AX-Evil:_yes?="}, check: func(t *testing.T, _ operator.Shown, reply load.Received) {
			if reply.Header.Get("X-Evil") != "" {
				t.Error("a field was injected")
			}
		}},
		{name: "a subject of 900 bytes", head: []string{"Subject: " + strings.Repeat("long ", 180)}},
		{name: "a folded subject", head: []string{"Subject: One\n two\n\tthree"}, holds: []string{"Subject: One two three"}},
		{name: "no Message-ID", head: []string{"-Message-ID:"}, id: "digest", check: func(t *testing.T, _ operator.Shown, reply load.Received) {
			if reply.Header.Get("In-Reply-To") != "" {
				t.Errorf("the reply refers to %s", reply.Header.Get("In-Reply-To"))
			}
		}},
		{name: "a Message-ID without brackets", head: []string{"Message-ID: m@{d}"}, id: "digest"},
		{name: "a Message-ID with blanks", head: []string{"Message-ID: <a b@{d}>"}, id: "digest"},
		{name: "two ids in Message-ID", head: []string{"Message-ID: <a@{d}> <b@{d}>"}, id: "digest"},
		{name: "more than 1,000 fields", head: []string{repeated("X-Many: x", 1000)}, sign: nobody, code: malformed},
		{name: "more than 256 KiB of header", head: []string{repeated("X-Long: "+strings.Repeat("x", 900), 290)}, sign: nobody, code: malformed},
		{name: "a Unicode domain is shown in ASCII", head: []string{"From: Ann <ann@bücher.{d}>"}, sign: []string{"xn--bcher-kva.{d}"}, from: "ann@xn--bcher-kva.{d}", check: func(t *testing.T, shown operator.Shown, _ load.Received) {
			if got := shown.Turn.Message.Sender.Address.String(); !strings.HasPrefix(got, "@ann@xn--bcher-kva.") {
				t.Errorf("address %s", got)
			}
		}},
		{name: "results in our name", head: []string{"Authentication-Results: mx.inbox.test; dmarc=pass header.from=bank.test"}},
	}...)
}

// addedField puts a field on top of a signed mail.
func addedField(line string) func(*testing.T, *world, string, string) string {
	return func(_ *testing.T, _ *world, _, mail string) string { return line + "\r\n" + mail }
}
