package mailtable

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"inbox/e2e/load"
	"inbox/normalized"
	"inbox/operator"
)

// multi is a multipart with the parts, each "Header: x\nHeader: y\n\nbody".
func multi(boundary string, parts ...string) string {
	var out strings.Builder
	for _, part := range parts {
		out.WriteString("--" + boundary + "\n" + part + "\n")
	}
	return out.String() + "--" + boundary + "--\n"
}

func mixedHead(kind, boundary string) []string {
	return []string{"Content-Type: multipart/" + kind + "; boundary=" + boundary}
}

func part(media, body string, lines ...string) string {
	return strings.Join(append([]string{"Content-Type: " + media}, lines...), "\n") + "\n\n" + body
}

// nested is depth multiparts, one within the other, with a text inside.
func nested(depth int) (head, body string) {
	body = part("text/plain", "deep inside")
	for i := range depth {
		head = fmt.Sprintf("multipart/mixed; boundary=b%d", i)
		body = part(head, multi(fmt.Sprint("b", i), body))
	}
	_, body, _ = strings.Cut(body, "\n\n")
	return "Content-Type: " + head, body
}

const (
	plainPart = "text/plain; charset=utf-8"
	htmlPart  = "text/html; charset=utf-8"
	pixel     = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	invite    = "BEGIN:VCALENDAR\nMETHOD:REQUEST\nBEGIN:VEVENT\nUID:u1\nSUMMARY:Lunch\nDTSTART:20261123T120000Z\nORGANIZER;CN=Ann:mailto:ann@{d}\nEND:VEVENT\nEND:VCALENDAR"
)

// leadsTo looks for the first link part; no address may be there twice, and no more than 20.
func leadsTo(address, title string) func(*testing.T, operator.Shown, load.Received) {
	return func(t *testing.T, shown operator.Shown, _ load.Received) {
		t.Helper()
		seen := map[string]bool{}
		for _, part := range shown.Turn.Message.Parts {
			if part.Kind != normalized.PartLink {
				continue
			}
			if len(seen) == 0 && (part.URL != address || part.Title != title) || seen[part.URL] {
				t.Errorf("link %+v; want %s, %s", part, address, title)
			}
			seen[part.URL] = true
		}
		if len(seen) == 0 || len(seen) > 20 {
			t.Errorf("%d links", len(seen))
		}
	}
}

func manyLinks(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, `<p><a href="https://example.test/%d">link</a></p>`, i)
	}
	return out.String()
}

func manyFiles(n int) []string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = part("application/octet-stream", "AAEC", "Content-Transfer-Encoding: base64", fmt.Sprintf("Content-Disposition: attachment; filename=f%d.bin", i))
	}
	return parts
}

// structures is what MIME trees give: text, files, and refusals of those that would cost too much.
func structures() []row {
	deepHead, deepBody := nested(20)
	tooDeepHead, tooDeepBody := nested(21)
	many := make([]string, 499)
	for i := range many {
		many[i] = part(plainPart, fmt.Sprintf("part %d", i))
	}
	return append([]row{
		{name: "mixed: text and a file", head: mixedHead("mixed", "b"), body: multi("b", part(plainPart, "See the file."), part("application/pdf", "JVBERi0xLjQK", "Content-Transfer-Encoding: base64", "Content-Disposition: attachment; filename=report.pdf")), text: "See the file.", files: []string{"application/pdf report.pdf"}},
		{name: "alternative: the plain one", head: mixedHead("alternative", "b"), body: multi("b", part(plainPart, "plain words"), part(htmlPart, "<p>plain <b>words</b></p>")), text: "plain words", files: []string{}},
		{name: "alternative: the plain one, and HTML that says something else", head: mixedHead("alternative", "b"), body: multi("b", part(plainPart, "plain words"), part(htmlPart, "<p>rich words</p>")), text: "plain words", files: []string{"text/html "}},
		{name: "alternative: the plain one is empty", head: mixedHead("alternative", "b"), body: multi("b", part(plainPart, ""), part(htmlPart, "<p>rich words</p>")), text: "rich words"},
		{name: "alternative: the plain one is a stub", head: mixedHead("alternative", "b"), body: multi("b", part(plainPart, "Please view this mail in HTML format."), part(htmlPart, "<p>rich words</p>")), text: "rich words"},
		{name: "HTML alone", head: []string{"Content-Type: text/html"}, body: "<h1>Title</h1><p>A <b>strong</b> word and <a href=\"https://example.test/x\">a link</a></p>", holds: []string{"# Title", "**strong**", "[a link](https://example.test/x)"}, check: leadsTo("https://example.test/x", "a link")},
		{name: "HTML with a link that shows another place", head: []string{"Content-Type: text/html"}, body: `<p>Go to <a href="https://evil.test/x?a=b">https://bank.test</a> <a href="https://evil.test/x?a=b">again</a> or <a href="mailto:a@b.test">write</a></p>`, check: leadsTo("https://evil.test/x?a=b", "https://bank.test")},
		{name: "HTML with many links", head: []string{"Content-Type: text/html"}, body: manyLinks(50), check: leadsTo("https://example.test/0", "link")},
		{name: "many links beside many files", head: mixedHead("mixed", "b"), body: multi("b", append([]string{part(htmlPart, manyLinks(50))}, manyFiles(61)...)...), holds: []string{"1 more files were left out"}},
		{name: "related: an image by cid", head: mixedHead("related", "b"), body: multi("b", part(htmlPart, "<p>Look: <img src=\"cid:logo\" alt=\"the logo\"></p>"), part("image/png", pixel, "Content-Transfer-Encoding: base64", "Content-ID: <logo>", "Content-Disposition: inline; filename=logo.png")), holds: []string{"Look"}, files: []string{"image/png logo.png"}},
		{name: "related: the root is named by start", head: []string{`Content-Type: multipart/related; boundary=b; start="<root>"`}, body: multi("b", part("image/png", pixel, "Content-Transfer-Encoding: base64", "Content-ID: <logo>"), part(htmlPart, "<p>the root</p>", "Content-ID: <root>")), text: "the root"},
		{name: "an invitation", head: []string{"Content-Type: text/calendar; method=REQUEST"}, body: invite, holds: []string{"Invitation", "What: Lunch", "2026-11-23 12:00 UTC"}},
		{name: "an enclosed mail", head: mixedHead("mixed", "b"), body: multi("b", part(plainPart, "Please handle this:"), part("message/rfc822", "From: bo@example.test\nSubject: Inner\nContent-Type: text/plain\n\nThe inner request")), holds: []string{"Please handle this:", "Subject: Inner", "The inner request"}},
		{name: "digest", head: mixedHead("digest", "b"), body: multi("b", "\nFrom: bo@example.test\nSubject: One\n\nfirst", "\nFrom: bo@example.test\nSubject: Two\n\nsecond"), holds: []string{"Subject: One", "second"}},
		{name: "winmail.dat", head: mixedHead("mixed", "b"), body: multi("b", part(plainPart, "hello"), part("application/ms-tnef; name=winmail.dat", "eJ8+", "Content-Transfer-Encoding: base64")), text: "hello", files: []string{"application/ms-tnef winmail.dat"}},
		{name: "signed with S/MIME, detached", head: []string{`Content-Type: multipart/signed; protocol="application/pkcs7-signature"; boundary=b`}, body: multi("b", part(plainPart, "signed words"), part("application/pkcs7-signature; name=smime.p7s", "MIAG", "Content-Transfer-Encoding: base64")), text: "signed words", files: []string{"application/pkcs7-signature smime.p7s"}},
		{name: "signed with S/MIME, opaque", head: []string{"Content-Type: application/pkcs7-mime; smime-type=signed-data; name=smime.p7m", "Content-Transfer-Encoding: base64"}, body: "MIAG", holds: []string{"inside an S/MIME signature"}, files: []string{"application/pkcs7-mime smime.p7m"}},
		{name: "encrypted with S/MIME", head: []string{"Content-Type: application/pkcs7-mime; smime-type=enveloped-data; name=smime.p7m", "Content-Transfer-Encoding: base64"}, body: "MIAG", holds: []string{"encrypted (S/MIME)"}},
		{name: "signed with PGP", head: []string{`Content-Type: multipart/signed; protocol="application/pgp-signature"; boundary=b`}, body: multi("b", part(plainPart, "signed words"), part("application/pgp-signature; name=signature.asc", "-----BEGIN PGP SIGNATURE-----")), text: "signed words"},
		{name: "encrypted with PGP", head: []string{`Content-Type: multipart/encrypted; protocol="application/pgp-encrypted"; boundary=b`}, body: multi("b", part("application/pgp-encrypted", "Version: 1"), part("application/octet-stream", "-----BEGIN PGP MESSAGE-----")), holds: []string{"encrypted (OpenPGP)"}},
		{name: "PGP in the text", body: "-----BEGIN PGP MESSAGE-----\n\nabc\n-----END PGP MESSAGE-----", holds: []string{"encrypted (OpenPGP)"}},
		{name: "20 levels", head: []string{deepHead}, body: deepBody, text: "deep inside"},
		{name: "21 levels", head: []string{tooDeepHead}, body: tooDeepBody, code: malformed},
		{name: "500 parts", head: mixedHead("mixed", "b"), body: multi("b", many...), holds: []string{"part 0", "part 498"}},
		{name: "501 parts", head: mixedHead("mixed", "b"), body: multi("b", slices.Concat(many, []string{part(plainPart, "one more")})...), code: malformed},
		{name: "a boundary of 71 bytes is text", head: mixedHead("mixed", strings.Repeat("b", 71)), body: multi(strings.Repeat("b", 71), part(plainPart, "hello")), holds: []string{"hello"}},
		{name: "no boundary", head: []string{"Content-Type: multipart/mixed"}, body: "just words", holds: []string{"just words"}},
		{name: "no end of the multipart", head: mixedHead("mixed", "b"), body: "--b\nContent-Type: text/plain\n\ncut short", text: "cut short"},
		{name: "preamble and epilogue", head: mixedHead("mixed", "b"), body: "before\n" + multi("b", part(plainPart, "the words")) + "after", text: "the words", lacks: []string{"before", "after"}},
		{name: "a boundary within a boundary", head: mixedHead("mixed", "b"), body: multi("b", part("multipart/mixed; boundary=bb", multi("bb", part(plainPart, "inner"))), part(plainPart, "outer")), holds: []string{"inner", "outer"}},
		{name: "base64 with rubbish in it", head: []string{"Content-Transfer-Encoding: base64"}, body: "aGVs!!\nbG8g*\n\nd29ybGQ=", text: "hello world"},
		{name: "quoted-printable with rubbish in it", head: []string{"Content-Transfer-Encoding: quoted-printable"}, body: "50 =zz off=3D=\n good", text: "50 =zz off= good"},
		{name: "an unknown transfer encoding", head: []string{"Content-Transfer-Encoding: x-uuencode"}, body: "as it is", text: "as it is"},
		{name: "a Content-Type that cannot be read", head: []string{"Content-Type: text"}, body: "still words", text: "still words"},
		{name: "a file without text", head: []string{"Content-Type: image/png", "Content-Transfer-Encoding: base64", "Content-Disposition: attachment; filename=x.png"}, body: pixel, holds: []string{"A question"}, files: []string{"image/png x.png"}},
	}, files()...)
}

// files is how their names and types come out.
func files() []row {
	file := func(name, media, disposition, content, want string) row {
		return row{name: "file: " + name, head: mixedHead("mixed", "b"), body: multi("b", part(plainPart, "See."), part(media, content, "Content-Transfer-Encoding: base64", "Content-Disposition: "+disposition)), files: []string{want}}
	}
	const bytes = "AAECAwQF"
	return []row{
		file("a path", "application/octet-stream", `attachment; filename="../../etc/passwd"`, bytes, "application/octet-stream passwd"),
		file("a path of Windows", "application/octet-stream", `attachment; filename="C:\\x\\evil.bin"`, bytes, "application/octet-stream evil.bin"),
		file("a dot first", "application/octet-stream", `attachment; filename=".htaccess"`, bytes, "application/octet-stream htaccess"),
		file("RFC 2231", "application/octet-stream", "attachment; filename*=utf-8''%C3%BCber%20uns.bin", bytes, "application/octet-stream über uns.bin"),
		file("RFC 2231 in pieces", "application/octet-stream", "attachment; filename*0=\"one-\"; filename*1=\"two.bin\"", bytes, "application/octet-stream one-two.bin"),
		file("RFC 2231 in Latin 1", "application/octet-stream", "attachment; filename*=iso-8859-1''na%EFve.bin", bytes, "application/octet-stream naïve.bin"),
		file("blanks without quotes", "application/octet-stream", "attachment; filename=my file (1).bin", bytes, "application/octet-stream my file (1).bin"),
		file("an encoded word without quotes", "application/octet-stream", "attachment; filename==?utf-8?b?w7xiZXIuYmlu?=", bytes, "application/octet-stream über.bin"),
		file("twice", "application/octet-stream", "attachment; filename=a.bin; filename=b.bin", bytes, "application/octet-stream a.bin"),
		file("an encoded word", "application/octet-stream", `attachment; filename="=?utf-8?q?=C3=BCber.bin?="`, bytes, "application/octet-stream über.bin"),
		file("a turned reading direction", "application/octet-stream", "attachment; filename*=utf-8''gpj%E2%80%AEexe.bin", bytes, "application/octet-stream gpjexe.bin"),
		file("a line end", "application/octet-stream", "attachment; filename*=utf-8''a%0D%0Ab.bin", bytes, "application/octet-stream a b.bin"),
		file("only in Content-Type", `application/octet-stream; name="named.bin"`, "attachment", bytes, "application/octet-stream named.bin"),
		file("a picture without a type", "application/octet-stream", "attachment; filename=x.png", pixel, "image/png x.png"),
		file("a picture that is a program", "image/png", "attachment; filename=x.png", "TVqQAAMAAAAEAAAA//8AALgAAAA=", "application/octet-stream x.png"),
	}
}
