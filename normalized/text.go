package normalized

import (
	"html"
	"strconv"
	"strings"
	"unicode"
)

// PlainText writes parts for a reader of plain text, with a blank line between them: markdown stays as it is, HTML loses
// its tags, files and links become a line each, a policy part its title, message and address. Tool calls and parts of
// unknown kinds are left out.
func PlainText(parts []Part) string { return joinParts(parts, plainPart) }

// MarkdownText writes parts as one markdown document: plain text is escaped, so that it reads as it was written, HTML
// is reduced to its text, images and links are marked up. The rest is as in PlainText.
func MarkdownText(parts []Part) string { return joinParts(parts, markdownPart) }

func joinParts(parts []Part, write func(*Part) string) string {
	pieces := make([]string, 0, len(parts))
	for i := range parts {
		if parts[i].blank() {
			continue
		}
		if piece := strings.Trim(write(&parts[i]), "\n"); strings.TrimSpace(piece) != "" {
			pieces = append(pieces, piece)
		}
	}
	return strings.Join(pieces, "\n\n")
}

func plainPart(p *Part) string {
	switch p.Kind {
	case PartText:
		if p.MIME == MIMEHTML {
			return htmlText(p.Content)
		}
		return p.Content
	case PartFile, PartArtifact:
		return lines(fileLine(p), bytesURL(p))
	case PartLink:
		return lines(p.Title, p.URL, p.Description)
	case PartPolicy:
		if p.Policy != nil {
			return p.Policy.Text("")
		}
	}
	return ""
}

func markdownPart(p *Part) string {
	switch p.Kind {
	case PartText:
		switch p.MIME {
		case MIMEMarkdown:
			return p.Content
		case MIMEHTML:
			return EscapeMarkdown(htmlText(p.Content))
		}
		return EscapeMarkdown(p.Content)
	case PartFile, PartArtifact:
		return markdownFile(p)
	case PartLink:
		return lines(markdownLink("", orElse(p.Title, p.URL), p.URL), EscapeMarkdown(p.Description))
	case PartPolicy:
		if p.Policy != nil {
			return EscapeMarkdown(p.Policy.Text(""))
		}
	}
	return ""
}

// fileLine describes a file: its name, type and size, then what it shows.
func fileLine(p *Part) string {
	facts := make([]string, 0, 2)
	if p.MIME != "" {
		facts = append(facts, p.MIME)
	}
	if p.Size > 0 {
		facts = append(facts, byteSize(p.Size))
	}
	line := "Attachment: " + orElse(p.Name, "file")
	if len(facts) > 0 {
		line += " (" + strings.Join(facts, ", ") + ")"
	}
	if about := orElse(p.Alt, p.Description); about != "" {
		line += ": " + about
	}
	return line
}

func markdownFile(p *Part) string {
	address := bytesURL(p)
	switch {
	case address == "":
		return EscapeMarkdown(fileLine(p))
	case strings.HasPrefix(p.MIME, "image/"):
		return markdownLink("!", orElse(p.Alt, orElse(p.Name, "image")), address)
	}
	return markdownLink("", orElse(p.Name, "file"), address)
}

// bytesURL gives the public address of a file's bytes, if it has one.
func bytesURL(p *Part) string {
	if p.BytesRef == nil {
		return ""
	}
	return p.BytesRef.URL
}

// markdownLink writes the address in angle brackets, where only these, backslashes and line ends need care.
func markdownLink(mark, text, address string) string {
	address = strings.NewReplacer("<", "%3C", ">", "%3E", `\`, "%5C", "\n", "", "\r", "", " ", "%20").Replace(address)
	return mark + "[" + strings.ReplaceAll(EscapeMarkdown(text), "\n", " ") + "](<" + address + ">)"
}

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

// lineMark finds the byte that gives a line its meaning only at its begin: #, -, +, =, > or the dot of a numbered list;
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

// isMark says whether a character would start markup. An underscore inside a word does not (CommonMark, section 6.2),
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

func afterClosing(source, name string) string {
	if at := strings.Index(strings.ToLower(source), "</"+name); at >= 0 {
		_, rest, _ := strings.Cut(source[at:], ">")
		return rest
	}
	return ""
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

func byteSize(size int64) string {
	const unit = 1 << 10
	switch {
	case size < unit:
		return strconv.FormatInt(size, 10) + " bytes"
	case size < unit*unit:
		return strconv.FormatInt((size+unit/2)/unit, 10) + " KiB"
	}
	return strconv.FormatFloat(float64(size)/(unit*unit), 'f', 1, 64) + " MiB"
}

func lines(list ...string) string {
	kept := make([]string, 0, len(list))
	for _, line := range list {
		if line != "" {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
