package redact

import (
	"encoding/base64"
	"encoding/hex"
	"html"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// view is a text as a reader understands it, with the place in the source of each of its bytes.
type view struct {
	text     string
	from, to []int // of each byte; nil = the text is the source
	blind    bool  // places are not kept: it is only asked whether there is a key
}

// source returns the piece of the source that a piece of the view came from.
func (v view) source(begin, end int) span {
	switch {
	case v.blind:
		return span{}
	case v.from == nil:
		return span{from: begin, to: end}
	}
	return span{from: v.from[begin], to: v.to[end-1]}
}

// step reads the piece of a text at a place: how long it is, and what it stands for. A length of 0 is a byte that stands for itself.
type step func(text string, at int) (length int, meaning string)

// apply returns the view with all pieces read, and whether that changed it. Next finds where the next piece may begin.
func (v view) apply(next func(string) int, read step) (view, bool) {
	var out []byte
	var from, to []int
	keep := func(begin, end int) {
		out = append(out, v.text[begin:end]...)
		if v.blind {
			return
		}
		if v.from != nil {
			from, to = append(from, v.from[begin:end]...), append(to, v.to[begin:end]...)
			return
		}
		for i := begin; i < end; i++ {
			from, to = append(from, i), append(to, i+1)
		}
	}

	kept := 0
	for at := 0; at < len(v.text); {
		ahead := next(v.text[at:])
		if ahead < 0 {
			break
		}
		at += ahead

		length, meaning := read(v.text, at)
		if length == 0 {
			at++
			continue
		}

		keep(kept, at)
		if !v.blind {
			s := v.source(at, at+length)
			for range len(meaning) {
				from, to = append(from, s.from), append(to, s.to)
			}
		}
		out = append(out, meaning...)
		at += length
		kept = at
	}

	if kept == 0 {
		return v, false
	}
	keep(kept, len(v.text))
	return view{string(out), from, to, v.blind}, true
}

// mark returns what finds one byte.
func mark(c byte) func(string) int {
	return func(text string) int { return strings.IndexByte(text, c) }
}

func anyOf(marks string) func(string) int {
	return func(text string) int { return strings.IndexAny(text, marks) }
}

// nextInvisible finds the next byte that may begin a character which dropInvisible leaves out.
func nextInvisible(text string) int {
	for i := 0; i < len(text); i++ {
		if text[i] < utf8.RuneSelf && i+8 <= len(text) && isASCII(text[i:i+8]) { // all that most texts have
			i += 7
			continue
		}
		switch text[i] {
		case 0xC2, 0xCD, 0xE1, 0xE2, 0xEF:
			return i
		}
	}
	return -1
}

// isASCII reports whether eight bytes are of ASCII.
func isASCII(t string) bool {
	return (t[0]|t[1]|t[2]|t[3]|t[4]|t[5]|t[6]|t[7])&utf8.RuneSelf == 0
}

// steps take off one encoding each.
var steps = []struct {
	next func(string) int
	read step
}{{mark('\\'), readBackslash}, {mark('&'), readEntity}, {mark('%'), readPercent}, {nextInvisible, dropInvisible}, {nextProofpoint, readProofpoint}, {anyOf("[({"), readDefanged}}

// rounds bounds how often one encoding stands inside of another.
const rounds = 4

// views returns a text in all the ways to read it: as it is, and with one encoding after the other taken off.
func views(seen view) []view {
	list := []view{seen}
	for range rounds {
		before := len(list)
		for _, one := range steps {
			if read, changed := seen.apply(one.next, one.read); changed {
				seen = read
				list = append(list, seen)
			}
		}
		if len(list) == before {
			break
		}
	}
	return list
}

// dropInvisible leaves out characters that no reader sees: zero widths, soft hyphens, marks of direction.
func dropInvisible(text string, at int) (int, string) {
	letter, length := utf8.DecodeRuneInString(text[at:])
	switch {
	case letter == 0xAD, letter == 0x34F, letter == 0x180E, letter == 0xFEFF, letter >= 0x200B && letter <= 0x200F,
		letter >= 0x202A && letter <= 0x202E, letter >= 0x2060 && letter <= 0x206F, letter >= 0xFE00 && letter <= 0xFE0F:
		return length, ""
	}
	return 0, ""
}

// readBackslash reads the escapes of JSON and of scripts, and those of Markdown.
func readBackslash(text string, at int) (int, string) {
	if text[at] != '\\' || at+1 == len(text) {
		return 0, ""
	}

	switch next := text[at+1]; {
	case next == 'u' && at+6 <= len(text):
		if code, err := strconv.ParseUint(text[at+2:at+6], 16, 16); err == nil {
			return 6, string(rune(code))
		}
	case next == 'x' && at+4 <= len(text):
		if code, err := strconv.ParseUint(text[at+2:at+4], 16, 8); err == nil {
			return 4, string(rune(code))
		}
	case next == 'n', next == 'r':
		return 2, "\n"
	case next == 't':
		return 2, "\t"
	case next < utf8.RuneSelf && !isAlphanumeric(next):
		return 2, text[at+1 : at+2]
	}
	return 0, ""
}

// maxEntity bounds a character reference of HTML.
const maxEntity = 32

// readEntity reads character references of HTML. Browsers do without the semicolon after a number, and after old names such as "&amp".
func readEntity(text string, at int) (int, string) {
	if text[at] != '&' {
		return 0, ""
	}
	end := at + 1
	if end < len(text) && text[end] == '#' {
		end++
		digits := "0123456789"
		if end < len(text) && lower(text[end]) == 'x' {
			end, digits = end+1, "0123456789abcdefABCDEF"
		}
		for end < min(len(text), at+maxEntity) && strings.IndexByte(digits, text[end]) >= 0 {
			end++
		}
	} else {
		for end < min(len(text), at+maxEntity) && isAlphanumeric(text[end]) {
			end++
		}
	}
	if end < len(text) && text[end] == ';' {
		end++
	}
	if meaning := html.UnescapeString(text[at:end]); meaning != text[at:end] {
		return end - at, meaning
	}
	return 0, ""
}

// readPercent reads percent encoding (RFC 3986, section 2.1).
func readPercent(text string, at int) (int, string) {
	if text[at] != '%' || at+3 > len(text) {
		return 0, ""
	}
	var code [1]byte
	if _, err := hex.Decode(code[:], []byte(text[at+1:at+3])); err != nil {
		return 0, ""
	}
	return 3, string(code[:])
}

// proofpointMark stands in an address as the second version of Proofpoint's gateway writes it: "https-3A__inbox.test_policy_…".
const proofpointMark = "-3A__"

func nextProofpoint(text string) int { return strings.Index(text, proofpointMark) }

// readProofpoint reads the rest of such an address: "_" is a slash, and "-" begins the code of a letter.
func readProofpoint(text string, at int) (int, string) {
	written, _, _ := strings.Cut(addressAt(text, at), "&")
	plain := strings.NewReplacer("_", "/", "-", "%").Replace(written)
	meaning, err := url.PathUnescape(plain)
	if err != nil {
		return 0, ""
	}
	return len(written), meaning
}

// readDefanged reads the marks that make an address no link, as people and gateways write them: "hxxps[:]//inbox[.]test".
func readDefanged(text string, at int) (int, string) {
	open := strings.IndexByte("[({", text[at])
	if open < 0 {
		return 0, ""
	}
	for _, mark := range []struct{ written, meaning string }{{".", "."}, {"dot", "."}, {":", ":"}, {"://", "://"}, {"/", "/"}} {
		end := at + 1 + len(mark.written)
		if end < len(text) && text[end] == "])}"[open] && strings.EqualFold(text[at+1:end], mark.written) {
			return end + 1 - at, mark.meaning
		}
	}
	return 0, ""
}

// maxTag bounds a tag of HTML that is left out.
const maxTag = 512

// joinLines leaves out what programs put inside of a long address: breaks of lines with the marks of a quotation, and tags of HTML.
func joinLines(text string, at int) (int, string) {
	end := at
	switch text[at] {
	case '<':
		tag := strings.IndexByte(text[at:min(len(text), at+maxTag)], '>')
		if tag < 2 || text[at+1] != '/' && text[at+1] != '!' && !isAlphanumeric(text[at+1]) {
			return 0, ""
		}
		return tag + 1, ""
	case '\r':
		end++
		if end == len(text) || text[end] != '\n' {
			return 0, ""
		}
	case '\n':
	default:
		return 0, ""
	}

	for end++; end < len(text) && strings.IndexByte(">| \t", text[end]) >= 0; {
		end++
	}
	return end - at, ""
}

// minWide is how many bytes are looked at to know UTF-16 without its mark.
const minWide = 64

// isWide reports whether a text begins like one of UTF-16 in either order: by its mark, or since each second byte of its first letters is zero.
func isWide(text string) bool {
	if strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") {
		return true
	}
	if len(text) < minWide {
		return false
	}
	zeros := [2]int{}
	for i := range minWide {
		if text[i] == 0 {
			zeros[i%2]++
		}
	}
	return zeros == [2]int{0, minWide / 2} || zeros == [2]int{minWide / 2, 0}
}

// narrow returns a text of UTF-16 with each of its ASCII letters as one byte. Keys have no others.
func narrow(text string) string { return strings.ReplaceAll(text, "\x00", "") }

// minBase64 is the shortest run of base64 that may hold an address.
const minBase64 = 20

// base64Blocks returns what a mail or a document writes in base64: runs that only the ends of lines part, joined and without padding.
func base64Blocks(text string) (blocks []string) {
	var block []byte
	for at := 0; at < len(text); {
		end := at
		for end < len(text) && (isAlphanumeric(text[end]) || text[end] == '+' || text[end] == '/') {
			end++
		}

		long := end-at >= minBase64
		if long {
			block = append(block, text[at:end]...)
			for end < len(text) && (text[end] == '=' || text[end] == '\r') {
				end++
			}
		}
		if long && end < len(text) && text[end] == '\n' {
			at = end + 1
			continue
		}
		if len(block) > 0 {
			blocks = append(blocks, string(block))
			block = block[:0]
		}
		at = end + 1
	}
	if len(block) > 0 {
		blocks = append(blocks, string(block))
	}
	return blocks
}

// encoded returns what stands in the encodings of a mail: quoted-printable, and each block of base64.
func encoded(text string) (list []string) {
	if decoded, changed := (view{text: text}).apply(mark('='), readQuoted); changed {
		list = append(list, decoded.text)
	}

	for i, block := range base64Blocks(text) {
		plain := []string{unbase64(block)}
		if i == 0 && strings.HasPrefix(text, block[:minBase64]) { // perhaps a piece of a stream, which begins anywhere
			for skip := range min(3, len(block)) {
				plain = append(plain, unbase64(block[skip+1:]))
			}
		}
		for _, one := range plain {
			if isWide(one) {
				one = narrow(one)
			}
			if strings.IndexByte(one, 0) < 0 { // else it is no text
				list = append(list, one)
			}
		}
	}
	return list
}

// shortestBase64 is how long at least an address with a token is in base64.
const shortestBase64 = 56

// nextBase64 returns the next run from a place on that is long enough for an address in base64; begin = end where there is none. It
// looks at one letter of so many, because the run has it.
func nextBase64(text string, from int) (begin, end int) {
	for last := from + shortestBase64 - 1; last < len(text); last = begin + shortestBase64 - 1 {
		for begin = last + 1; begin > from && isBase64(text[begin-1]); {
			begin--
		}
		if begin+shortestBase64-1 > last {
			continue
		}
		for end = last + 1; end < len(text) && isBase64(text[end]); {
			end++
		}
		return begin, end
	}
	return from, from
}

// isBase64 reports whether a byte is a letter of base64 of either alphabet (RFC 4648).
func isBase64(c byte) bool { return isToken(c) || c == '+' || c == '/' }

var base64Letters = strings.NewReplacer("-", "+", "_", "/")

// unbase64 reads base64 of either alphabet, with padding or without; empty for what is none.
func unbase64(text string) string {
	text = base64Letters.Replace(strings.TrimRight(text, "="))
	if len(text)%4 == 1 { // a letter that makes no byte
		text = text[:len(text)-1]
	}
	decoded, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return ""
	}
	return string(decoded)
}

// readQuoted reads quoted-printable (RFC 2045, section 6.7), also between what is none.
func readQuoted(text string, at int) (int, string) {
	switch rest := text[at+1:]; {
	case text[at] != '=':
		return 0, ""
	case strings.HasPrefix(rest, "\r\n"):
		return 3, ""
	case strings.HasPrefix(rest, "\n"):
		return 2, ""
	case len(rest) < 2:
		return 0, ""
	default:
		code, err := strconv.ParseUint(rest[:2], 16, 8)
		if err != nil {
			return 0, ""
		}
		return 3, string([]byte{byte(code)})
	}
}
