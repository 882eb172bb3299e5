package llm

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"inbox/identity"
	"inbox/internal/capability"
	"inbox/internal/clip"
	"inbox/normalized"
)

// marker writes the marks that say what a text of a prompt is and by whom. Every mark has a code: a keyed hash of the conversation, of
// the message that the text is from, and of mark and text. A sender cannot compute it, and a text that has its own code in it would have
// another code, so no text ends its mark or begins one of the server's. The same text has the same code in every run, so that the caches
// of providers keep the prompt (decision 0162).
type marker struct {
	key    []byte
	thread string
	own    string // domain of this server
}

// marker returns the one of a turn's conversation.
func (a *Agent) marker(message *normalized.Message) marker {
	recipient, _ := identity.ParseAddress(message.Recipient) // an address of this server
	return marker{key: a.options.Secret, thread: message.Recipient + "\n" + message.ThreadID, own: recipient.Domain}
}

// text puts words of others between marks. The id is that of the message that they are from; attributes begin with a blank.
func (m marker) text(mark, id, attributes, words string) string {
	return m.around(mark, id, attributes, disarm(words))
}

// around puts text whose inner marks are the server's own between marks.
func (m marker) around(mark, id, attributes, text string) string {
	name := mark + "-" + capability.Mint(m.key, capability.Claim{
		Purpose: "prompt-mark", Who: m.thread, What: strings.Join([]string{mark, id, attributes, text}, "\x00"), Form: capability.Short,
	})
	return "<" + name + attributes + ">\n" + text + "\n</" + name + ">"
}

// by returns the attributes that name a speaker and what proves that it is them. Evidence of this server names no issuer.
func (m marker) by(sender *normalized.Sender) string {
	attributes := " from=" + label(sender.Address.String())
	proof := sender.Speaker()
	if proof == nil {
		return attributes + " unproven"
	}
	attributes += " proven=" + label(proof.Subject)
	if proof.Issuer != m.own {
		attributes += " by=" + label(proof.Issuer)
	}
	return attributes
}

// label writes an address or a name of evidence so that two different ones never look the same: what does not print is escaped, and so
// is what could end the label or a mark.
func label(text string) string {
	var escaped strings.Builder
	for _, char := range strconv.Quote(text) {
		if char == '>' || strings.ContainsRune(angleSigns, char) {
			fmt.Fprintf(&escaped, `\u%04x`, char)
		} else {
			escaped.WriteRune(char)
		}
	}
	return escaped.String()
}

// angleSigns begin what looks like a mark.
const angleSigns = "<\uFF1C\uFE64\u2039\u2329\u276C\u276E\u2770\u27E8\u3008\u300A"

// markWords follow them, after blanks, invisible letters and slashes. The words of the summarizer are common in code; they count with a code
// only.
var markWords = regexp.MustCompile(`^(?i)(?:(?:message|request|context|file|missing|conversation|summary)\b|(?:user|assistant|call|result)-[a-z2-7]{16})`)

// longestWord is more than markWords need to match.
const longestWord = 40

func isGap(char rune) bool {
	return unicode.IsSpace(char) || isUnseen(char) || unicode.Is(unicode.Z, char) || strings.ContainsRune("/\u2044\u2215\u29F8\uFF0F", char)
}

// isUnseen reports whether a letter is written without a width of its own, also inside of a word. Some letters are drawn as nothing.
func isUnseen(char rune) bool {
	return unicode.In(char, unicode.C, unicode.Mn) && !unicode.IsSpace(char) || strings.ContainsRune("\u115F\u1160\u2800\u3164\uFFA0", char)
}

// seen returns the beginning of a text without letters that are not seen.
func seen(text string) string {
	var word strings.Builder
	for _, char := range text[:min(len(text), 1<<10)] {
		if word.Len() >= longestWord {
			break
		}
		if !isUnseen(char) {
			word.WriteRune(char)
		}
	}
	return word.String()
}

// disarm keeps a text from looking like a mark. The codes hold for a reader who compares them; models only read.
func disarm(text string) string {
	at := strings.IndexAny(text, angleSigns)
	if at < 0 {
		return text
	}

	var disarmed strings.Builder
	for ; at >= 0; at = strings.IndexAny(text, angleSigns) {
		_, size := utf8.DecodeRuneInString(text[at:])
		word := strings.TrimLeftFunc(text[at+size:], isGap)
		disarmed.WriteString(text[:at])
		if markWords.MatchString(word[:min(len(word), longestWord)]) || markWords.MatchString(seen(word)) {
			disarmed.WriteString("&lt;")
		} else {
			disarmed.WriteString(text[at : at+size])
		}
		text = text[at+size:]
	}
	disarmed.WriteString(text)
	return disarmed.String()
}

// ownMark matches the marks that the server wrote; no text has one, because it was disarmed.
var ownMark = regexp.MustCompile(`<(/?)([a-z]+-[a-z2-7]{16})[^>\n]*>`)

// piecesOf cuts a text with marks into pieces of about size bytes. A mark that is open where the text is cut is closed there, and opened
// again in the next piece, so that every piece says who speaks.
func piecesOf(text string, size int) (pieces []string) {
	for len(text) > size {
		end := cutAt(text, size)
		begin, closing := openAt(text[:end])
		if begin != "" && strings.HasPrefix(text[end:], closing[1:]) { // nothing of it is left
			end, begin, closing = end+len(closing)-1, "", ""
		}
		if len(begin) > size/4 {
			begin, closing = "", ""
		}
		pieces = append(pieces, text[:end]+closing)
		text = begin + text[end:]
	}
	return append(pieces, text)
}

// cutAt returns where a text is cut: after a line, or between two characters of a long one.
func cutAt(text string, size int) int {
	if line := strings.LastIndexByte(text[:size], '\n') + 1; line > size/2 {
		return line
	}
	return len(clip.Bytes(text, size))
}

// openAt returns the mark that is open at the end of a text, as it begins and as it ends; empty = none is.
func openAt(text string) (begin, end string) {
	for _, found := range ownMark.FindAllStringSubmatch(text, -1) {
		if begin, end = found[0]+"\n", "\n</"+found[2]+">"; found[1] != "" {
			begin, end = "", ""
		}
	}
	return begin, end
}
