package text

import (
	"encoding/binary"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"inbox/adapters/email/message"
	"inbox/internal/lookalike"
	"inbox/normalized"
)

// readText decodes charset, flow and HTML.
func readText(e *message.Entity) string { return readOwn(e, true).text }

// readableText is what a text part says.
type readableText struct {
	text, mime string
	own        string            // what a client's HTML marks as the sender's own; empty = nothing was marked
	links      []normalized.Part // of HTML
	cut        bool              // the end of long HTML is missing
}

// sourceOf undoes the transfer encoding and the charset of a text.
func sourceOf(e *message.Entity) string {
	if charset := e.Params["charset"]; charset != "" || e.Media != "text/html" {
		return message.Decode(e.Decode(), charset)
	}
	return message.DecodeHTML(e.Decode())
}

func readOwn(e *message.Entity, forwarded bool) readableText {
	text := sourceOf(e)
	switch e.Media {
	case "text/html":
		content, mime, own, links := readHTML(text, forwarded)
		return readableText{text: Readable(content), mime: mime, own: Readable(own), links: links, cut: len(text) > maxHTMLBytes}
	case "text/markdown", "text/x-markdown", "text/x-web-markdown":
		return readableText{text: Readable(text), mime: normalized.MIMEMarkdown}
	}
	if strings.EqualFold(e.Params["format"], "flowed") {
		text = unflow(text, strings.EqualFold(e.Params["delsp"], "yes"))
	}
	return readableText{text: Readable(text), mime: normalized.MIMEPlain}
}

// Readable makes line ends LF, letters NFC, and removes controls and runes that hide or turn text.
func Readable(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	if harmless(text) {
		return strings.TrimSpace(text)
	}

	return norm.NFC.String(strings.TrimSpace(lookalike.BetweenFlags(text, shown)))
}

// shown removes what shows nothing. Emoji need their joiner, and words of Arabic letters or of India the non-joiner.
func shown(text string) string {
	const latinEnds = 0x24f
	previous := rune(0)
	return strings.Map(func(r rune) rune {
		kept := r == '\n' || r == '\t' || r == 0x200d || r == 0x200c && previous > latinEnds
		if !kept && (unicode.IsControl(r) || message.Invisible(r)) {
			return -1
		}
		previous = r
		return r
	}, text)
}

// harmless is the common case, and ten times cheaper to see than to rewrite. Eight bytes at a time are looked at, because
// this is asked of every text.
func harmless(text string) bool {
	for len(text) >= 8 {
		if odd := binary.LittleEndian.Uint64([]byte(text[:8])); unlike(odd) && !harmlessBytes(text[:8]) {
			return false
		}
		text = text[8:]
	}
	return harmlessBytes(text)
}

// unlike reports whether one of eight bytes may be another than a printable one of ASCII.
func unlike(eight uint64) bool {
	const high, blanks, deletes = 0x8080808080808080, 0x2020202020202020, 0x0101010101010101
	return (eight|(eight-blanks)|(eight+deletes))&high != 0
}

func harmlessBytes(text string) bool {
	for i := range len(text) {
		if c := text[i]; c >= 0x7f || (c < ' ' && c != '\n' && c != '\t') {
			return false
		}
	}
	return true
}

// stub reports whether a plain text part only points at the HTML part.
func stub(node *message.Entity) bool {
	text := readText(node)
	if strings.TrimSpace(text) == "" {
		return true
	}

	lower := strings.ToLower(text)
	if len(lower) > 300 || !strings.Contains(lower, "html") {
		return false
	}

	for _, sign := range []string{"view", "format", "support", "compatible", "anzeig", "client", "version"} {
		if strings.Contains(lower, sign) {
			return true
		}
	}

	return false
}

// unflow joins the lines of format=flowed text (RFC 3676). Lines are joined only at equal quote depth; the
// signature separator is never part of a paragraph.
func unflow(text string, deleteSpace bool) string {
	var out strings.Builder
	out.Grow(len(text))
	open, openDepth := false, 0 // the last line written ended in a soft break
	first := true
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		depth := len(line) - len(strings.TrimLeft(line, ">"))
		body := strings.TrimPrefix(line[depth:], " ") // space-stuffing
		signature := body == "-- "
		if joined := open && depth == openDepth && !signature; !joined {
			if !first {
				out.WriteByte('\n')
			}
			writeQuote(&out, depth)
		}

		first = false
		soft := strings.HasSuffix(body, " ") && !signature
		if soft && deleteSpace {
			body = strings.TrimSuffix(body, " ")
		}

		out.WriteString(body)
		open, openDepth = soft, depth
	}

	return out.String()
}

func writeQuote(out *strings.Builder, depth int) {
	if depth > 0 {
		out.WriteString(strings.Repeat(">", depth))
		out.WriteByte(' ')
	}
}

// Locale returns the language in which the sender reads: Accept-Language asks for it, Content-Language shows it
// (RFC 3282). It is "" when the mail names none.
func Locale(fields message.Header) string {
	for _, name := range []string{"Accept-Language", "Content-Language"} {
		if found := BestLanguage(fields.Get(name)); found != "" {
			return found
		}
	}
	return ""
}

// BestLanguage is the language of a list with the highest weight, the first of equals.
func BestLanguage(list string) string {
	best, weight := "", 0.0
	if len(list) > 1024 {
		return ""
	}

	for entry := range strings.SplitSeq(list, ",") {
		tag, parameters, _ := strings.Cut(entry, ";")
		if tag = languageTag(tag); tag != "" && quality(parameters) > weight {
			best, weight = tag, quality(parameters)
		}
	}

	return best
}

// quality reads "q=0.8"; without it the weight is 1 (RFC 9110, section 12.4.2).
func quality(parameters string) float64 {
	name, value, found := strings.Cut(strings.TrimSpace(parameters), "=")
	if !found || !strings.EqualFold(strings.TrimSpace(name), "q") {
		return 1
	}
	weight, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || !(weight >= 0 && weight <= 1) { // also no NaN
		return 0
	}
	return weight
}

// languageTag keeps what can be a BCP 47 tag of one language.
func languageTag(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "(") // comments
	text = strings.TrimSpace(text)
	switch strings.ToLower(text) {
	case "und", "mul", "zxx", "i-default": // undetermined, several, none, of no reader
		return ""
	}

	for _, c := range []byte(text) {
		if c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return ""
		}
	}

	if len(text) < 2 || len(text) > 35 {
		return ""
	}

	return text
}
