package message

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/emersion/go-message/charset"
	"golang.org/x/text/encoding/charmap"
)

// Decode makes UTF-8. A missing, unknown or wrong charset never loses text.
func Decode(raw []byte, label string) string {
	switch label = strings.ToLower(strings.TrimSpace(label)); label {
	case "", "us-ascii", "ascii":
		return UTF8(raw)
	case "utf-8", "utf8":
		if utf8.Valid(raw) {
			return string(raw)
		}
		return strings.ToValidUTF8(string(raw), "\uFFFD")
	}

	reader, err := charsetReader(label, bytes.NewReader(raw))
	if err != nil {
		return UTF8(raw)
	}

	var out bytes.Buffer
	if _, err := out.ReadFrom(reader); err != nil {
		return UTF8(raw)
	}

	return strings.ToValidUTF8(out.String(), "\uFFFD")
}

// charsetReader converts to UTF-8. UTF-7 is missing on purpose: it is obsolete, and a way past every filter.
func charsetReader(label string, input io.Reader) (io.Reader, error) {
	if strings.EqualFold(label, "cp932") {
		label = "shift_jis" // Outlook in Japan; the tables do not know its name
	}
	return charset.Reader(label, input)
}

// UTF8 reads 8-bit text without a declared charset: UTF-8 when it is valid, else Windows-1252.
func UTF8(raw []byte) string {
	if utf8.Valid(raw) {
		return string(raw)
	}
	decoded, err := charmap.Windows1252.NewDecoder().Bytes(raw)
	if err != nil {
		return strings.ToValidUTF8(string(raw), "\uFFFD")
	}
	return string(decoded)
}
