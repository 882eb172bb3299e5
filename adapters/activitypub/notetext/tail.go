package notetext

import (
	"html"
	"strconv"
	"strings"
	"unicode/utf8"

	"inbox/normalized"
)

// apart separates the text of an answer from its tail, which lists the sources and the tool calls. Both keep their order.
func apart(parts []normalized.Part) (said, tail []normalized.Part) {
	for i := range parts {
		if parts[i].Kind == normalized.PartToolCall {
			tail = append(tail, parts[i])
			continue
		}
		part, says := parts[i].Said()
		if says {
			said = append(said, part)
		}
		if parts[i].Citation == nil {
			continue
		}
		source := parts[i]
		if says { // the text stands above
			source.Content = source.Citation.Label()
		}
		tail = append(tail, source)
	}
	return said, tail
}

// tailSize counts the characters of a tail as readers see it: addresses are behind the titles.
func tailSize(tail []normalized.Part) (size int) {
	_, citations := normalized.Cited(tail)
	for i := range citations {
		size += utf8.RuneCountInString(sourceLine(i, &citations[i])+noteOf(&citations[i])) + 1
	}
	if len(citations) > 0 {
		size += len(normalized.SourcesTitle) + 2
	}
	if line := normalized.ToolLine(tail); line != "" {
		size += utf8.RuneCountInString(line) + 2
	}
	return size
}

// fitting returns as much of a tail as has room. The line of the tools goes first, the last sources after it.
func fitting(tail []normalized.Part, room int) []normalized.Part {
	if tailSize(tail) <= room {
		return tail
	}

	var kept []normalized.Part
	for _, part := range tail {
		if part.Citation != nil {
			kept = append(kept, part)
		}
	}
	for len(kept) > 0 && tailSize(kept) > room {
		kept = kept[:len(kept)-1]
	}
	return kept
}

func sourceLine(index int, citation *normalized.Citation) string {
	return "[" + strconv.Itoa(index+1) + "] " + Visible(citation.Label(), maxSourceLabel)
}

// noteOf follows the line of a source.
func noteOf(citation *normalized.Citation) string {
	if citation.Note == "" {
		return ""
	}
	return " – " + Visible(citation.Note, maxSourceLabel)
}

const maxSourceLabel = 300 // bytes

// Tail writes the tail of a post: numbered sources with their links, then one line about tools. Empty where there is none.
func Tail(parts []normalized.Part) string {
	_, citations := normalized.Cited(parts)
	var out strings.Builder
	if len(citations) > 0 {
		rows := []string{html.EscapeString(normalized.SourcesTitle)}
		for i := range citations {
			row := html.EscapeString(sourceLine(i, &citations[i]))
			if address := citations[i].SourceURL; address != "" {
				number, label, _ := strings.Cut(sourceLine(i, &citations[i]), " ")
				row = html.EscapeString(number) + " " + Link(address, label)
			}
			rows = append(rows, row+html.EscapeString(noteOf(&citations[i])))
		}
		out.WriteString(Sanitize("<p>" + strings.Join(rows, "<br>") + "</p>"))
	}

	if line := normalized.ToolLine(parts); line != "" {
		out.WriteString("<p>" + html.EscapeString(line) + "</p>")
	}
	return out.String()
}
