package message

import (
	"mime"
	"net/mail"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestFieldsAreFolded lets the standard library read what is written: no line with encoded words is longer than 76 bytes,
// no line longer than 998, nothing is lost, and nothing can end the field early.
func TestFieldsAreFolded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := Clean(rapid.OneOf(rapid.String(), rapid.StringOfN(rapid.RuneFrom([]rune("日本é =?_\"\r\n<>@,😀a")), 0, 800, -1)).Draw(t, "text"), 800)
		name := DisplayName(Clean(text, maxDisplayName))
		raw := string(Fold("Subject", EncodeWords("Re: "+text))) + string(Fold("To", FormatAddress(name, "ann@sender.test")+", <bo@sender.test>"))
		for line := range strings.SplitSeq(raw, "\r\n") {
			if len(line) > 998 || strings.Contains(line, "=?utf-8?") && len(line) > 76 || !plainASCII(line) || line != "" && strings.TrimSpace(line) == "" {
				t.Fatalf("line %q", line)
			}
		}
		message, err := mail.ReadMessage(strings.NewReader(raw + "\r\n"))
		if err != nil || len(message.Header) != 2 {
			t.Fatalf("%v: %q", err, raw)
		}
		if got, err := new(mime.WordDecoder).DecodeHeader(message.Header.Get("Subject")); err != nil || got != strings.TrimSpace("Re: "+text) {
			t.Errorf("subject %q, %v; want %q", got, err, text)
		}
		people, err := message.Header.AddressList("To")
		if err != nil || len(people) != 2 || people[0].Name != name || people[0].Address != "ann@sender.test" {
			t.Errorf("%v, %v from %q; want %q", people, err, raw, name)
		}
	})
}
