package message

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Bounds of a header, checked before anything is parsed.
const (
	maxHeaderBytes  = 256 << 10
	maxHeaderFields = 1000
	MaxIDBytes      = 998
	maxReferences   = 100 // read from one mail
)

var (
	errHeaderSize   = errors.New("the header is larger than 256 KiB")
	errHeaderFields = errors.New("the header has more than 1000 fields")
)

// Field is one header field as it came: raw includes the line end, value is what follows the colon, folded.
type Field struct {
	Name  string
	Raw   []byte
	value []byte
}

// Header is a header block in wire order. Where RFC 5322 allows one instance of a field, the lowest one counts:
// it is the one that a DKIM signature covers.
type Header []Field

// ErrDamaged means that a header has a line that is neither a field nor a continuation.
var ErrDamaged = errors.New("the header is damaged")

// Split cuts a message (or a MIME part) into its fields and its body. A line that is neither a field nor a continuation is an ErrDamaged: everything
// below it is read differently by different software. The fields above that line and all from it on are returned with the error.
func Split(message []byte) (Header, []byte, error) {
	var fields Header
	rest := message
	for len(rest) > 0 {
		line := cutField(rest)
		if len(message)-len(rest)+len(line) > maxHeaderBytes {
			return nil, nil, errHeaderSize
		}

		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			return fields, rest[len(line):], nil
		}

		one, err := parseField(line)
		if err != nil {
			return fields, rest, err
		}

		rest = rest[len(line):]
		if fields = append(fields, one); len(fields) > maxHeaderFields {
			return nil, nil, errHeaderFields
		}
	}

	return fields, nil, nil
}

// SplitTolerant splits a MIME part: a line that is no field ends its header and begins its body. The error is set when the header is too large.
func SplitTolerant(part []byte) (Header, []byte, error) {
	fields, body, err := Split(part)
	if errors.Is(err, ErrDamaged) {
		err = nil
	}
	return fields, body, err
}

// SplitEnclosed splits a mail within a mail, which may come from a mailbox file.
func SplitEnclosed(mail []byte) (Header, []byte, error) {
	return SplitTolerant(withoutMailboxLines(mail))
}

// Mend returns a damaged mail as Postfix passes it on, so that all software reads the same in it: without lines of a mailbox file at its top, and with
// an empty line above the first line of the header that is no field, which begins the body. A mail that names another From below that line stays
// ambiguous, because software that skips the line shows that one.
func Mend(mail []byte) ([]byte, error) {
	rest := withoutMailboxLines(mail)
	fields, body, err := Split(rest)
	if !errors.Is(err, ErrDamaged) {
		return rest, err
	}

	if namesFrom(body) {
		return nil, fmt.Errorf("%w, and there is a From field below it", err)
	}

	mended := make([]byte, 0, len(rest)+2)
	for _, one := range fields {
		mended = append(mended, one.Raw...)
	}
	return append(append(mended, "\r\n"...), body...), nil
}

// withoutMailboxLines cuts what separates the mails of a mailbox file, and what relays that do not know it make of it. A From field with a blank before
// its colon begins in the same way.
func withoutMailboxLines(mail []byte) []byte {
	for {
		words, is := bytes.CutPrefix(bytes.TrimLeft(mail, ">"), []byte("From "))
		if !is || bytes.HasPrefix(bytes.TrimLeft(words, " \t"), []byte(":")) {
			return mail
		}
		_, mail, _ = bytes.Cut(words, []byte("\n"))
	}
}

// namesFrom reports whether a line above the first empty one is a From field to any software. It looks at all lines, because other software may read
// any number of them as the header, and passes over blanks of all scripts and controls around the name, as functions that trim a text do.
func namesFrom(text []byte) bool {
	for line := range bytes.Lines(text) {
		name, _, colon := bytes.Cut(line, []byte(":"))
		switch {
		case len(bytes.TrimRight(line, "\r\n")) == 0:
			return false
		case colon && line[0] != ' ' && line[0] != '\t' && bytes.EqualFold(bytes.TrimFunc(name, notInName), []byte("From")):
			return true
		}
	}
	return false
}

// notInName is true for what no name of a field has; each byte that is not UTF-8 counts as a letter outside of ASCII.
func notInName(r rune) bool { return r <= ' ' || r >= 0x7f }

// cutField returns the first line with its continuation lines (RFC 5322, section 2.2.3).
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

func parseField(line []byte) (Field, error) {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 || line[0] == ' ' || line[0] == '\t' {
		return Field{}, fmt.Errorf("%w: the line %q is not a field", ErrDamaged, abridge(string(line)))
	}

	name := line[:colon]
	for _, b := range bytes.TrimRight(name, " \t") {
		if b <= ' ' || b >= 0x7f {
			return Field{}, fmt.Errorf("%w: the field name %q has forbidden characters", ErrDamaged, abridge(string(name)))
		}
	}

	return Field{Name: string(name), Raw: line, value: bytes.TrimRight(line[colon+1:], "\r\n")}, nil
}

func abridge(text string) string {
	if len(text) > 40 {
		text = text[:40] + "…"
	}
	return Clean(text, 60)
}

// Is compares names without case, and without the blanks before the colon that old software writes.
func (f *Field) Is(name string) bool {
	return len(f.Name) >= len(name) && strings.EqualFold(strings.TrimRight(f.Name, " \t"), name)
}

// All returns every instance of a field, top to bottom.
func (h Header) All(name string) []Field {
	var found []Field
	for i := range h {
		if h[i].Is(name) {
			found = append(found, h[i])
		}
	}
	return found
}

// Has reports whether there is such a field.
func (h Header) Has(name string) bool {
	return slices.ContainsFunc(h, func(f Field) bool { return f.Is(name) })
}

// Get returns the unfolded value of the lowest instance as UTF-8; encoded words stay encoded.
func (h Header) Get(name string) string {
	for i := len(h) - 1; i >= 0; i-- {
		if h[i].Is(name) {
			return h[i].Text()
		}
	}
	return ""
}

// Text unfolds the value and makes it UTF-8.
func (f Field) Text() string {
	value := f.value
	if bytes.IndexByte(value, '\n') >= 0 {
		value = bytes.ReplaceAll(bytes.ReplaceAll(value, []byte("\r\n"), nil), []byte("\n"), nil)
	}
	return strings.TrimSpace(UTF8(value))
}

// Decoded returns the value with encoded words resolved and everything removed that could forge a line or hide text.
func (h Header) Decoded(name string) string {
	return Clean(DecodeWords(h.Get(name)), 998)
}

// Clean makes one line of safe text in NFC: controls become a space, invisible and direction-changing runes vanish.
func Clean(text string, maxRunes int) string {
	var out strings.Builder
	space, count := false, 0
	for _, r := range norm.NFC.String(text) {
		if unicode.IsControl(r) || unicode.IsSpace(r) {
			space = true
			continue
		}

		if Invisible(r) {
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

// Invisible reports whether a rune shows nothing or turns the reading direction.
func Invisible(r rune) bool {
	switch {
	case r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x2069:
		return true
	case r == 0x061c, r == 0xfeff, r == 0x00ad, r >= 0xe0000 && r <= 0xe007f:
		return true
	}
	return false
}

// IsASCII reports whether a text has no byte above 0x7f.
func IsASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= 0x80 {
			return false
		}
	}
	return true
}

// Clip makes one clean line of at most the given bytes.
func Clip(text string, bytes int) string {
	text = Clean(text, bytes)
	if len(text) > bytes {
		text = strings.ToValidUTF8(text[:bytes], "")
	}
	return text
}

// SplitDamaged reads a header as far as it goes: what came back is often cut or damaged. go-message reads it whole or not at all
// (TestLibraryDropsFieldsAboveABadLine).
func SplitDamaged(text []byte) Header {
	fields, _, err := SplitEnclosed(firstFields(text[:min(len(text), maxHeaderBytes)]))
	if err != nil {
		return nil
	}
	return fields
}

// firstFields returns as many fields as one header may have.
func firstFields(text []byte) []byte {
	rest := text
	for count := 0; len(rest) > 0 && count < maxHeaderFields; count++ {
		rest = rest[len(cutField(rest)):]
	}
	return text[:len(text)-len(rest)]
}

// Without copies a mail without the fields that drop names.
func (h Header) Without(mail []byte, drop func(Field) bool) []byte {
	out := make([]byte, 0, len(mail))
	size := 0
	for _, f := range h {
		size += len(f.Raw)
		if !drop(f) {
			out = append(out, f.Raw...)
		}
	}
	return append(out, mail[size:]...)
}

// Body returns what follows the header and its empty line.
func (h Header) Body(mail []byte) []byte {
	for _, one := range h {
		mail = mail[len(one.Raw):]
	}
	return bytes.TrimPrefix(mail, []byte("\r\n"))
}

// ID returns the Message-ID without brackets, or "" when it is absent or malformed.
func ID(fields Header) string {
	ids := IDs(fields.Get("Message-ID"))
	if len(ids) != 1 {
		return ""
	}
	return ids[0]
}

// IDs reads a list of message ids (RFC 5322, section 3.6.4); what does not fit the syntax is dropped.
func IDs(value string) []string {
	var ids []string
	for len(ids) < maxReferences {
		start := strings.IndexByte(value, '<')
		if start < 0 {
			break
		}

		end := strings.IndexByte(value[start:], '>')
		if end < 0 {
			break
		}

		if id := value[start+1 : start+end]; ValidID(id) {
			ids = append(ids, id)
		}

		value = value[start+end+1:]
	}

	return ids
}

// ValidID reports whether a message id, without brackets, can be referred to.
func ValidID(id string) bool {
	at := strings.IndexByte(id, '@')
	if at <= 0 || at == len(id)-1 || len(id) > MaxIDBytes || strings.Count(id, "@") != 1 {
		return false
	}

	for i := range len(id) {
		if id[i] <= ' ' || id[i] >= 0x7f || id[i] == '<' || id[i] == '>' {
			return false
		}
	}

	return true
}

// BaseSubject cuts reply and forward prefixes of the common languages (RFC 5256, section 2.1, and habits).
func BaseSubject(subject string) string {
	for {
		subject = strings.Replace(subject, "：", ":", 1) // as East Asian programs write it
		prefix, rest, found := strings.Cut(subject, ":")
		name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(prefix)), "[")
		if !found || !replyPrefixes[name] {
			return strings.TrimSpace(subject)
		}
		subject = strings.TrimSpace(rest)
	}
}

var replyPrefixes = map[string]bool{
	"re": true, "aw": true, "sv": true, "vs": true, "antw": true, "odp": true, "r": true, "res": true, "ref": true, "rif": true, "回复": true, "答复": true, "返信": true,
}
