package email

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/unicode/norm"
)

// Bounds of a header, checked before anything is parsed.
const (
	maxHeaderBytes  = 256 << 10
	maxHeaderFields = 1000
	maxReceived     = 50 // hops, RFC 5321 section 6.3
)

var (
	errHeaderSize   = errors.New("the header is larger than 256 KiB")
	errHeaderFields = errors.New("the header has more than 1000 fields")
)

// field is one header field as it came: raw includes the line end, value is what stands behind the colon, folded.
type field struct {
	name  string
	raw   []byte
	value []byte
}

// header is a header block in wire order. Where RFC 5322 allows one instance of a field, the lowest one counts:
// it is the one that a DKIM signature covers.
type header []field

// splitHeader cuts a message (or a MIME part) into its fields and its body. A line that is neither a field nor a
// continuation is an error: everything behind it would be read differently by different software.
func splitHeader(message []byte) (header, []byte, error) {
	var fields header
	rest := message
	for len(rest) > 0 {
		line := cutField(rest)
		if len(message)-len(rest)+len(line) > maxHeaderBytes {
			return nil, nil, errHeaderSize
		}
		rest = rest[len(line):]
		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			return fields, rest, nil
		}
		one, err := parseField(line)
		if err != nil {
			return nil, nil, err
		}
		if fields = append(fields, one); len(fields) > maxHeaderFields {
			return nil, nil, errHeaderFields
		}
	}
	return fields, nil, nil
}

// cutField gives the first line with its continuation lines (RFC 5322, section 2.2.3).
func cutField(text []byte) []byte {
	end := 0
	for {
		i := bytes.IndexByte(text[end:], '\n')
		if i < 0 {
			return text
		}
		blank := len(bytes.TrimRight(text[end:end+i], "\r")) == 0
		end += i + 1
		if blank || end == len(text) || (text[end] != ' ' && text[end] != '\t') {
			return text[:end]
		}
	}
}

func parseField(line []byte) (field, error) {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 || line[0] == ' ' || line[0] == '\t' {
		return field{}, fmt.Errorf("header line %q is not a field", abridge(string(line)))
	}
	name := line[:colon]
	for _, b := range bytes.TrimRight(name, " \t") {
		if b <= ' ' || b >= 0x7f {
			return field{}, fmt.Errorf("header field name %q has forbidden characters", abridge(string(name)))
		}
	}
	return field{name: string(name), raw: line, value: bytes.TrimRight(line[colon+1:], "\r\n")}, nil
}

func abridge(text string) string {
	if len(text) > 40 {
		text = text[:40] + "…"
	}
	return cleanText(text, 60)
}

// is compares names without case, and without the blanks before the colon that old software writes.
func (f *field) is(name string) bool {
	return len(f.name) >= len(name) && strings.EqualFold(strings.TrimRight(f.name, " \t"), name)
}

// all gives every instance of a field, top to bottom.
func (h header) all(name string) []field {
	var found []field
	for i := range h {
		if h[i].is(name) {
			found = append(found, h[i])
		}
	}
	return found
}

func (h header) has(name string) bool {
	return slices.ContainsFunc(h, func(f field) bool { return f.is(name) })
}

// get gives the unfolded value of the lowest instance as UTF-8; encoded words stay encoded.
func (h header) get(name string) string {
	for i := len(h) - 1; i >= 0; i-- {
		if h[i].is(name) {
			return h[i].text()
		}
	}
	return ""
}

// text unfolds the value and makes it UTF-8.
func (f field) text() string {
	value := f.value
	if bytes.IndexByte(value, '\n') >= 0 {
		value = bytes.ReplaceAll(bytes.ReplaceAll(value, []byte("\r\n"), nil), []byte("\n"), nil)
	}
	return strings.TrimSpace(utf8Text(value))
}

// decoded gives the value with encoded words resolved and everything removed that could forge a line or hide text.
func (h header) decoded(name string) string {
	return cleanText(decodeWords(h.get(name)), 998)
}

// utf8Text reads 8-bit text without a declared charset: UTF-8 when it is valid, else Windows-1252.
func utf8Text(raw []byte) string {
	if utf8.Valid(raw) {
		return string(raw)
	}
	decoded, err := charmap.Windows1252.NewDecoder().Bytes(raw)
	if err != nil {
		return strings.ToValidUTF8(string(raw), "\uFFFD")
	}
	return string(decoded)
}

// cleanText makes one line of safe text in NFC: controls become a space, invisible and direction-changing runes vanish.
func cleanText(text string, maxRunes int) string {
	var out strings.Builder
	space, count := false, 0
	for _, r := range norm.NFC.String(text) {
		if unicode.IsControl(r) || unicode.IsSpace(r) {
			space = true
			continue
		}
		if invisible(r) {
			continue
		}
		if space && out.Len() > 0 {
			out.WriteByte(' ')
			count++
		}
		space = false
		if count++; count > maxRunes {
			break
		}
		out.WriteRune(r)
	}
	return strings.TrimSpace(out.String())
}

// invisible says whether a rune shows nothing or turns the reading direction.
func invisible(r rune) bool {
	switch {
	case r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x2069:
		return true
	case r == 0x061c, r == 0xfeff, r == 0x00ad, r >= 0xe0000 && r <= 0xe007f:
		return true
	}
	return false
}
