package email

import (
	"encoding/binary"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"inbox/adapters/email/message"
	"inbox/normalized"
)

// readText decodes charset, flow and HTML.
func readText(e *message.Entity) string { return readOwn(e, true).text }

// readableText is what a text part says.
type readableText struct {
	text, mime string
	own        string            // what a client's HTML marks as the sender's own; empty = nothing was marked
	links      []normalized.Part // of HTML
}

func readOwn(e *message.Entity, forwarded bool) readableText {
	text := message.Decode(e.Decode(), e.Params["charset"])
	if e.Media == "text/html" {
		content, mime, own, links := readHTML(text, forwarded)
		return readableText{text: readable(content), mime: mime, own: readable(own), links: links}
	}
	if strings.EqualFold(e.Params["format"], "flowed") {
		text = unflow(text, strings.EqualFold(e.Params["delsp"], "yes"))
	}
	return readableText{text: readable(text), mime: normalized.MIMEPlain}
}

// readable makes line ends LF, letters NFC, and removes controls and runes that hide or turn text.
func readable(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	if harmless(text) {
		return strings.TrimSpace(text)
	}
	return norm.NFC.String(strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == 0x200d: // the joiner holds emoji together
			return r
		case unicode.IsControl(r) || message.Invisible(r):
			return -1
		}
		return r
	}, text)))
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

// unlike says whether one of eight bytes may be another than a printable one of ASCII.
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

// stub says whether a plain text part only points at the HTML part.
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
