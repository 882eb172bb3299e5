package normalized

import "strings"

// JoinMarkdown writes texts in Markdown as one, in which each says what it says alone: code and comments that a text leaves open end with it,
// and its last list does not go on in the next text.
func JoinMarkdown(texts []string) string {
	var out strings.Builder
	for i, text := range texts {
		out.WriteString(text)
		if i+1 < len(texts) {
			out.WriteString(closing(text) + "\n\n")
			if inList(lastLine(text)) && inList(firstLine(texts[i+1])) {
				out.WriteString("<!-- -->\n\n") // a comment ends a list
			}
		}
	}
	return out.String()
}

// closing returns what ends the block that the end of a text leaves open (CommonMark 0.31, sections 4.5 and 4.6).
func closing(text string) string {
	fence, indent := "", 0 // of the code that is open: its marks, and the columns before it
	ending := ""           // of the HTML that is open
	item := 0              // the column of the words of the item that is open
	for line := range strings.SplitSeq(text, "\n") {
		words := strings.TrimLeft(line, " ")
		column := len(line) - len(words)
		blank := strings.TrimSpace(words) == ""
		switch {
		case ending != "":
			if strings.Contains(strings.ToLower(line), ending) {
				ending = ""
			}
			continue
		case fence != "" && (blank || column >= indent):
			if column < indent+4 && endsFence(words, fence) {
				fence = ""
			}
			continue
		case blank:
			continue
		}

		fence, indent = "", 0 // the item around the code has ended
		if column < item {
			item = 0
		}
		for width := markerWidth(words); width > 0; width = markerWidth(words) {
			inner := strings.TrimLeft(words[width:], " ")
			column += len(words) - len(inner)
			words, item = inner, column
		}
		if column < item+4 {
			fence, indent, ending = opensFence(words), item, opensHTML(words)
		}
	}

	switch {
	case fence != "":
		return "\n" + strings.Repeat(" ", indent) + fence
	case ending != "":
		return "\n" + ending
	}
	return ""
}

// markerWidth returns how many bytes the mark of an item and its blank have at the beginning of a line; 0 = there is none.
func markerWidth(line string) int {
	digits := len(line) - len(strings.TrimLeft(line, "0123456789"))
	at := digits
	if at == len(line) || digits > 9 || digits > 0 && line[at] != '.' && line[at] != ')' || digits == 0 && strings.IndexByte("-+*", line[at]) < 0 {
		return 0
	}
	if at+1 < len(line) && line[at+1] == ' ' {
		return at + 2
	}
	return 0
}

func opensFence(line string) string {
	for _, mark := range []string{"`", "~"} {
		info := strings.TrimLeft(line, mark)
		if size := len(line) - len(info); size >= 3 && (mark == "~" || !strings.Contains(info, mark)) {
			return line[:size]
		}
	}
	return ""
}

func endsFence(line, fence string) bool {
	return strings.HasPrefix(line, fence) && strings.Trim(line, fence[:1]+" \t\r") == ""
}

// opensHTML returns what ends the block of HTML that a line begins, if empty lines do not and the line has no end of it.
func opensHTML(line string) string {
	line = strings.ToLower(line)
	for _, one := range [][2]string{
		{"<!--", "-->"}, {"<?", "?>"}, {"<![cdata[", "]]>"}, {"<pre", "</pre>"}, {"<script", "</script>"}, {"<style", "</style>"}, {"<textarea", "</textarea>"},
	} {
		rest, opens := strings.CutPrefix(line, one[0])
		named := one[1][0] == '<' && rest != "" && strings.IndexByte(" \t\r>", rest[0]) < 0
		if opens && !named && !strings.Contains(rest, one[1]) {
			return one[1]
		}
	}
	return ""
}

func firstLine(text string) string {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.TrimSpace(line) != "" {
			return line
		}
	}
	return ""
}

func lastLine(text string) string {
	text = strings.TrimRight(text, " \t\r\n")
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// inList reports whether a line may be one of an item.
func inList(line string) bool {
	words := strings.TrimLeft(line, " ")
	return len(line)-len(words) >= 2 || strings.HasPrefix(line, "\t") || markerWidth(words) > 0
}
