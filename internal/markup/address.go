package markup

import (
	"bytes"
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
	rest, is := strings.CutPrefix(text, "https://")
	if !is {
		if rest, is = strings.CutPrefix(text, "http://"); !is {
			return 0
		}
	}

	begin := len(text) - len(rest)
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

// Trigger implements parser.InlineParser. A blank stands for every white space and for the beginning of a line or of a mark's words.
func (bareAddress) Trigger() []byte { return []byte(" \"'(*_~:;,.>{|=-+") }

// Parse implements parser.InlineParser.
func (bareAddress) Parse(parent ast.Node, block text.Reader, pc parser.Context) ast.Node {
	if pc.IsInLinkLabel() {
		return nil
	}

	line, segment := block.PeekLine()
	before, skip := block.PrecendingCharacter(), 0
	if line[0] != 'h' {
		before, skip = rune(line[0]), 1
	}
	if before < utf8.RuneSelf && wordASCII(byte(before)) || !bytes.HasPrefix(line[skip:], []byte("http")) {
		return nil
	}
	length := addressLength(string(line[skip:min(len(line), skip+maxAddress+8)]))
	if before == '_' || before == '~' { // emphasis around an address ends behind it
		length = len(strings.TrimRight(string(line[skip:skip+length]), string(before)))
	}
	if length == 0 {
		return nil
	}

	if skip > 0 {
		ast.MergeOrAppendTextSegment(parent, segment.WithStop(segment.Start+1))
	}
	block.Advance(skip + length)
	start := segment.Start + skip
	return ast.NewAutoLink(ast.AutoLinkURL, ast.NewTextSegment(text.NewSegment(start, start+length)))
}

// asterisk reads a single * between two ASCII letters or digits as itself: 2*3*4 is a product, and its reader would see 234.
type asterisk struct{}

// Trigger implements parser.InlineParser.
func (asterisk) Trigger() []byte { return []byte{'*'} }

// Parse implements parser.InlineParser.
func (asterisk) Parse(_ ast.Node, block text.Reader, _ parser.Context) ast.Node {
	line, segment := block.PeekLine()
	before := block.PrecendingCharacter()
	if len(line) < 2 || before >= utf8.RuneSelf || !wordASCII(byte(before)) || !wordASCII(line[1]) {
		return nil
	}
	block.Advance(1)
	return ast.NewTextSegment(segment.WithStop(segment.Start + 1))
}

func wordASCII(c byte) bool { return letter(c) || '0' <= c && c <= '9' }
