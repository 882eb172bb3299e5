package normalized

import (
	"html"
	"strings"
)

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
