package normalized

import (
	"strings"
	"unicode"
)

// EscapeMarkdown writes plain text so that a markdown reader shows it unchanged: marks lose their meaning and line ends
// stay line ends.
func EscapeMarkdown(text string) string {
	if text == "" {
		return ""
	}

	written := strings.Split(text, "\n")
	for i, line := range written {
		written[i] = escapeLine(line)
		if i < len(written)-1 && line != "" && written[i+1] != "" {
			written[i] += "  "
		}
	}
	return strings.Join(written, "\n")
}

func escapeLine(line string) string {
	var b strings.Builder
	body := strings.TrimLeft(line, " \t")
	for range len(line) - len(body) {
		b.WriteString("&nbsp;") // four spaces would begin a code block
	}

	if begin := lineMark(body); begin >= 0 {
		b.WriteString(body[:begin])
		b.WriteByte('\\')
		b.WriteByte(body[begin])
		body = body[begin+1:]
	}

	var before rune
	for i, r := range body {
		if isMark(body, i, r, before) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
		if r != '_' { // a run of underscores stands between its neighbours
			before = r
		}
	}

	return b.String()
}

// lineMark finds the byte that makes the meaning of a line only at its begin: #, -, +, =, > or the dot of a numbered list;
// -1 when there is none.
func lineMark(line string) int {
	if line == "" {
		return -1
	}
	if strings.IndexByte("#-+=>~", line[0]) >= 0 {
		return 0
	}

	digits := len(line) - len(strings.TrimLeft(line, "0123456789"))
	if digits > 0 && digits < len(line) && (line[digits] == '.' || line[digits] == ')') {
		return digits
	}
	return -1
}

// isMark reports whether a character would start markup. An underscore inside a word does not (CommonMark, section 6.2),
// and escaping it would break addresses.
func isMark(line string, at int, r, before rune) bool {
	switch r {
	case '\\', '`', '*', '[', ']', '<', '>', '|', '~', '&', '!':
		return r != '!' || strings.HasPrefix(line[at+1:], "[")
	case '_':
		next := strings.TrimLeft(line[at:], "_")
		inside := (unicode.IsLetter(before) || unicode.IsDigit(before)) && next != "" && isWordStart(next)
		return !inside
	}
	return false
}

func isWordStart(text string) bool {
	for _, r := range text {
		return unicode.IsLetter(r) || unicode.IsDigit(r)
	}
	return false
}
