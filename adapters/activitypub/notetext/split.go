package notetext

import (
	"strings"
	"unicode"
	"unicode/utf8"

	nethtml "golang.org/x/net/html"

	"inbox/normalized"
)

// MaxPosts bounds the chain of posts that a long answer becomes.
const MaxPosts = 5

// DefaultLength is where Mastodon's clients begin to fold a post away.
const DefaultLength = 4000

// Split cuts an answer into at most so many posts, between paragraphs where it can. A text counts with its marks,
// in characters. The last post of a chain that may not grow takes what is left, whatever its length; only a chain of
// MaxPosts is cut off. Sources and tools stand at the end of the last post, as many of them as have room there.
func Split(parts []normalized.Part, limit, most int) [][]normalized.Part {
	said, tail := apart(parts)
	total := tailSize(tail)
	for _, part := range said {
		if part.Kind == normalized.PartText {
			total += utf8.RuneCountInString(part.Content)
		}
	}

	if total <= limit || most <= 1 {
		return [][]normalized.Part{parts}
	}
	chain := splitting{limit: limit, most: most, posts: [][]normalized.Part{nil}}
	for _, part := range said {
		if part.Kind == normalized.PartText {
			chain.text(part)
		} else {
			chain.add(part)
		}
	}

	chain.tail(tail)
	return chain.posts
}

// splitting is a chain that grows.
type splitting struct {
	limit, most int
	posts       [][]normalized.Part
	used        int // characters in the last post
	full        bool
}

func (s *splitting) add(part normalized.Part) {
	last := len(s.posts) - 1
	s.posts[last] = append(s.posts[last], part)
}

func (s *splitting) text(part normalized.Part) {
	var kept strings.Builder
	flush := func() {
		if kept.Len() > 0 {
			part.Content = kept.String()
			s.add(part)
			kept.Reset()
		}
	}
	separator := "\n\n"
	if part.MIME == normalized.MIMEHTML {
		separator = ""
	}

	for _, block := range blocksOf(part, s.limit) {
		size := utf8.RuneCountInString(block)
		if s.used > 0 && s.used+len(separator)+size > s.limit && !s.full {
			flush()
			s.next()
		}

		if s.full && s.most == MaxPosts && s.used+len(separator)+size > s.limit {
			s.cut(&kept, part.MIME)
			break
		}

		if kept.Len() > 0 {
			kept.WriteString(separator)
		}
		kept.WriteString(block)
		s.used += len(separator) + size
	}
	flush()
}

// tail adds what stands below the text.
func (s *splitting) tail(tail []normalized.Part) {
	if s.used > 0 && s.used+tailSize(tail) > s.limit && !s.full && len(fitting(tail, s.limit)) > 0 {
		s.next()
	}
	if grows := !s.full || s.most == MaxPosts || s.most < 0; grows {
		tail = fitting(tail, s.limit-s.used)
	}
	for _, part := range tail {
		s.add(part)
	}
}

// next begins another post; the last one allowed is full from its beginning, in the sense that none follows.
func (s *splitting) next() {
	s.posts, s.used = append(s.posts, nil), 0
	s.full = len(s.posts) >= s.most
}

// cutText tells readers that something is missing; the page of the first post shows it all.
const cutText = "… (the answer is longer than this chain of posts)"

func (s *splitting) cut(kept *strings.Builder, mime string) {
	if s.most < 0 {
		return
	}
	s.most = -1 // once
	if mime == normalized.MIMEHTML {
		kept.WriteString("<p>" + cutText + "</p>")
		return
	}

	if kept.Len() > 0 {
		kept.WriteString("\n\n")
	}
	kept.WriteString(cutText)
}

// blocksOf cuts a text into pieces of at most limit characters, none of which is worth cutting further.
func blocksOf(part normalized.Part, limit int) []string {
	if part.MIME == normalized.MIMEHTML {
		return elementsOf(part.Content)
	}
	var blocks []string
	for _, paragraph := range paragraphsOf(part.Content, part.MIME == normalized.MIMEMarkdown) {
		if utf8.RuneCountInString(paragraph) <= limit {
			blocks = append(blocks, paragraph)
		} else if fence := fenceOf(paragraph); fence != "" && part.MIME == normalized.MIMEMarkdown {
			blocks = append(blocks, cutFence(paragraph, fence, limit)...)
		} else {
			blocks = append(blocks, cutSentences(paragraph, limit)...)
		}
	}

	return blocks
}

// paragraphsOf cuts at blank lines; a fenced block of code is one piece whatever is in it.
func paragraphsOf(text string, fences bool) (paragraphs []string) {
	var current []string
	flush := func() {
		if len(current) > 0 {
			paragraphs = append(paragraphs, strings.Join(current, "\n"))
			current = nil
		}
	}
	fence := ""
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		opened := ""
		if fences {
			opened = fenceOf(line)
		}
		switch {
		case fence != "":
			current = append(current, line)
			if closes(line, fence) {
				flush()
				fence = ""
			}
		case opened != "":
			flush()
			current, fence = append(current, line), opened
		case strings.TrimSpace(line) == "":
			flush()
		default:
			current = append(current, line)
		}
	}

	flush()
	return paragraphs
}

// fenceOf returns the marks that open a fenced block of code (CommonMark 0.31, section 4.5); empty when the line opens
// none.
func fenceOf(line string) string {
	trimmed := strings.TrimLeft(line, " ")
	if len(line)-len(trimmed) > 3 || trimmed == "" || trimmed[0] != '`' && trimmed[0] != '~' {
		return ""
	}

	marks := len(trimmed) - len(strings.TrimLeft(trimmed, trimmed[:1]))
	first, _, _ := strings.Cut(trimmed, "\n")
	if marks < 3 || trimmed[0] == '`' && strings.Contains(first[marks:], "`") {
		return ""
	}
	return trimmed[:marks]
}

func closes(line, fence string) bool {
	trimmed := strings.TrimSpace(line)
	return len(trimmed) >= len(fence) && strings.Trim(trimmed, fence[:1]) == ""
}

// cutFence cuts a block of code between lines, and returns every piece the fence of the whole.
func cutFence(block, fence string, limit int) (pieces []string) {
	lines := strings.Split(block, "\n")
	opening, body := lines[0], lines[1:]
	if len(body) > 0 && closes(body[len(body)-1], fence) {
		body = body[:len(body)-1]
	}

	if utf8.RuneCountInString(opening) > limit/4 {
		opening = fence
	}

	room := max(limit-utf8.RuneCountInString(opening)-len(fence)-2, 1)
	var current []string
	used := 0
	flush := func() {
		if len(current) > 0 {
			pieces = append(pieces, opening+"\n"+strings.Join(current, "\n")+"\n"+fence)
			current, used = nil, 0
		}
	}
	for _, line := range body {
		for _, piece := range cutRunes(line, room) {
			size := utf8.RuneCountInString(piece) + 1
			if used+size > room {
				flush()
			}
			current, used = append(current, piece), used+size
		}
	}

	flush()
	return pieces
}

// cutRunes cuts at most every n characters; an empty line stays one.
func cutRunes(line string, n int) (pieces []string) {
	for utf8.RuneCountInString(line) > n {
		end := byteIndex(line, n)
		pieces, line = append(pieces, line[:end]), line[end:]
	}
	return append(pieces, line)
}

// byteIndex returns where the first n characters end. A combining mark stays with its letter.
func byteIndex(text string, n int) int {
	end, count := len(text), 0
	for i, r := range text {
		if count >= n && !unicode.Is(unicode.Mn, r) {
			end = i
			break
		}
		count++
	}

	return end
}

// cutSentences cuts a long paragraph after a line or a sentence, else between words, else anywhere.
func cutSentences(text string, limit int) (pieces []string) {
	for utf8.RuneCountInString(text) > limit {
		end := byteIndex(text, limit)
		cut := lastBreak(text[:end], end/2)
		pieces = append(pieces, strings.TrimSpace(text[:cut]))
		text = strings.TrimSpace(text[cut:])
	}
	if text != "" {
		pieces = append(pieces, text)
	}

	return pieces
}

// lastBreak finds the best place to cut behind the given byte: a line, a sentence, a word.
func lastBreak(text string, from int) int {
	for _, marks := range [][]string{{"\n"}, {". ", "! ", "? ", "。", "！", "？", "… "}, {" "}} {
		best := -1
		for _, mark := range marks {
			if at := strings.LastIndex(text, mark); at >= from && at+len(mark) > best {
				best = at + len(mark)
			}
		}
		if best > 0 {
			return best
		}
	}

	return len(text)
}

// elementsOf cuts HTML between its outermost elements.
func elementsOf(content string) (elements []string) {
	tokens := nethtml.NewTokenizer(strings.NewReader(content))
	var current strings.Builder
	depth := 0
	for {
		kind := tokens.Next()
		if kind == nethtml.ErrorToken {
			break
		}

		current.Write(tokens.Raw())
		name, _ := tokens.TagName()
		switch {
		case kind == nethtml.StartTagToken && !voidElement(string(name)):
			depth++
		case kind == nethtml.EndTagToken:
			depth = max(depth-1, 0)
		}
		if depth == 0 && kind == nethtml.EndTagToken {
			elements = append(elements, current.String())
			current.Reset()
		}
	}

	if strings.TrimSpace(current.String()) != "" {
		elements = append(elements, current.String())
	}
	return elements
}

func voidElement(name string) bool {
	switch name {
	case "br", "hr", "img", "input", "wbr", "meta", "link", "source", "area", "base", "col", "embed", "track":
		return true
	}
	return false
}
