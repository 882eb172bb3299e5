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
