package message

import (
	"bytes"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
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

	boundary := node.Params["boundary"]
	switch {
	case !strings.HasPrefix(node.Media, "multipart/"):
		return node, nil
	case boundary == "" || len(boundary) > maxBoundaryBytes:
		node.Media = "text/plain" // it cannot be taken apart: show what is there
		return node, nil
	}

	sections := splitMultipart(body, boundary)
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
	fields, body, err := Split(section)
	if errors.Is(err, errHeaderSize) || errors.Is(err, errHeaderFields) {
		return nil, err
	}
	if err != nil {
		fields, body = nil, section
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

// mediaOf reads what is no media type.
func mediaOf(media string) string {
	if media == "text" {
		return "text/plain" // very old mailers write no subtype
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

// Decode undoes the transfer encoding. Of a damaged encoding what can be read is returned.
func (e *Entity) Decode() []byte {
	switch strings.ToLower(strings.TrimSpace(e.Fields.Get("Content-Transfer-Encoding"))) {
	case "base64":
		return decodeBase64(e.Body)
	case "quoted-printable":
		return decodeQuotedPrintable(e.Body)
	}
	return e.Body
}

// decodeBase64 ignores everything outside the alphabet (RFC 2045, section 6.8) and reads across early padding.
func decodeBase64(text []byte) []byte {
	out := make([]byte, 0, len(text)*3/4)
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

	for _, c := range text {
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '+', c == '/':
			quad[filled] = c
			if filled++; filled == 4 {
				flush()
			}
		case c == '=':
			flush()
		}
	}

	flush()
	return out
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

// IsText reports whether a leaf is to be read rather than to be kept as a file.
func (e *Entity) IsText() bool {
	if e.Media != "text/plain" && e.Media != "text/html" {
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
