package handbook

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"inbox/internal/clip"
)

// Bounds of a search: a reader pays at most eight looks through half a megabyte of text.
const (
	maxQuery  = 200 // bytes
	maxTerms  = 8
	maxHits   = 20
	excerptOf = 180 // bytes before and after the first term
)

// hit is a section that has all terms of a query.
type hit struct {
	Address, Page, Heading string
	Excerpt                []piece
}

// piece is a part of an excerpt; a marked one is a term.
type piece struct {
	Text   string
	Marked bool
}

// search returns the sections that have all terms, the most telling first: those with terms in their heading or in the title of their page.
func (l *library) search(query string) []hit {
	terms := termsOf(query)
	if len(terms) == 0 {
		return nil
	}

	type scored struct{ section, score int }
	var found []scored
	for i, one := range l.sections {
		if score := one.score(terms); score > 0 {
			found = append(found, scored{i, score})
		}
	}
	slices.SortStableFunc(found, func(a, b scored) int { return cmp.Compare(b.score, a.score) })

	hits := make([]hit, 0, maxHits)
	for _, one := range found[:min(maxHits, len(found))] {
		s := l.sections[one.section]
		hits = append(hits, hit{Address: s.address(), Page: s.page.title, Heading: s.words, Excerpt: s.excerpt(terms)})
	}
	return hits
}

// termsOf takes a query apart at what is neither letter nor digit nor part of a name such as public_url or 401.
func termsOf(query string) []string {
	fields := strings.FieldsFunc(strings.ToLower(clip.Bytes(query, maxQuery)), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_.-/@", r)
	})
	var terms []string
	for _, field := range fields {
		if field = strings.Trim(field, ".-/"); field != "" && !slices.Contains(terms, field) && len(terms) < maxTerms {
			terms = append(terms, field)
		}
	}
	return terms
}

const (
	inTitle   = 20
	inHeading = 30
	mostTimes = 5 // that a term counts in one text
)

// score is 0 unless the section, its heading or the title of its page have each term.
func (s section) score(terms []string) int {
	total := 0
	heading, _, _ := strings.Cut(s.folded, "\n")
	for _, term := range terms {
		times := min(strings.Count(s.folded, term), mostTimes)
		if strings.Contains(heading, term) {
			times += inHeading
		}
		if strings.Contains(s.page.folded, term) {
			times += inTitle
		}
		if times == 0 {
			return 0
		}
		total += times
	}
	return total
}

func (s section) address() string {
	address := strings.TrimSuffix(Root+"/"+s.page.path, "/")
	if s.id != "" {
		address += "#" + s.id
	}
	return address
}

// excerpt is the text around the first term in it, with all terms marked.
func (s section) excerpt(terms []string) []piece {
	folded := strings.ToLower(s.text)
	if len(folded) != len(s.text) { // some letters change their length with their case
		folded = s.text
	}
	first := -1
	for _, term := range terms {
		if at := strings.Index(folded, term); at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	from, to := max(first-excerptOf, 0), min(max(first, 0)+excerptOf, len(s.text))
	for from > 0 && s.text[from-1] != ' ' {
		from--
	}
	for to < len(s.text) && s.text[to] != ' ' && utf8.RuneStart(s.text[to]) {
		to++
	}
	for to < len(s.text) && !utf8.RuneStart(s.text[to]) {
		to++
	}

	var pieces []piece
	for from < to {
		next, length := to, 0
		for _, term := range terms {
			if at := strings.Index(folded[from:to], term); at >= 0 && (from+at < next || from+at == next && len(term) > length) {
				next, length = from+at, len(term)
			}
		}
		if next > from {
			pieces = append(pieces, piece{Text: s.text[from:next]})
		}
		if length > 0 {
			pieces = append(pieces, piece{Text: s.text[next : next+length], Marked: true})
		}
		from = next + max(length, 0)
	}
	return pieces
}

// name is the heading, or the title of a page that begins without one.
func (h hit) name() string {
	if h.Heading != "" {
		return h.Heading
	}
	return h.Page
}
