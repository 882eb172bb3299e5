package message

import (
	"encoding/base64"
	"net/mail"
	"strings"
	"unicode/utf8"
)

// Lengths of what is written. Lines with encoded words have at most 76 bytes (RFC 2047, section 2); 78 are recommended for
// others, and 998 is the most (RFC 5322, section 2.1.1), which one word of ours never reaches.
const (
	foldedLine  = 76
	writtenWord = 63 // bytes of an encoded word: it fits behind the longest names of fields
)

// Fold writes a field with its line end. Lines are cut before blanks only, so that unfolding restores the value;
// what could end a line early becomes a blank.
func Fold(name, value string) []byte {
	out := append(make([]byte, 0, len(name)+len(value)+16), name...)
	out = append(out, ':')
	width := len(out)
	for word := range strings.FieldsFuncSeq(value, endsWord) {
		if width+1+len(word) > foldedLine && width > len(name)+1 {
			out = append(out, '\r', '\n')
			width = 0
		}
		out = append(append(out, ' '), word...)
		width += 1 + len(word)
	}

	return append(out, '\r', '\n')
}

func endsWord(r rune) bool { return r <= ' ' || r == 0x7f }

// EncodeWords makes a text ASCII (RFC 2047) where it is not, or could be taken for an encoded word. The words hold only what
// may also stand in a display name. go-message would write a text that could be taken for an encoded word as it is
// (TestLibraryWritesFieldsThatReadOtherwise).
func EncodeWords(text string) string {
	if plainASCII(text) && !strings.Contains(text, "=?") {
		return text
	}

	text = strings.ToValidUTF8(text, "\uFFFD")
	code, room := byte('q'), writtenWord-len("=?utf-8?q??=")
	if base64.StdEncoding.EncodedLen(len(text)) < widthQ(text) {
		code = 'b'
	}

	var out strings.Builder
	for text != "" {
		end := wordEnd(text, code, room)
		if out.Len() > 0 {
			out.WriteByte(' ')
		}

		out.WriteString("=?utf-8?" + string(code) + "?")
		if code == 'b' {
			out.WriteString(base64.StdEncoding.EncodeToString([]byte(text[:end])))
		} else {
			writeQ(&out, text[:end])
		}

		out.WriteString("?=")
		text = text[end:]
	}

	return out.String()
}

// wordEnd returns how much of a text one word holds: whole letters only (RFC 2047, section 5).
func wordEnd(text string, code byte, room int) (end int) {
	used := 0
	for end < len(text) {
		_, size := utf8.DecodeRuneInString(text[end:])
		width := base64.StdEncoding.EncodedLen(end + size)
		if code == 'q' {
			used += widthQ(text[end : end+size])
			width = used
		}

		if width > room && end > 0 {
			return end
		}

		end += size
	}

	return end
}

func plainASCII(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] >= 0x7f {
			return false
		}
	}
	return true
}

// bareQ reports whether a byte stands for itself in an encoded word that is part of a phrase (RFC 2047, section 5, rule 3).
func bareQ(c byte) bool { return letterOrDigit(c) || strings.IndexByte("!*+-/", c) >= 0 }

func widthQ(text string) (width int) {
	for i := range len(text) {
		if width += 3; bareQ(text[i]) || text[i] == ' ' {
			width -= 2
		}
	}
	return width
}

func writeQ(out *strings.Builder, text string) {
	const digits = "0123456789ABCDEF"
	for i := range len(text) {
		switch c := text[i]; {
		case c == ' ':
			out.WriteByte('_')
		case bareQ(c):
			out.WriteByte(c)
		default:
			out.Write([]byte{'=', digits[c>>4], digits[c&15]})
		}
	}
}

func letterOrDigit(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// FormatAddress writes an address with its display name, which may be empty.
func FormatAddress(name, address string) string {
	if name == "" {
		return "<" + WirePath(address) + ">"
	}
	if encoded := EncodeWords(name); encoded != name {
		return encoded + " <" + WirePath(address) + ">"
	}
	return (&mail.Address{Name: name, Address: address}).String()
}
