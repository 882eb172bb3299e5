package emailtest

import (
	"bytes"
	"crypto"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"
)

// Letter writes a mail; header lines come first, then a fixed set unless they are given.
func Letter(body string, lines ...string) string {
	given := strings.ToLower(strings.Join(lines, "\n"))
	for _, line := range []string{
		"From: Ann Sender <ann@sender.test>", "To: echo@inbox.test", "Subject: A question", "Message-ID: <m1@sender.test>",
		"Date: " + time.Now().Format(time.RFC1123Z), "MIME-Version: 1.0", "Content-Type: text/plain; charset=utf-8",
	} {
		name, _, _ := strings.Cut(line, ":")
		if !strings.Contains("\n"+given, "\n"+strings.ToLower(name)+":") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + strings.ReplaceAll(body, "\n", "\r\n") + "\r\n"
}

// Signed signs a mail as sender.test.
func Signed(t testing.TB, mail string) string {
	return SignedAs(t, mail, "sender.test", "s1", SenderKey())
}

// SignedAs signs a mail with the library.
func SignedAs(t testing.TB, mail, domain, selector string, key crypto.Signer) string {
	t.Helper()
	var out bytes.Buffer
	if err := dkim.Sign(&out, strings.NewReader(mail), &dkim.SignOptions{
		Domain: domain, Selector: selector, Signer: key, HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
	}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// InLines cuts base64 into lines as encoders do.
func InLines(text string) string {
	var out strings.Builder
	for len(text) > 76 {
		out.WriteString(text[:76] + "\n")
		text = text[76:]
	}
	return out.String() + text + "\n"
}

// Nested writes multiparts inside of each other.
func Nested(depth int) string {
	var mail strings.Builder
	for i := range depth {
		fmt.Fprintf(&mail, "Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n", i, i)
	}
	return mail.String() + "\r\nx"
}
