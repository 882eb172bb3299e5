// Package notetext converts what notes say. The HTML, files, links and polls of other servers become text and parts for agents;
// the text, Markdown or HTML of agents becomes the HTML that the fediverse keeps, cut into posts where it is long. All of it
// stays within bounds of cost (internal/markup); the package makes no requests and keeps nothing.
package notetext

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/text/unicode/norm"

	"inbox/adapters/activitypub/document"
	"inbox/internal/clip"
	"inbox/internal/lookalike"
	"inbox/internal/markup"
	"inbox/normalized"
)

// Limits of HTML to text.
const (
	maxHTMLBytes = 256 << 10
	maxTextBytes = 512 << 10
	maxHTMLNodes = 20_000
)

// textCut is told to the agent where a post was longer than it is read.
const textCut = "[The text was cut, because the post is very long.]"

// Marks in the growing text. Control characters never come in from outside, so they cannot be forged.
const (
	markUs       = '\x00' // a mention of the reader
	markOther    = '\x01' // begin of a mention of another account
	markOtherEnd = '\x02'
)

// Reader is the agent whose text is made: leading mentions of it are dropped.
type Reader struct {
	Address  string
	IsUs     func(href string) bool
	Mentions document.Mentions
}

// Plain turns the HTML of a note into plain text: blocks become lines, mentions @user@host, links their address
// or "text (address)". Hidden elements are dropped, because no reader saw them.
func Plain(content string, as Reader) string {
	document, cut := readNote(content, as)
	return as.written(document, markup.Plain, cut)
}

// Note is plainText for the body of a note: where it has quotations, headings, lists or code, it becomes Markdown, so
// that the words of others are not taken for those of the sender.
func Note(content string, as Reader) (text, mime string) {
	document, cut := readNote(content, as)
	if structured(document) {
		return as.written(document, markup.Markdown, cut), normalized.MIMEMarkdown
	}
	return as.written(document, markup.Plain, cut), normalized.MIMEPlain
}

func (r Reader) written(document *html.Node, form markup.Form, cut bool) string {
	text, full := markup.Text(document, form, maxTextBytes)
	text = r.finish(text)
	if cut || full {
		text = strings.TrimSpace(text + "\n\n" + textCut)
	}
	return text
}

// structured reports whether a note says more than lines of text.
func structured(document *html.Node) bool {
	for node := range document.Descendants() {
		switch node.DataAtom {
		case atom.Blockquote, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Ul, atom.Ol, atom.Pre, atom.Code:
			return true
		}
	}
	return false
}

// Literal cleans text that is no HTML and drops the leading mentions of the reader.
func (r Reader) Literal(content string) string {
	text := norm.NFC.String(strings.TrimSpace(clean(func(c rune) rune {
		if c != '\n' && c != '\t' && Unwanted(c) {
			return -1
		}
		return c
	}, strings.ReplaceAll(clip.Bytes(content, maxHTMLBytes), "\r\n", "\n"))))
	return r.WithoutAddress(text)
}

var unmarked = strings.NewReplacer(string(markOther), "", string(markOtherEnd), "")

// finish drops the leading mentions of the reader and writes all others out.
func (r Reader) finish(text string) string {
	head, rest := r.leading(text)
	text = head + rest
	text = strings.ReplaceAll(text, string(markUs), r.Address)
	text = unmarked.Replace(text)
	return norm.NFC.String(strings.TrimSpace(text))
}

// leading splits the text into the mentions of others that it begins with and the rest, without mentions of us.
func (r Reader) leading(text string) (head, rest string) {
	var others strings.Builder
	for {
		text = strings.TrimLeft(text, " \n\t")
		switch {
		case strings.HasPrefix(text, string(markUs)):
			text = text[1:]
			if after := strings.TrimLeft(text, ",:"); after == "" || strings.HasPrefix(after, " ") || strings.HasPrefix(after, "\n") {
				text = after
			}
		case strings.HasPrefix(text, string(markOther)):
			end := strings.IndexByte(text, markOtherEnd)
			others.WriteString(text[1:end] + " ")
			text = text[end+1:]
		default:
			return others.String(), text
		}
	}
}

// readNote makes the tree of a note's HTML without what no reader saw, with words in place of mentions, links and
// pictures. cut reports that the end is missing.
func readNote(content string, as Reader) (document *html.Node, cut bool) {
	document, cut = markup.Parse(content, markup.Limits{Bytes: maxHTMLBytes, Nodes: maxHTMLNodes, Hides: hidden})
	r := noteReader{as: as}
	r.children(document)
	return document, cut
}

// noteReader goes through a tree once.
type noteReader struct {
	as     Reader
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
		n.Data = clean(wanted, n.Data)
		r.before = n
	case n.Type != html.ElementNode:
	case hidden(n):
		n.Parent.RemoveChild(n)
	case n.DataAtom == atom.A:
		replace(n, r.anchor(n))
		r.before = nil
	case n.DataAtom == atom.Img:
		// Custom emoji of some servers are pictures with :name: as alternative.
		replace(n, clean(wanted, attribute(n, "alt")))
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
	href, label := attribute(n, "href"), strings.TrimSpace(clean(wanted, innerText(n)))
	classes := strings.Fields(attribute(n, "class"))
	switch {
	case slices.Contains(classes, "hashtag"), strings.HasPrefix(label, "#") && slices.Contains(classes, "mention"):
		return label
	case slices.Contains(classes, "mention"), r.tagged(href), r.named(href, label):
		return r.mention(href, label)
	}

	return linkText(clean(wanted, href), label)
}

// wanted keeps what stands in a text and is seen.
func wanted(r rune) rune {
	if !unicode.IsSpace(r) && Unwanted(r) {
		return -1
	}
	return r
}

// clean maps the characters of a text and leaves the flags of England, Scotland and Wales whole, which are made of tags.
func clean(mapping func(rune) rune, text string) string {
	return lookalike.BetweenFlags(text, func(piece string) string { return strings.Map(mapping, piece) })
}

// Unwanted are control characters and those that turn or hide text.
func Unwanted(r rune) bool {
	switch {
	case r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e, r == 0x200f, r == 0x061c, r == 0xfeff:
		return true
	case r >= 0xe0000 && r <= 0xe007f: // tags: letters that no one sees and a language model reads
		return true
	}
	return unicode.IsControl(r)
}

// named knows a mention by its words: Lemmy links @user@host to an address that it guesses.
func (r *noteReader) named(href, label string) bool {
	_, found := r.as.Mentions.Find(href, label)
	return found && strings.HasPrefix(label, "@")
}

func (r *noteReader) tagged(href string) bool {
	for _, tag := range r.as.Mentions {
		if tag.Href == href && href != "" {
			return true
		}
	}
	return false
}

func (r *noteReader) mention(href, label string) string {
	tag, found := r.as.Mentions.Find(href, label)
	if !found {
		tag = document.Mention{Href: href, Name: label}
	}

	r.dropMark() // Hubzilla writes the @ before the link
	address := tag.Address()
	switch {
	case r.as.IsUs(tag.Href), r.as.IsUs(href):
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

// shortened reports whether a label is the beginning of the address, its host at least: "example" is a word.
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

	return clip.Bytes(out.String(), document.MaxIRIBytes)
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

// Visible makes one line of text without control characters.
func Visible(text string, limit int) string {
	line := clean(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\r':
			return ' '
		case Unwanted(r):
			return -1
		}
		return r
	}, text)
	return clip.Bytes(norm.NFC.String(strings.TrimSpace(line)), limit)
}

// Refusals are the words by which people ask programs not to write to them unasked, nor to make something of what they write.
var Refusals = []string{"#nobot", "#nobots", "#noai", "#nollm", "#nollms"}

// AsksNoBots looks for #nobot, #noai or #nollm in the texts of a profile: the fediverse's words for "do not write to me unasked". Servers
// write a hashtag as a link around a part of it.
func AsksNoBots(texts ...string) bool {
	for _, one := range texts {
		text := Plain(clip.Bytes(one, 32<<10), Reader{IsUs: func(string) bool { return false }})
		for word := range strings.FieldsSeq(strings.ToLower(text)) {
			if slices.Contains(Refusals, strings.Trim(word, ".,;:!?()[]/|·\"'")) {
				return true
			}
		}
	}
	return false
}

// Bio returns the texts in which an actor says something about itself: its name, its summary in every language, its fields and its
// hashtags, at most MaxListed of each.
func Bio(actor document.Object) []string {
	texts := []string{document.Text(actor, "name"), document.Text(actor, "summary")}
	if translations, _ := actor["summaryMap"].(document.Object); len(translations) <= document.MaxListed {
		for language := range translations {
			texts = append(texts, document.Text(translations, language))
		}
	}

	for _, entry := range document.List(actor["attachment"]) {
		if field, _ := entry.(document.Object); document.IsA(field, "PropertyValue", "Note") {
			texts = append(texts, document.Text(field, "name"), document.Text(field, "value"), document.Text(field, "content"))
		}
	}
	for _, entry := range document.List(actor["tag"]) {
		if tag, _ := entry.(document.Object); document.IsA(tag, "Hashtag") {
			texts = append(texts, "#"+strings.TrimPrefix(document.Text(tag, "name"), "#"))
		}
	}
	return slices.DeleteFunc(texts, func(text string) bool { return !strings.Contains(text, "#") })
}

// BeginsWithName reports whether a text begins with @name, perhaps after other accounts.
func BeginsWithName(text, name string) bool {
	for text = strings.TrimLeft(text, " \n\t"); strings.HasPrefix(text, "@"); {
		if _, is := cutName(text, name); is {
			return true
		}
		end := strings.IndexAny(text, " \n\t")
		if end < 0 {
			return false
		}
		text = strings.TrimLeft(text[end:], " \n\t")
	}
	return false
}

// cutName cuts @name off the head of a text, unless it is the beginning of another name or address.
func cutName(text, name string) (rest string, is bool) {
	if len(text) < 1+len(name) || text[0] != '@' || !strings.EqualFold(text[1:1+len(name)], name) {
		return text, false
	}
	rest = text[1+len(name):]
	next, size := utf8.DecodeRuneInString(strings.TrimLeft(rest, ".-"))
	if size > 0 && (next == '@' || next == '_' || unicode.IsLetter(next) || unicode.IsDigit(next)) {
		return text, false
	}
	return rest, true
}

// WithoutAddress cuts the address of the reader off the head of a text, or its bare name: it was typed and no link was made of it.
func (r Reader) WithoutAddress(text string) string {
	text = r.withoutAddress(text)
	user, _, _ := strings.Cut(strings.TrimPrefix(r.Address, "@"), "@")
	if rest, is := cutName(text, user); is && user != "" {
		return strings.TrimSpace(strings.TrimLeft(rest, ",:"))
	}
	return text
}

func (r Reader) withoutAddress(text string) string {
	for len(text) >= len(r.Address) && strings.EqualFold(text[:len(r.Address)], r.Address) {
		rest := strings.TrimLeft(text[len(r.Address):], ",:")
		if rest != "" && !strings.HasPrefix(rest, " ") && !strings.HasPrefix(rest, "\n") {
			break
		}
		text = strings.TrimSpace(rest)
	}
	return text
}
