package message

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestManyParts(t *testing.T) {
	walk := func(parts int) error {
		body := strings.Repeat("--x\r\nContent-Type: a/b\r\n\r\nz\r\n", parts)
		fields, rest, err := Split([]byte("Content-Type: multipart/mixed; boundary=x\r\n\r\n" + body))
		if err != nil {
			t.Fatal(err)
		}
		_, err = (&Parser{}).Parse(fields, rest, 0)
		return err
	}
	if err := walk(400); err != nil {
		t.Error(err)
	}
	if walk(maxParts+1) == nil {
		t.Error("too many parts are accepted")
	}
}

func TestDecodersNeverGrowAndRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOf(rapid.Byte()).Draw(t, "data")
		if got := decodeBase64([]byte(inLines(base64.StdEncoding.EncodeToString(data)))); !bytes.Equal(got, data) {
			t.Fatalf("base64 %x; want %x", got, data)
		}
		if len(decodeBase64(data)) > len(data) {
			t.Fatal("base64 grows")
		}
	})
}

// inLines cuts a text as encoders do.
func inLines(text string) string {
	var out strings.Builder
	for len(text) > 76 {
		out.WriteString(text[:76] + "\r\n")
		text = text[76:]
	}
	return out.String() + text + "\r\n"
}

// TestTypesThatCannotBeRead: what a part is shows in its bytes when its type does not say it.
func TestTypesThatCannotBeRead(t *testing.T) {
	for _, row := range []struct{ value, body, want string }{
		{"plain/text", "words", "text/plain"}, {"plain", "words", "text/plain"}, {"text", "words", "text/plain"}, {"html", "<p>x", "text/html"}, {"text/", "words", "text/plain"},
		{"text/plain charset=utf-8", "words", "text/plain"}, {"text/plain, charset=utf-8", "words", "text/plain"}, {"text plain", "words", "text/plain"}, {"utf-8", "words", "text/plain"},
		{"; charset=utf-8", "words", "text/plain"}, {"*/*", "words", "text/plain"}, {"html/text", "<html><p>words", "text/html"}, {"unknown/unknown", "words", "text/plain"}, {"charset=utf-8", "words", "text/plain"},
		{"body/text", "\x89PNG\r\n\x1a\n\x00\x01", "application/octet-stream"}, {"*/*", "\x00\x01\x02", "application/octet-stream"},
		{"application/octet-stream", "words", "application/octet-stream"}, {"application/x-own; a=b", "words", "application/x-own"}, {"x-own/y", "words", "x-own/y"},
		{"multipart/*; boundary=B", "--B\r\n\r\nwords\r\n--B--", "multipart/mixed"}, {"multipart; boundary=B", "--B\r\n\r\nwords\r\n--B--", "multipart/mixed"},
		{"multipart/mixed boundary=B", "--B\r\n\r\nwords\r\n--B--", "multipart/mixed"}, {"multipart/*", "words", "text/plain"},
	} {
		fields, body, err := Split([]byte("Content-Type: " + row.value + "\r\n\r\n" + row.body))
		if err != nil {
			t.Fatal(err)
		}
		root, err := new(Parser).Parse(fields, body, 0)
		if err != nil || root.Media != row.want || strings.HasPrefix(row.want, "multipart/") && len(root.Children) != 1 {
			t.Errorf("%q: %+v, %v; want %s", row.value, root, err, row.want)
		}
	}
}

// TestBase64ThatIsNone: programs set the field over what they never encoded, and others write below what is encoded.
func TestBase64ThatIsNone(t *testing.T) {
	long := inLines(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("Many words in one letter. ", 9))))
	for _, row := range []struct{ kind, body, want string }{
		{"text/plain; charset=utf-8", "Please send me the blue lamp.\r\nAnn\r\n", "Please send me the blue lamp.\r\nAnn\r\n"},
		{"text/plain; charset=utf-8", "Please send the lamp", "Please send the lamp"},
		{"text/plain; charset=iso-8859-1", "Gr\xfc\xdfe aus Wien, wie geht es dir?", "Gr\xfc\xdfe aus Wien, wie geht es dir?"},
		{"text/plain", "yes", "yes"}, {"text/plain", "Thanks", "Thanks"}, {"text/plain", "Thanks\r\nAnna\r\n", "Thanks\r\nAnna\r\n"},
		{"text/html", "<p>Please send the lamp</p>", "<p>Please send the lamp</p>"}, {"application/json", `{"words": "as they stand, not encoded"}`, `{"words": "as they stand, not encoded"}`},
		{"text/plain; charset=utf-8", long + "\r\n_______________\r\nUnsubscribe from this list: https://lists.example\r\n", strings.Repeat("Many words in one letter. ", 9) + "\r\n_______________\r\nUnsubscribe from this list: https://lists.example\r\n"},
		{"text/plain; charset=utf-8", long, strings.Repeat("Many words in one letter. ", 9)},
		{"text/plain; charset=utf-16le", "SABpAA==", "H\x00i\x00"}, {"text/plain; charset=utf-8", "SGVs!bG8g\r\n d29y bGQ=\r\n", "Hello world"}, {"text/plain", "SGk=", "Hi"}, {"text/plain", "SGkh", "Hi!"},
		{"text/plain; charset=shift_jis", "grGC8Q==", "\x82\xb1\x82\xf1"}, {"application/pdf", "JVBER i0xLjQ\r\n*KJ", "%PDF-1.4\n"},
	} {
		fields, body, err := Split([]byte("Content-Type: " + row.kind + "\r\nContent-Transfer-Encoding: base64\r\n\r\n" + row.body))
		if err != nil {
			t.Fatal(err)
		}
		root, err := new(Parser).Parse(fields, body, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(root.Decode()); strings.TrimSpace(got) != strings.TrimSpace(row.want) {
			t.Errorf("%s %.60q: %q; want %q", row.kind, row.body, got, row.want)
		}
	}
}
