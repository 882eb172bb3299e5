package redact_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
)

// TestHostileTextsCostLittle: texts without spaces, in which every address could be read to the end of the text.
func TestHostileTextsCostLittle(t *testing.T) {
	r := redactor()
	for name, piece := range map[string]string{
		"paths": "/policy/a", "links": "https://inbox.test/policy/" + token + ",", "files": "https://inbox.test/v1/files/a,",
		"queries": "https://inbox.test/media/a?", "keys": "https://inbox.test/media/a?key=1&", "mailboxes": "a+abcdefghijklmnopqrstuvwxyz@inbox.test,",
		"breaks": "/policy/\n", "percent": "%2525252F", "gateway": "-3A__a", "base64": "aHR0cHM6Ly9pbmJveC50ZXN0L3BvbGlj", "quoted": "=3D=\n",
	} {
		text := strings.Repeat(piece, (128<<10)/len(piece))
		begin := time.Now()
		_, _ = r.Text(text), r.Holds([]byte(text))
		if took := time.Since(begin); took > 5*time.Second { // it was a minute where it was quadratic
			t.Errorf("%s: %v", name, took)
		}
	}
}

func TestGatewaysThatWriteAnotherWay(t *testing.T) {
	r := redactor()
	link := "https://inbox.test/policy/" + token
	second := strings.NewReplacer("-", "-2D", "_", "-5F", ":", "-3A", "/", "_").Replace(link)
	sophos := base64.StdEncoding.EncodeToString([]byte(link))
	for text, want := range map[string]string{
		"See https://urldefense.proofpoint.com/v2/url?u=" + second + "&d=DwMFAg&c=abc now":              "See [link removed] now",
		"See https://eu.protection.sophos.com?d=inbox.test&u=" + sophos + "&i=abc now":                  "See [link removed] now",
		"A name-3A__b and " + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("nothing ", 20))): "",
	} {
		if got := r.Text(text); got != want && (want != "" || got != text) {
			t.Errorf("%q\nbecame %q", text, got)
		}
	}
}

// TestPagesOfTheOperatorStay: the operator's own site is on the host of a mail domain.
func TestPagesOfTheOperatorStay(t *testing.T) {
	r := redactor()
	for _, text := range []string{"https://inbox.test/policy/privacy", "https://inbox.test/policy/cookies.html", "https://mail.inbox.test/policy/acceptable-use#a"} {
		if got := r.Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	if got := r.Text("https://inbox.test/policy/" + token[:30] + "\n\nBye"); strings.Contains(got, token[:12]) {
		t.Errorf("the piece of a link became %q", got)
	}
}

func TestHoldsReadsToTheEnd(t *testing.T) {
	r := redactor()
	link := "https://inbox.test/pol=\r\nicy/" + token[:20] + "=\r\n" + token[20:]
	for name, mail := range map[string]string{
		"after a control character": "Form feed \x0c here\r\n\r\n" + link,
		"after a long line":         strings.Repeat("x", 10_000) + "\r\n\r\n" + link,
	} {
		if !r.Holds([]byte(mail)) {
			t.Errorf("%s: the rest is not read", name)
		}
	}

	// UTF-16, in each order and with its mark or without, as a file and in the base64 of a mail. The mark is in the first piece alone.
	for name, order := range map[string]binary.AppendByteOrder{"little": binary.LittleEndian, "big": binary.BigEndian} {
		for mark, text := range map[string]string{
			"\ufeff": "\ufeff" + strings.Repeat("中", 600_000) + " https://inbox.test/policy/" + token, "": "Forwarded by a program that writes no mark:\n\nhttps://inbox.test/policy/" + token,
		} {
			var file []byte
			for _, unit := range utf16.Encode([]rune(text)) {
				file = order.AppendUint16(file, unit)
			}
			if holds, err := r.HoldsIn(bytes.NewReader(file)); err != nil || !holds {
				t.Errorf("UTF-16, %s endian, mark %q: %v %v", name, mark, holds, err)
			}
			if mail := "Content-Type: text/plain\r\n\r\n" + base64.StdEncoding.EncodeToString(file); mark == "" && !r.Holds([]byte(mail)) {
				t.Errorf("UTF-16, %s endian, in a mail", name)
			}
		}
	}

	// Base64 that is cut between two pieces of a stream.
	for shift := range 4 {
		head := strings.Repeat("x", 1<<20-8<<10-100+shift) + "\r\n\r\n"
		body := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("other text ", 2000) + "https://inbox.test/policy/" + token))
		if holds, err := r.HoldsIn(strings.NewReader(head + body)); err != nil || !holds {
			t.Errorf("shift %d: %v %v", shift, holds, err)
		}
	}
}
