package activitypub

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"inbox/adapters/activitypub/document"
	"inbox/internal/markup"
)

// readNote makes the tree of a note's HTML without what no reader saw, with words in place of mentions, links and
// pictures. cut reports that the end is missing.
func readNote(content string, as reader) (document *html.Node, cut bool) {
	document, cut = markup.Parse(content, markup.Limits{Bytes: maxHTMLBytes, Nodes: maxHTMLNodes, Hides: hidden})
	r := noteReader{as: as}
	r.children(document)
	return document, cut
}

// noteReader goes through a tree once.
type noteReader struct {
	as     reader
	before *html.Node // the text directly before, in the same line
}

func (r *noteReader) children(n *html.Node) {
	for child := n.FirstChild; child != nil; {
		next := child.NextSibling
		r.node(child)
		child = next
	}
}

func (r *noteReader) node(n *html.Node) {
	switch {
	case n.Type == html.TextNode:
		n.Data = strings.Map(wanted, n.Data)
		r.before = n
	case n.Type != html.ElementNode:
	case hidden(n):
		n.Parent.RemoveChild(n)
	case n.DataAtom == atom.A:
		replace(n, r.anchor(n))
		r.before = nil
	case n.DataAtom == atom.Img:
		// Custom emoji of some servers are pictures with :name: as alternative.
		replace(n, strings.Map(wanted, attribute(n, "alt")))
		r.before = nil
	default:
		if n.DataAtom == atom.Code && broken(n) {
			n.DataAtom, n.Data = atom.Pre, "pre"
		}
		within := inline(n.DataAtom)
		if !within {
			r.before = nil
		}
		r.children(n)
		if !within {
			r.before = nil
		}
	}
}

// broken reports whether code has several lines although it stands in no pre: as words of a line it would lose them.
func broken(code *html.Node) bool {
	for parent := code.Parent; parent != nil; parent = parent.Parent {
		if parent.DataAtom == atom.Pre {
			return false
		}
	}
	for node := range code.Descendants() {
		if node.DataAtom == atom.Br {
			return true
		}
	}
	return false
}

// inline reports whether an element stands within a line.
func inline(tag atom.Atom) bool {
	switch tag {
	case atom.Span, atom.B, atom.Strong, atom.I, atom.Em, atom.U, atom.S, atom.Del, atom.Font, atom.Small, atom.Bdi:
		return true
	}
	return false
}

// replace puts words in the place of an element.
func replace(n *html.Node, words string) {
	if words == "" {
		n.Parent.RemoveChild(n)
		return
	}
	n.Type, n.DataAtom, n.Data, n.Attr = html.TextNode, 0, words, nil
	n.FirstChild, n.LastChild = nil, nil
}

func (r *noteReader) anchor(n *html.Node) string {
	href, label := attribute(n, "href"), strings.TrimSpace(strings.Map(wanted, innerText(n)))
	classes := strings.Fields(attribute(n, "class"))
	switch {
	case slices.Contains(classes, "hashtag"), strings.HasPrefix(label, "#") && slices.Contains(classes, "mention"):
		return label
	case slices.Contains(classes, "mention"), r.tagged(href), r.named(href, label):
		return r.mention(href, label)
	}
	return linkText(strings.Map(wanted, href), label)
}

// wanted keeps what stands in a text and is seen.
func wanted(r rune) rune {
	if !unicode.IsSpace(r) && unwanted(r) {
		return -1
	}
	return r
}

// unwanted are control characters and those that turn or hide text.
func unwanted(r rune) bool {
	switch {
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f, r == 0x061c, r == 0xfeff:
		return true
	case r >= 0xe0000 && r <= 0xe007f: // tags: letters that nobody sees and a language model reads
		return true
	}
	return unicode.IsControl(r)
}

// named knows a mention by its words: Lemmy links @user@host to an address that it guesses.
func (r *noteReader) named(href, label string) bool {
	_, found := r.as.mentions.Find(href, label)
	return found && strings.HasPrefix(label, "@")
}

func (r *noteReader) tagged(href string) bool {
	for _, tag := range r.as.mentions {
		if tag.Href == href && href != "" {
			return true
		}
	}
	return false
}

func (r *noteReader) mention(href, label string) string {
	tag, found := r.as.mentions.Find(href, label)
	if !found {
		tag = document.Mention{Href: href, Name: label}
	}
	r.dropMark() // Hubzilla writes the @ before the link
	address := tag.Address()
	switch {
	case r.as.isUs(tag.Href), r.as.isUs(href):
		return string(markUs)
	case address != "":
		return string(markOther) + address + string(markOtherEnd)
	}
	return label
}

// dropMark takes away the @ that stands directly before a mention.
func (r *noteReader) dropMark() {
	if r.before != nil {
		r.before.Data = strings.TrimSuffix(r.before.Data, "@")
	}
}

// linkSchemes are those that Mastodon keeps.
var linkSchemes = []string{"http", "https", "dat", "dweb", "ipfs", "ipns", "ssb", "gopher", "xmpp", "magnet", "gemini"}

// linkText writes a link once: servers shorten the visible address and hide the rest in spans.
func linkText(href, label string) string {
	scheme, rest, _ := strings.Cut(href, ":")
	shown := strings.TrimSuffix(strings.TrimSuffix(label, "…"), "...")
	bare := strings.TrimPrefix(strings.TrimPrefix(shown, "https://"), "http://")
	switch {
	case !slices.Contains(linkSchemes, scheme), label == href:
		return label
	case shortened(rest, bare):
		return href
	case label == "":
		return "(" + href + ")"
	}
	return label + " (" + href + ")"
}

// shortened says whether a label is the beginning of the address, its host at least: "example" is a word.
func shortened(address, label string) bool {
	bare := strings.TrimPrefix(address, "//")
	if !strings.HasPrefix(label, "www.") {
		bare = strings.TrimPrefix(bare, "www.")
	}
	host := len(bare)
	if end := strings.IndexAny(bare, "/?#"); end >= 0 {
		host = end
	}
	return len(label) >= host && strings.HasPrefix(bare, label)
}

// innerText joins all text of an anchor, also that which style sheets hide, and the descriptions of its pictures.
func innerText(n *html.Node) string {
	var out strings.Builder
	for d := range n.Descendants() {
		switch {
		case out.Len() >= document.MaxIRIBytes:
		case d.Type == html.TextNode:
			out.WriteString(d.Data)
		case d.DataAtom == atom.Img:
			out.WriteString(attribute(d, "alt"))
		}
	}
	return document.Clip(out.String(), document.MaxIRIBytes)
}

// hidden are elements whose content no reader saw, and Mastodon's fallback line for quotes.
func hidden(n *html.Node) bool {
	switch n.DataAtom {
	case atom.Script, atom.Style, atom.Template, atom.Head, atom.Title, atom.Iframe, atom.Object, atom.Noscript:
		return true
	}
	for _, a := range n.Attr {
		switch a.Key {
		case "hidden":
			return true
		case "style":
			compact := strings.ReplaceAll(strings.ToLower(a.Val), " ", "")
			if strings.Contains(compact, "display:none") || strings.Contains(compact, "visibility:hidden") {
				return true
			}
		case "class":
			classes := strings.Fields(a.Val)
			if slices.Contains(classes, "invisible") || slices.Contains(classes, "quote-inline") {
				return true
			}
		}
	}
	return false
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}
