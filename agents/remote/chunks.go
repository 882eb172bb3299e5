package remote

import (
	"strings"
	"unicode"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

// manyChunks is a number of texts in a row that nobody writes as paragraphs of their own.
const manyChunks = 8

// unchunked puts texts together that are chunks of one: servers keep an artifact that was streamed as one part a chunk.
// White space at a seam tells chunks from paragraphs.
func unchunked(parts a2a.ContentParts, textType string) (list a2a.ContentParts) {
	for begin := 0; begin < len(parts); {
		end := begin + 1
		for end < len(parts) && isProse(parts[begin]) && isProse(parts[end]) && textMIME(parts[begin], textType) == textMIME(parts[end], textType) {
			end++
		}
		if run := parts[begin:end]; chunked(run) {
			whole := *run[0]
			var text strings.Builder
			for _, chunk := range run {
				text.WriteString(chunk.Text())
			}
			whole.Content = a2a.Text(text.String())
			list = append(list, &whole)
		} else {
			list = append(list, run...)
		}
		begin = end
	}
	return list
}

func isProse(part *a2a.Part) bool {
	_, isText := part.Content.(a2a.Text)
	return isText && !asFile(part)
}

func chunked(run a2a.ContentParts) bool {
	if len(run) >= manyChunks {
		return true
	}
	for i := 1; i < len(run); i++ {
		before, after := run[i-1].Text(), run[i].Text()
		if before != strings.TrimRightFunc(before, unicode.IsSpace) || after != strings.TrimLeftFunc(after, unicode.IsSpace) {
			return true
		}
	}
	return false
}
