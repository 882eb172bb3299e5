// Package reference is what the names mean that the program says: codes of errors and of audit records, events, states and methods of
// proof. Pages, answers and commands read it, and the documents in docs/reference are written from it. It decides nothing. A test of
// cmd/inbox compares it with the code: a name that one has and the other lacks fails it.
package reference

import "strings"

// Pages have these names, in docs/reference and below Path.
const (
	Errors   = "errors"
	Events   = "events"
	States   = "states"
	Evidence = "evidence"
)

// Path is where a server serves the pages.
const Path = "/docs/reference/"

// Entry is one name with its meaning.
type Entry struct {
	Name    string // as the program writes it; "…" at its end stands for the rest of an open name
	Meaning string
	Do      string // what to do about it; empty = nothing
}

// Group is what belongs together on a page. Names are unique inside of it.
type Group struct {
	Name    string // in anchors, where names are unique in their group alone; empty = they are unique on the page
	Title   string
	Intro   string
	Entries []Entry
}

// Page is one page of the reference.
type Page struct {
	Name   string
	Title  string
	Column string // what its names are
	Intro  string
	Groups []Group
}

// All returns the pages in the order of the index. They are shared: do not change them.
func All() []Page { return pages }

var pages = []Page{
	{Errors, "Errors and codes", "code", errorsIntro, codes},
	{Events, "Events", "event", eventsIntro, events},
	{States, "States", "state", statesIntro, states},
	{Evidence, "Evidence", "method", evidenceIntro, methods},
}

// Get returns a page by its name.
func Get(name string) (Page, bool) {
	for _, page := range pages {
		if page.Name == name {
			return page, true
		}
	}
	return Page{}, false
}

// Anchor returns the anchor of an entry on its page.
func (g Group) Anchor(entry Entry) string {
	name := strings.TrimSuffix(strings.TrimSuffix(entry.Name, "…"), ":")
	anchor := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_':
			return r
		}
		return '-'
	}, name)
	if g.Name == "" {
		return anchor
	}
	return g.Name + "-" + anchor
}

// Slug returns the anchor of the group's heading.
func (g Group) Slug() string {
	return strings.ReplaceAll(strings.ToLower(strings.ReplaceAll(g.Title, "'", "")), " ", "-")
}

// Span is a piece of a text: words, code, or a link where Href is not empty.
type Span struct {
	Text string
	Code bool
	Href string // as a document in docs/reference writes it
}

// Spans takes a text of this package apart: `code` and [links](address).
func Spans(text string) (spans []Span) {
	for text != "" {
		mark := strings.IndexAny(text, "`[")
		if mark < 0 {
			return append(spans, Span{Text: text})
		}
		if mark > 0 {
			spans = append(spans, Span{Text: text[:mark]})
		}

		rest := text[mark+1:]
		code, after, isCode := strings.Cut(rest, "`")
		words, target, isLink := strings.Cut(rest, "](")
		href, behind, closed := strings.Cut(target, ")")
		switch {
		case text[mark] == '`' && isCode:
			spans, text = append(spans, Span{Text: code, Code: true}), after
		case text[mark] == '[' && isLink && closed && !strings.Contains(words, "["):
			spans, text = append(spans, Span{Text: strings.Trim(words, "`"), Code: strings.HasPrefix(words, "`"), Href: href}), behind
		default: // a mark that opens nothing
			spans, text = append(spans, Span{Text: text[mark : mark+1]}), rest
		}
	}
	return spans
}

// matches reports whether a name is that of the entry, or begins as an open one.
func (e Entry) matches(name string) bool {
	if start, open := strings.CutSuffix(e.Name, "…"); open {
		return len(name) > len(start) && strings.HasPrefix(name, start)
	}
	return e.Name == name
}

// Found is an entry with its place.
type Found struct {
	Entry

	Page    Page
	Group   Group
	Address string // below a server's address, such as /docs/reference/errors#not_found
}

// Find returns what a name means: the exact ones, or the open ones with which it begins where there are none. It may be a code, an event
// and a state at once.
func Find(name string) []Found {
	var exact, open []Found
	for _, page := range pages {
		for _, group := range page.Groups {
			for _, entry := range group.Entries {
				found := Found{entry, page, group, Path + page.Name + "#" + group.Anchor(entry)}
				switch {
				case entry.Name == name:
					exact = append(exact, found)
				case entry.matches(name):
					open = append(open, found)
				}
			}
		}
	}
	if exact != nil {
		return exact
	}
	return open
}

// addresses are those of all codes that are no open ones: answers with errors need one each.
var addresses = func() map[string]string {
	known := map[string]string{}
	for _, group := range codes {
		for _, entry := range group.Entries {
			known[entry.Name] = Path + Errors + "#" + group.Anchor(entry)
		}
	}
	return known
}()

// OfCode returns the address of what an error code means, below the address of a server. It is empty for the codes of others, such as those
// that programs behind agents give.
func OfCode(code string) string {
	if address, is := addresses[code]; is {
		return address
	}
	if start, _, is := strings.Cut(code, ":"); is {
		return addresses[start+":…"]
	}
	return ""
}
