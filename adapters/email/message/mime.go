package message

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of a MIME tree, checked while it is walked (nested multiparts cost quadratic time without them).
const (
	maxDepth         = 20
	maxParts         = 500
	maxBoundaryBytes = 70 // RFC 2046, section 5.1.1
)

var (
	errDepth = errors.New("the MIME structure is nested more than 20 deep")
	errParts = errors.New("the MIME structure has more than 500 parts")
)

// Entity is one node of a MIME tree: a multipart with children, or a leaf with its body still encoded.
type Entity struct {
	Fields   Header
	Media    string // lower-case type/subtype
	Params   map[string]string
	Children []*Entity
	Body     []byte
}

// Parser counts the parts of one mail over all levels.
type Parser struct{ parts int }

// Parse reads the structure below one header; depth is that of the part around it. What is broken inside becomes the body of its
// part: content is never dropped because its wrapping is damaged. The reader of go-message gives up instead, and copies what is in
// memory already (TestDamagedMailsAreReadAsFarAsTheyGo).
func (w *Parser) Parse(fields Header, body []byte, depth int) (*Entity, error) {
	return w.parse(fields, body, depth, "text/plain")
}

// parse reads one entity; fallback is the type of one that has none.
func (w *Parser) parse(fields Header, body []byte, depth int, fallback string) (*Entity, error) {
	if w.parts++; w.parts > maxParts {
		return nil, errParts
	}

	if depth > maxDepth {
		return nil, errDepth
	}

	node := &Entity{Fields: fields, Body: body}
	node.Media, node.Params = MediaType(fields.Get("Content-Type"), fallback)
	if !validMedia(node.Media) {
		node.Media = mediaOf(node.Media)
	}
	if !node.typed() {
		node.Media = node.sniffed()
	}

	boundary := node.Params["boundary"]
	switch {
	case !strings.HasPrefix(node.Media, "multipart/"):
		return node, nil
	case boundary == "" || len(boundary) > maxBoundaryBytes:
		node.Media = "text/plain" // it cannot be taken apart: show what is there
		return node, nil
	}

	sections := splitMultipart(body, boundary)
	if len(sections) == 0 && node.encoding() != "" { // no multipart may be encoded (RFC 2045, section 6.4), and some are
		sections = splitMultipart(node.Decode(), boundary)
	}
	childType := "text/plain"
	if node.Media == "multipart/digest" {
		childType = "message/rfc822"
	}

	for _, section := range sections {
		child, err := w.parseSection(section, depth+1, childType)
		if err != nil {
			return nil, err
		}
		node.Children = append(node.Children, child)
	}

	if len(node.Children) == 0 {
		node.Media = "text/plain" // no delimiter was found: show what is there
		return node, nil
	}

	node.Body = nil
	return node, nil
}

func (w *Parser) parseSection(section []byte, depth int, fallback string) (*Entity, error) {
	fields, body, err := SplitTolerant(section)
	if err != nil {
		return nil, err
	}
	return w.parse(fields, body, depth, fallback)
}

// splitMultipart returns the sections between the delimiter lines (RFC 2046, section 5.1.1). A missing end delimiter
// ends with the body. Preamble and epilogue are dropped.
func splitMultipart(body []byte, boundary string) [][]byte {
	delimiter := []byte("--" + boundary)
	var sections [][]byte
	start, inside := 0, false
	for at := 0; at <= len(body); {
		found, next, last := nextDelimiter(body, delimiter, at)
		if found < 0 {
			break
		}

		if inside {
			sections = append(sections, body[start:max(start, lineEndBefore(body, found))])
		}

		start, inside, at = next, !last, next
		if last || len(sections) > maxParts {
			return sections
		}
	}

	if inside {
		sections = append(sections, body[start:])
	}

	return sections
}

// nextDelimiter finds a delimiter line: the boundary at the start of a line, then nothing but white space.
func nextDelimiter(body, delimiter []byte, from int) (found, next int, last bool) {
	for at := from; ; {
		i := bytes.Index(body[at:], delimiter)
		if i < 0 {
			return -1, 0, false
		}

		i += at
		end := i + len(delimiter)
		lineEnd := bytes.IndexByte(body[end:], '\n')
		tail, after := body[end:], len(body)
		if lineEnd >= 0 {
			tail, after = body[end:end+lineEnd], end+lineEnd+1
		}

		rest, closing := bytes.CutPrefix(tail, []byte("--"))
		if (i == 0 || body[i-1] == '\n') && len(bytes.TrimSpace(rest)) == 0 {
			return i, after, closing
		}

		at = end
	}
}

// lineEndBefore leaves out the line end that belongs to the delimiter.
func lineEndBefore(body []byte, at int) int {
	if at > 0 && body[at-1] == '\n' {
		at--
		if at > 0 && body[at-1] == '\r' {
			at--
		}
	}
	return at
}

// mediaOf reads what is not a media type as its writer meant it.
func mediaOf(media string) string {
	switch kind, subtype, _ := strings.Cut(media, "/"); {
	case kind == "text" && strings.TrimSpace(subtype) == "html", media == "html":
		return "text/html"
	case kind == "text", media == "plain": // very old mailers write no subtype
		return "text/plain"
	case kind == "multipart":
		return "multipart/mixed" // RFC 2046, section 5.1.3
	}
	return "application/octet-stream"
}

// topLevelTypes are registered (RFC 9694). Nothing else says how a part is to be read.
var topLevelTypes = []string{"application", "text", "image", "audio", "video", "multipart", "message", "font", "model", "haptics", "example", "chemical"}

// typed reports whether Content-Type says what the part is, or is absent.
func (e *Entity) typed() bool {
	kind, _, _ := strings.Cut(e.Media, "/")
	if !slices.Contains(topLevelTypes, kind) && !strings.HasPrefix(kind, "x-") {
		return false
	}
	if e.Media != "application/octet-stream" {
		return true
	}
	value := strings.TrimSpace(e.Fields.Get("Content-Type"))
	return len(value) >= len(e.Media) && strings.EqualFold(value[:len(e.Media)], e.Media)
}

// maxSniffed is how much of a body shows what it is.
const maxSniffed = 512

// sniffed returns what a body looks like whose type cannot be read: text, HTML or bytes.
func (e *Entity) sniffed() string {
	body := e.Decode()
	found, _, _ := strings.Cut(http.DetectContentType(body[:min(len(body), maxSniffed)]), ";")
	if found == "text/plain" || found == "text/html" {
		return found
	}
	return "application/octet-stream"
}

// validMedia reports whether a text is type/subtype in the characters of RFC 6838, section 4.2.
func validMedia(media string) bool {
	kind, subtype, found := strings.Cut(media, "/")
	return found && mediaName(kind) && mediaName(subtype)
}

func mediaName(name string) bool {
	return name != "" && len(name) <= 127 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789!#$&-^_.+") == ""
}

// encoding returns base64, quoted-printable, or nothing for an encoding that leaves the body as it is.
func (e *Entity) encoding() string {
	value := e.Fields.Get("Content-Transfer-Encoding")
	if value == "" {
		return ""
	}
	switch FirstToken(value) {
	case "base64", "base-64", "b":
		return "base64"
	case "quoted-printable", "quotedprintable", "quoted_printable", "qp":
		return "quoted-printable"
	}
	return ""
}

// Decode undoes the transfer encoding. Of a damaged encoding what can be read is returned, and what was never encoded stays.
func (e *Entity) Decode() []byte {
	switch e.encoding() {
	case "base64":
		return e.fromBase64()
	case "quoted-printable":
		return decodeQuotedPrintable(e.Body)
	}
	return e.Body
}

// Shares of a body from which on it is not base64 with a few damaged places, but something else.
const (
	oddShare   = 20 // one character in 20 is not of the alphabet
	blankShare = 12 // one in 12 is a blank within a line; words of all languages have more
	longLine   = 40 // no word has as many letters
)

// fromBase64 decodes a body that claims to be base64. Programs set the field over plain words, and servers of lists append plain words below
// base64: both stay as they are.
func (e *Entity) fromBase64() []byte {
	decoded, odd, blanks := readBase64(e.Body)
	text := strings.HasPrefix(e.Media, "text/") || !e.typed()
	switch {
	case odd+blanks == 0 && (!text || encodedLines(e.Body) || !e.scrambled(decoded)):
		return decoded
	case odd+blanks == 0:
		return e.Body
	case !text:
		if odd*oddShare <= len(e.Body) && blanks*blankShare <= len(e.Body) {
			return decoded
		}
		if found := http.DetectContentType(decoded); found != "application/octet-stream" && !strings.HasPrefix(found, "text/") {
			return decoded
		}
		return e.Body
	}

	start := oddLine(e.Body)
	rest, _, _ := readBase64(e.Body[start:])
	if len(rest) == 0 || !e.scrambled(rest) {
		return decoded
	}
	if above, _, _ := readBase64(e.Body[:start]); len(above) > 0 && (encodedLines(e.Body[:start]) || !e.scrambled(above)) {
		return slices.Concat(above, []byte("\r\n"), e.Body[start:])
	}
	return e.Body
}

// encodedLines reports whether lines that have only letters of base64 are surely that, and not words.
func encodedLines(body []byte) bool {
	for line := range bytes.Lines(body) {
		if line = bytes.TrimSpace(line); len(line) >= longLine || bytes.HasSuffix(line, []byte("=")) {
			return true
		}
	}
	return false
}

// oddLine returns where the first line begins that is not base64.
func oddLine(body []byte) int {
	at := 0
	for line := range bytes.Lines(body) {
		if _, odd, blanks := readBase64(line); odd+blanks > 0 {
			return at
		}
		at += len(line)
	}
	return at
}

// scrambled reports whether bytes are not a text in the charset of the part: controls, and bytes that are no UTF-8 where it should be that.
func (e *Entity) scrambled(decoded []byte) bool {
	charset := charsetName(e.Params["charset"])
	if strings.HasPrefix(charset, "utf16") || strings.HasPrefix(charset, "utf32") || strings.HasPrefix(charset, "ucs") || bytes.HasPrefix(decoded, []byte("\xff\xfe")) || bytes.HasPrefix(decoded, []byte("\xfe\xff")) {
		return false
	}

	controls, broken := 0, 0
	for rest := decoded; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			broken++
		case r < ' ' && !strings.ContainsRune("\t\r\n\f\x0e\x0f\x1b", r), r == 0x7f:
			controls++
		}
		rest = rest[size:]
	}

	unicode := charset == "" || charset == "utf8" || charset == "usascii" || charset == "ascii"
	return controls*50 > len(decoded) || unicode && broken*5 > len(decoded)
}

func decodeBase64(text []byte) []byte {
	out, _, _ := readBase64(text)
	return out
}

// readBase64 ignores everything outside the alphabet (RFC 2045, section 6.8) and reads across early padding. odd counts the characters that are
// neither of the alphabet nor white space, blanks those between two letters of a line.
func readBase64(text []byte) (out []byte, odd, blanks int) {
	out = make([]byte, 0, len(text)*3/4)
	var quad [4]byte
	filled := 0
	flush := func() {
		if filled < 2 {
			filled = 0
			return
		}
		var decoded [3]byte
		n, _ := base64.RawStdEncoding.Decode(decoded[:], quad[:filled])
		out = append(out, decoded[:n]...)
		filled = 0
	}

	for i, c := range text {
		switch {
		case base64Letter(c):
			quad[filled] = c
			if filled++; filled == 4 {
				flush()
			}
		case c == '=':
			flush()
		case c == ' ':
			if i > 0 && i+1 < len(text) && base64Letter(text[i-1]) && base64Letter(text[i+1]) {
				blanks++
			}
		case c != '\r' && c != '\n' && c != '\t':
			odd++
		}
	}

	flush()
	return out, odd, blanks
}

// decodeQuotedPrintable keeps what is not a valid escape as it stands (RFC 2045, section 6.7, rule 5).
func decodeQuotedPrintable(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		line, rest, found := bytes.Cut(text, []byte("\n"))
		text = rest
		line = bytes.TrimRight(line, " \t\r")
		soft := bytes.HasSuffix(line, []byte("="))
		if soft {
			line = line[:len(line)-1]
		}

		out = appendUnescaped(out, line)
		if found && !soft {
			out = append(out, '\r', '\n')
		}
	}

	return out
}

func appendUnescaped(out, line []byte) []byte {
	for i := 0; i < len(line); i++ {
		if line[i] == '=' && i+2 < len(line)+0 {
			high, okHigh := unhex(line[i+1])
			low, okLow := unhex(line[i+2])
			if okHigh && okLow {
				out = append(out, high<<4|low)
				i += 2
				continue
			}
		}
		out = append(out, line[i])
	}
	return out
}

func unhex(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}

// InOrder returns the children with the root of multipart/related first, which start= may name (RFC 2387, section 3.2).
func (e *Entity) InOrder() []*Entity {
	start := strings.Trim(e.Params["start"], "<> ")
	if e.Media != "multipart/related" || start == "" {
		return e.Children
	}

	root := slices.IndexFunc(e.Children, func(child *Entity) bool { return strings.Trim(child.Fields.Get("Content-ID"), "<> ") == start })
	if root <= 0 {
		return e.Children
	}

	ordered := append([]*Entity{e.Children[root]}, e.Children[:root]...)
	return append(ordered, e.Children[root+1:]...)
}

// Holds reports whether the entity, or one below it, has the type.
func (e *Entity) Holds(media string) bool {
	if e.Media == media {
		return true
	}
	for _, child := range e.Children {
		if child.Holds(media) {
			return true
		}
	}
	return false
}

// Find returns the first leaf of a type that is no file; nil = there is none.
func (e *Entity) Find(media string) *Entity {
	if e.Media == media && !e.Attached() {
		return e
	}
	for _, child := range e.Children {
		if found := child.Find(media); found != nil {
			return found
		}
	}
	return nil
}

// Readable reports whether a leaf is of a type that is read as words.
func (e *Entity) Readable() bool {
	switch e.Media {
	case "text/plain", "text/html", "text/markdown", "text/x-markdown", "text/x-web-markdown":
		return true
	}
	return false
}

// IsText reports whether a leaf is to be read rather than to be kept as a file.
func (e *Entity) IsText() bool {
	if !e.Readable() || strings.HasSuffix(e.Media, "markdown") && e.Params["name"] != "" {
		return false
	}
	disposition, params := MediaType(e.Fields.Get("Content-Disposition"), "inline")
	return disposition != "attachment" && params["filename"] == ""
}

// Attached reports whether a leaf is marked as a file.
func (e *Entity) Attached() bool {
	disposition, _ := MediaType(e.Fields.Get("Content-Disposition"), "inline")
	return disposition == "attachment" && len(e.Children) == 0
}
