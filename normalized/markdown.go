package normalized

import (
	"html"
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

// htmlText reduces HTML to its text: blocks end lines, scripts and styles vanish. It serves agents' answers and
// fallbacks; hostile HTML is converted by the adapters, which know more.
func htmlText(source string) string {
	var b strings.Builder
	for source != "" {
		text, rest, found := strings.Cut(source, "<")
		b.WriteString(text)
		if !found {
			break
		}

		tag, after, closed := strings.Cut(rest, ">")
		if !closed {
			b.WriteString("<" + rest)
			break
		}

		name := tagName(tag)
		switch name {
		case "script", "style":
			after = afterClosing(after, name)
		case "br", "p", "/p", "div", "/div", "li", "tr", "/tr", "h1", "h2", "h3", "h4", "h5", "h6", "/h1", "/h2", "/h3", "/h4", "/h5", "/h6", "blockquote", "/blockquote", "pre", "/pre", "hr", "/ul", "/ol":
			b.WriteByte('\n')
		}

		source = after
	}

	return collapseLines(html.UnescapeString(b.String()))
}

func tagName(tag string) string {
	name := strings.TrimRight(tag, "/")
	if cut := strings.IndexAny(name, " \t\r\n"); cut >= 0 {
		name = name[:cut]
	}
	return strings.ToLower(name)
}

// afterClosing looks at each byte once: lowering the whole rest for every script would cost its square.
func afterClosing(source, name string) string {
	for rest := source; ; {
		_, after, found := strings.Cut(rest, "</")
		if !found {
			return ""
		}
		if len(after) >= len(name) && strings.EqualFold(after[:len(name)], name) {
			_, after, _ = strings.Cut(after, ">")
			return after
		}
		rest = after
	}
}

// collapseLines trims every line and keeps at most one empty line between two others.
func collapseLines(text string) string {
	var kept []string
	empty := true
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if line != "" || !empty {
			kept = append(kept, line)
		}
		empty = line == ""
	}
	return strings.TrimSpace(strings.Join(kept, "\n"))
}
