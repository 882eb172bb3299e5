package markup

import (
	"bytes"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"

	"inbox/internal/clip"
)

// addressLength returns how many bytes of a text that begins with http:// or https:// are a web address; 0 where it is none. The address ends
// at a blank, a bracket < > or a quotation mark, and punctuation at its end belongs to the sentence. It may end in _ or ~, as a token in
// base64url does.
func addressLength(text string) int {
	begin := len("https://")
	if len(text) < begin || !strings.EqualFold(text[:begin], "https://") {
		if begin--; len(text) < begin || !strings.EqualFold(text[:begin], "http://") {
			return 0
		}
	}

	rest := text[begin:]
	end := strings.IndexFunc(rest[:min(len(rest), maxAddress)], endsAddress)
	if end < 0 {
		end = len(clip.Bytes(rest, maxAddress))
	}

	open := brackets{}
	for _, c := range rest[:end] {
		open.count(c)
	}
	for end > 0 {
		last, width := utf8.DecodeLastRuneInString(rest[:end])
		if !strings.ContainsRune(".,;:!?'*|\\`", last) && !open.excess(last) {
			break
		}
		open.uncount(last)
		end -= width
	}

	if end == 0 || rest[0] == '/' || rest[0] == '?' || rest[0] == '#' {
		return 0
	}
	return begin + end
}

// linkable returns an address as a page can link it, without blanks and stray percent signs, and whether it has one of the schemes and
// leads to a host or a mailbox. Of another one it returns what readers may be shown; nothing for those that run a program, hold the content
// or name a place on the page.
func linkable(address string, schemes ...string) (clean string, links bool) {
	clean = strings.TrimSpace(address)
	if strings.ContainsAny(clean, " \t\r\n") {
		clean = strings.NewReplacer(" ", "%20", "\t", "", "\r", "", "\n", "").Replace(clean)
	}
	scheme, rest, _ := strings.Cut(clean, ":")
	scheme = strings.ToLower(scheme)
	if linked(clean, schemes...) {
		clean = scheme + ":" + escapePercent(rest)
		parsed, err := url.Parse(clean)
		if err == nil && parsed.Host+parsed.Opaque != "" {
			return clean, true
		}
	}

	switch strings.Map(letters, scheme) {
	case "javascript", "vbscript", "data", "cid", "blob":
		return "", false
	}
	if strings.HasPrefix(clean, "#") || len(clean) > maxAddress {
		return "", false
	}
	return clean, false
}

// letters keeps those of the alphabet: browsers read over other characters in the scheme of an address.
func letters(r rune) rune {
	if 'a' <= r && r <= 'z' {
		return r
	}
	return -1
}

// escapePercent writes a percent sign that begins no escape as one.
func escapePercent(address string) string {
	var out strings.Builder
	written := 0
	for i := range len(address) {
		if address[i] == '%' && (i+2 >= len(address) || !hexadecimal(address[i+1]) || !hexadecimal(address[i+2])) {
			out.WriteString(address[written:i] + "%25")
			written = i + 1
		}
	}
	return out.String() + address[written:]
}

func hexadecimal(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

func endsAddress(c rune) bool {
	if c >= utf8.RuneSelf {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !unicode.IsMark(c)
	}
	return c <= ' ' || c == 0x7f || c == '<' || c == '>' || c == '"'
}

// brackets counts pairs, by their opening.
type brackets map[rune]int

var pairs = map[rune]rune{')': '(', ']': '[', '}': '{'}

func (b brackets) count(c rune) {
	switch {
	case pairs[c] != 0:
		b[pairs[c]]--
	case c == '(' || c == '[' || c == '{':
		b[c]++
	}
}

func (b brackets) uncount(c rune) {
	switch {
	case pairs[c] != 0:
		b[pairs[c]]++
	case c == '(' || c == '[' || c == '{':
		b[c]--
	}
}

// excess reports whether a bracket at the end has no partner in the address.
func (b brackets) excess(c rune) bool {
	return pairs[c] != 0 && b[pairs[c]] < 0 || (c == '(' || c == '[' || c == '{') && b[c] > 0
}

// bareAddress makes links of addresses in Markdown, in place of the extension of goldmark, which takes _ and ~ off the end of an address
// (TestAddressesAreWhole).
type bareAddress struct{}

// Trigger implements parser.InlineParser. A blank stands for every white space and for the beginning of a line or of a mark's words. A
// semicolon is not among them: goldmark cuts the text of a line before a trigger at its end, and an entity there would be none.
func (bareAddress) Trigger() []byte { return []byte(beforeAddress) }

const beforeAddress = " \"'(*_~:,.>{|=-+"

// Parse implements parser.InlineParser.
func (bareAddress) Parse(parent ast.Node, block text.Reader, pc parser.Context) ast.Node {
	line, segment := block.PeekLine()
	before, skip := block.PrecendingCharacter(), 0
	if line[0]|0x20 != 'h' {
		before, skip = rune(line[0]), 1
	}
	if before < utf8.RuneSelf && wordASCII(byte(before)) || len(line) <= skip || line[skip]|0x20 != 'h' {
		return nil
	}
	content := string(line[skip:min(len(line), skip+maxAddress+8)])
	if pc.IsInLinkLabel() {
		content = content[:strayBracket(content)]
	}
	length := addressLength(content)
	if last := pc.LastDelimiter(); last != nil && skip == 0 && rune(last.Char) == before && (before == '_' || before == '~') {
		if around := strings.Repeat(string(before), last.Length); strings.HasSuffix(string(line[:length]), around) {
			length = addressLength(string(line[:length-len(around)])) // emphasis around an address ends behind it
		}
	} else if bytes.HasSuffix(line[skip:skip+length], []byte("~~")) && opensBefore(pc, '~', 2) {
		length = addressLength(string(line[skip : skip+length-len("~~")]))
	}
	if length == 0 {
		return nil
	}

	if skip > 0 {
		ast.MergeOrAppendTextSegment(parent, segment.WithStop(segment.Start+1))
	}
	// Within the words of a link it is no link itself, but its characters are no marks there either.
	block.Advance(skip + length)
	start := segment.Start + skip
	return ast.NewAutoLink(ast.AutoLinkURL, ast.NewTextSegment(text.NewSegment(start, start+length)))
}

// strayBracket returns where a text has an escaped bracket or a closing one without an opening one, or its length.
func strayBracket(text string) int {
	open := 0
	for i := range len(text) {
		switch text[i] {
		case '\\':
			if i+1 < len(text) && (text[i+1] == '[' || text[i+1] == ']') {
				return i
			}
		case '[':
			open++
		case ']':
			if open--; open < 0 {
				return i
			}
		}
	}
	return len(text)
}

// opensBefore reports whether words that a mark of some size began wait for their end.
func opensBefore(pc parser.Context, mark byte, size int) bool {
	for one, looked := pc.LastDelimiter(), 0; one != nil && looked < 8; one, looked = one.PreviousDelimiter, looked+1 {
		if one.Char == mark && one.CanOpen && one.Length >= size {
			return true
		}
	}
	return false
}

// taskBox reads the box of a task as GitHub does: a blank or the end of the line stands behind it. goldmark's own takes the words of a link.
type taskBox struct{ parser.InlineParser }

// Parse implements parser.InlineParser.
func (b taskBox) Parse(parent ast.Node, block text.Reader, pc parser.Context) ast.Node {
	if line, _ := block.PeekLine(); len(line) > len("[x]") && !blankAt(string(line), len("[x]")) && line[len("[x]")] != '\n' && line[len("[x]")] != '\r' {
		return nil
	}
	return b.InlineParser.Parse(parent, block, pc)
}

// asterisk reads a single * between two ASCII letters or digits as itself: 2*3*4 is a product, and its reader would see 234. So is ** before
// the number of a power, as in x**2, and both in the pattern of a path, as in /a/*.go.
type asterisk struct{}

// Trigger implements parser.InlineParser.
func (asterisk) Trigger() []byte { return []byte{'*'} }

// Parse implements parser.InlineParser.
func (asterisk) Parse(_ ast.Node, block text.Reader, pc parser.Context) ast.Node {
	line, segment := block.PeekLine()
	before := block.PrecendingCharacter()
	size := 1
	if len(line) > 1 && line[1] == '*' {
		size = 2
	}
	if len(line) <= size || before >= utf8.RuneSelf {
		return nil
	}
	switch next := line[size]; {
	case before == '/' && (next == '.' || next == '/') && !opensBefore(pc, '*', size):
	case !wordASCII(byte(before)) && before != ')' || size == 1 && before == ')':
		return nil
	case size == 1 && wordASCII(next):
	case size == 2 && power(line[size:], byte(before)) && !opensBefore(pc, '*', size):
	default:
		return nil
	}
	block.Advance(size)
	return ast.NewTextSegment(segment.WithStop(segment.Start + size))
}

// power reports whether a number follows ** that is not bold itself, as in H**2**O.
func power(text []byte, before byte) bool {
	rest := bytes.TrimLeft(text, "0123456789")
	return len(rest) < len(text) && (!bytes.HasPrefix(rest, []byte("**")) || '0' <= before && before <= '9')
}

func wordASCII(c byte) bool { return letter(c) || '0' <= c && c <= '9' }
