package notetext

import (
	"strings"
	"unicode/utf8"

	"inbox/internal/markup"
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

// text adds a text, cut between its blocks. What is cut is HTML from here on: a piece of Markdown may lack what defines its links.
func (s *splitting) text(part normalized.Part) {
	if s.most < 0 {
		return
	}
	if length := utf8.RuneCountInString(part.Content); s.used+length <= s.limit {
		s.add(part)
		s.used += length
		return
	}

	var kept strings.Builder
	flush := func() {
		if kept.Len() > 0 {
			part.MIME, part.Content = normalized.MIMEHTML, kept.String()
			s.add(part)
			kept.Reset()
		}
	}
	for piece := range markup.From(part.MIME, part.Content).Pieces(s.limit) {
		size := piece.Size()
		if s.used > 0 && s.used+size > s.limit && !s.full {
			flush()
			s.next()
		}
		if s.full && s.most == MaxPosts && s.used+size > s.limit {
			s.cut(&kept)
			break
		}

		kept.WriteString(piece.Source())
		s.used += size
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

func (s *splitting) cut(kept *strings.Builder) {
	if s.most < 0 {
		return
	}
	s.most = -1 // once
	kept.WriteString("<p>" + cutText + "</p>")
}
