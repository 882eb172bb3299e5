package activitypub

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// textWriter collects text with the blanks between blocks still pending.
type textWriter struct {
	as      reader
	out     strings.Builder
	nodes   int
	lines   int  // pending line breaks
	space   bool // pending blank
	at      bool // pending @, before what else is pending: Hubzilla writes it before the link of a mention
	literal bool // inside pre
	struck  bool // inside text that is struck out
	begin   int  // of the text, or of what was struck out last: nothing pending is written there
	numbers []int
}

func (w *textWriter) full() bool { return w.out.Len() >= maxTextBytes || w.nodes >= maxHTMLNodes }

func (w *textWriter) flush() {
	if w.at {
		w.out.WriteByte('@')
		w.at = false
	}
	switch {
	case w.out.Len() == w.begin:
	case w.lines > 0:
		w.out.WriteString("\n\n"[:min(w.lines, 2)])
	case w.space:
		w.out.WriteByte(' ')
	}
	w.lines, w.space = 0, false
}

// String gives the text.
func (w *textWriter) String() string {
	if w.at {
		w.out.WriteByte('@')
		w.at = false
	}
	return w.out.String()
}

func (w *textWriter) breakLine(lines int) { w.lines = max(w.lines, lines) }

func (w *textWriter) text(text string) {
	for _, r := range text {
		switch {
		case w.literal && r == '\n':
			w.flush()
			w.out.WriteByte('\n')
		case unicode.IsSpace(r) && !w.literal:
			w.space = true
		case r != '\t' && unwanted(r):
		case r == '@':
			w.flush()
			w.at = true
		default:
			w.flush()
			w.out.WriteRune(r)
		}
	}
}

func (w *textWriter) mark(text string) {
	w.flush()
	w.out.WriteString(text)
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

func (w *textWriter) node(n *html.Node) {
	if w.nodes++; w.full() {
		return
	}
	switch n.Type {
	case html.TextNode:
		w.text(n.Data)
	case html.ElementNode:
		w.element(n)
	}
}

func (w *textWriter) children(n *html.Node) {
	for child := n.FirstChild; child != nil; child = child.NextSibling {
		w.node(child)
	}
}

func (w *textWriter) element(n *html.Node) {
	if hidden(n) {
		return
	}
	switch n.DataAtom {
	case atom.Br:
		w.lines++
	case atom.Hr:
		w.breakLine(2)
	case atom.A:
		w.anchor(n)
	case atom.Img:
		w.image(n)
	case atom.Math:
		w.math(n)
	case atom.Pre:
		w.pre(n)
	case atom.Ul, atom.Ol:
		w.list(n)
	case atom.Li:
		w.item(n)
	case atom.S, atom.Del, atom.Strike:
		w.strike(n)
	case atom.Rt:
		w.reading(n)
	case atom.Td, atom.Th:
		w.cell(n)
	default:
		w.block(n, margins[n.DataAtom])
	}
}

// margins are the line breaks around blocks.
var margins = map[atom.Atom]int{
	atom.P: 2, atom.Blockquote: 2, atom.H1: 2, atom.H2: 2, atom.H3: 2, atom.H4: 2, atom.H5: 2, atom.H6: 2,
	atom.Table: 2, atom.Div: 1, atom.Section: 1, atom.Article: 1, atom.Header: 1, atom.Footer: 1, atom.Figure: 1,
	atom.Figcaption: 1, atom.Tr: 1, atom.Dl: 2, atom.Dt: 1, atom.Dd: 1, atom.Aside: 1, atom.Main: 1, atom.Nav: 1, atom.Address: 1,
	atom.Center: 1, atom.Form: 1, atom.Fieldset: 1, atom.Details: 1, atom.Summary: 1, atom.Caption: 1,
}

func (w *textWriter) block(n *html.Node, lines int) {
	w.breakLine(lines)
	w.children(n)
	w.breakLine(lines)
}

func (w *textWriter) pre(n *html.Node) {
	w.breakLine(2)
	before := w.literal
	w.literal = true
	w.children(n)
	w.literal = before
	w.breakLine(2)
}

func (w *textWriter) list(n *html.Node) {
	number := -1
	if n.DataAtom == atom.Ol {
		number = 1
		if start, err := strconv.Atoi(attribute(n, "start")); err == nil && start >= 0 {
			number = start
		}
	}
	margin := 2
	if len(w.numbers) > 0 {
		margin = 1 // a list inside a list
	}
	w.numbers = append(w.numbers, number)
	w.block(n, margin)
	w.numbers = w.numbers[:len(w.numbers)-1]
}

// cell keeps the cells of a row apart.
func (w *textWriter) cell(n *html.Node) {
	for before := n.PrevSibling; before != nil; before = before.PrevSibling {
		if before.Type == html.ElementNode {
			w.text(" | ")
			break
		}
	}
	w.children(n)
}

func (w *textWriter) item(n *html.Node) {
	w.breakLine(1)
	bullet := "- "
	if last := len(w.numbers) - 1; last >= 0 && w.numbers[last] >= 0 {
		bullet = strconv.Itoa(w.numbers[last]) + ". "
		w.numbers[last]++
	}
	w.mark(bullet)
	w.children(n)
	w.breakLine(1)
}

// strike marks what its author took back as markdown does: without the marks it would say the opposite.
func (w *textWriter) strike(n *html.Node) {
	if w.struck || strings.TrimSpace(innerText(n)) == "" {
		w.children(n)
		return
	}
	w.mark("~~")
	w.struck, w.begin = true, w.out.Len()
	w.children(n)
	w.struck = false
	if w.at {
		w.out.WriteByte('@')
		w.at = false
	}
	w.out.WriteString("~~") // before the blanks that are pending
}

// reading writes the pronunciation of ruby text in parentheses, unless the page brings its own.
func (w *textWriter) reading(n *html.Node) {
	bare := n.PrevSibling == nil || n.PrevSibling.DataAtom != atom.Rp
	if bare {
		w.text("(")
	}
	w.children(n)
	if bare {
		w.text(")")
	}
}

func (w *textWriter) image(n *html.Node) {
	if alt := attribute(n, "alt"); alt != "" {
		w.text(alt) // custom emoji of some servers are pictures with :name: as alternative
	}
}

// math writes the formula's source instead of its glyphs.
func (w *textWriter) math(n *html.Node) {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && d.Data == "annotation" {
			w.children(d)
			return
		}
	}
}

func (w *textWriter) anchor(n *html.Node) {
	href, label := attribute(n, "href"), strings.TrimSpace(innerText(n))
	classes := strings.Fields(attribute(n, "class"))
	switch {
	case slices.Contains(classes, "hashtag"), strings.HasPrefix(label, "#") && slices.Contains(classes, "mention"):
		w.text(label)
	case slices.Contains(classes, "mention"), w.tagged(href), w.named(href, label):
		w.mention(href, label)
	default:
		w.link(href, label)
	}
}

// named knows a mention by its words: Lemmy links @user@host to an address that it guesses.
func (w *textWriter) named(href, label string) bool {
	_, found := w.as.mentions.find(href, label)
	return found && strings.HasPrefix(label, "@")
}

func (w *textWriter) tagged(href string) bool {
	for _, tag := range w.as.mentions {
		if tag.href == href && href != "" {
			return true
		}
	}
	return false
}

func (w *textWriter) mention(href, label string) {
	tag, found := w.as.mentions.find(href, label)
	if !found {
		tag = mention{href, label}
	}
	address := tag.address()
	if w.lines == 0 && !w.space {
		w.at = false // it belongs to the mention
	}
	switch {
	case w.as.isUs(tag.href), w.as.isUs(href):
		w.mark(string(markUs))
	case address != "":
		w.mark(string(markOther) + address + string(markOtherEnd))
	default:
		w.text(label)
	}
}

// linkSchemes are those that Mastodon keeps.
var linkSchemes = []string{"http", "https", "dat", "dweb", "ipfs", "ipns", "ssb", "gopher", "xmpp", "magnet", "gemini"}

// link writes a link once: servers shorten the visible address and hide the rest in spans.
func (w *textWriter) link(href, label string) {
	scheme, rest, _ := strings.Cut(href, ":")
	shown := strings.TrimSuffix(strings.TrimSuffix(label, "…"), "...")
	bare := strings.TrimPrefix(strings.TrimPrefix(shown, "https://"), "http://")
	switch {
	case !slices.Contains(linkSchemes, scheme), label == href:
		w.text(label)
	case shortened(rest, bare):
		w.text(href)
	default:
		w.text(label + " (" + href + ")")
	}
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

// innerText joins all text of an anchor, also that which style sheets hide.
func innerText(n *html.Node) string {
	var out strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode && out.Len() < maxIRIBytes {
			out.WriteString(d.Data)
		}
	}
	return clip(out.String(), maxIRIBytes)
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
