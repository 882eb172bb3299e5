package markup

import (
	"bytes"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Page is where HTML of a document is shown.
type Page struct {
	// Simple says that readers know no headings, tables and rules, as those of Mastodon: they become paragraphs and lines.
	Simple bool
	// Level is that of the page's own headings; those of the document come below it.
	Level int
	// Picture takes a picture to show it beside the text, and reports whether it did; nil = it never does. Words describe the picture.
	// Another picture is a link: to fetch it would tell its server who reads.
	Picture func(address, words string) bool
	// NoMail says that the page links no mail addresses, as Mastodon; they are shown behind the words.
	NoMail bool
	// Sanitize keeps what may stand on the page. It is the last word about every tag and address.
	Sanitize func(content string) string
}

// HTML writes the document for a page.
func (d Document) HTML(page Page) string {
	if d.body == nil {
		return ""
	}
	w := &htmlWriter{page: page}
	w.children(d.body)
	return strings.TrimSpace(page.Sanitize(strings.TrimSuffix(string(w.out), "<br>")))
}

// htmlWriter writes a tree as HTML in one walk. What shows nothing is taken back.
type htmlWriter struct {
	page   Page
	out    []byte
	words  int // pieces that show something, so far
	begin  int // words at the beginning of the block: a line break there shows nothing
	inLink bool
	pre    int
}

func (w *htmlWriter) append(text string) { w.out = append(w.out, text...) }

func (w *htmlWriter) children(n *html.Node) {
	for child := n.FirstChild; child != nil; child = child.NextSibling {
		w.node(child)
	}
}

func (w *htmlWriter) node(n *html.Node) {
	switch {
	case n.Type == html.TextNode:
		w.text(n.Data)
		return
	case n.Type != html.ElementNode:
		return
	}

	switch tag := n.DataAtom; {
	case tag == atom.Br:
		if w.words > w.begin || w.pre > 0 {
			w.append("<br>")
		}
	case tag == atom.Hr:
		w.rule()
	case tag == atom.A:
		w.link(n)
	case tag == atom.Img:
		w.picture(n)
	case tag == atom.Input:
		w.checkbox(n)
	case heading(tag):
		w.heading(n)
	case tag == atom.Table:
		w.table(n)
	case tag == atom.Pre, tag == atom.Listing, tag == atom.Xmp, tag == atom.Plaintext:
		w.pre++
		w.block("pre", n.Attr, n)
		w.pre--
	case tag == atom.P, tag == atom.Li, tag == atom.Blockquote, tag == atom.Ul, tag == atom.Ol:
		w.block(n.Data, n.Attr, n)
	case tag == atom.Menu, tag == atom.Dir:
		w.block("ul", n.Attr, n)
	case block(tag), margins[tag] > 0:
		if holdsBlocks(n) {
			w.endLine()
			w.children(n)
			w.endLine()
		} else {
			w.block("p", nil, n)
		}
	case inline(tag):
		w.inline(n.Data, n.Attr, n)
	default:
		w.children(n)
	}
}

func (w *htmlWriter) text(text string) {
	if strings.TrimSpace(text) != "" {
		w.words++
	}
	w.append(html.EscapeString(text))
}

// block writes an element around a block. Line breaks at its edges show nothing.
func (w *htmlWriter) block(name string, attributes []html.Attribute, n *html.Node) {
	outside, words, start := w.begin, w.words, len(w.out)
	w.begin = words
	w.open(name, attributes)
	inside := len(w.out)
	w.children(n)
	if w.words == words {
		w.takeBack(start, outside)
		return
	}

	for w.pre == 0 {
		trimmed := bytes.TrimRight(w.out[inside:], " \n\t")
		shorter := bytes.TrimSuffix(trimmed, []byte("<br>"))
		if len(shorter) == len(trimmed) {
			break
		}
		w.out = w.out[:inside+len(shorter)]
	}
	w.append("</" + name + ">")
	w.begin = w.words
}

// takeBack removes what a block has written that shows nothing. The line before it ends all the same.
func (w *htmlWriter) takeBack(start, outside int) {
	w.out, w.begin = w.out[:start], outside
	w.endLine()
}

// endLine ends the words before a block that has no element of its own.
func (w *htmlWriter) endLine() {
	if w.words > w.begin && !bytes.HasSuffix(w.out, []byte("<br>")) {
		w.append("<br>")
	}
}

func (w *htmlWriter) open(name string, attributes []html.Attribute) {
	w.append("<" + name)
	for _, one := range attributes {
		w.append(" " + one.Key + `="` + html.EscapeString(one.Val) + `"`)
	}
	w.append(">")
}

func (w *htmlWriter) inline(name string, attributes []html.Attribute, n *html.Node) {
	start, words := len(w.out), w.words
	w.open(name, attributes)
	w.children(n)
	if w.words == words {
		w.out = append(w.out[:start], blanksOf(n)...)
		if holdsBlocks(n) {
			w.endLine()
		}
		return
	}
	w.append("</" + name + ">")
}

// blanksOf keeps the words around an element apart that has nothing but blanks.
func blanksOf(n *html.Node) string {
	var words strings.Builder
	collect(n, &words, 1)
	if words.Len() > 0 {
		return " "
	}
	return ""
}

func (w *htmlWriter) rule() {
	w.words++
	if w.page.Simple {
		w.append("<p>* * *</p>")
	} else {
		w.append("<hr>")
	}
	w.begin = w.words
}

func (w *htmlWriter) heading(n *html.Node) {
	if !w.page.Simple {
		level := min(int(n.Data[1]-'0')+w.page.Level, 6)
		w.block("h"+strconv.Itoa(level), nil, n)
		return
	}

	outside, words, start := w.begin, w.words, len(w.out)
	w.begin = words
	w.append("<p><strong>")
	w.children(n)
	if w.words == words {
		w.takeBack(start, outside)
		return
	}
	w.append("</strong></p>")
	w.begin = w.words
}

// link writes a link.
func (w *htmlWriter) link(n *html.Node) {
	address := attribute(n, "href")
	mailbox, mail := strings.CutPrefix(address, "mailto:")
	switch {
	case w.inLink || address == "":
		w.children(n)
	case mail && w.page.NoMail:
		w.children(n)
		if words, whole := shortText(n, maxAddress); !whole || words != mailbox {
			w.text(" (" + mailbox + ")")
		}
	default:
		w.inLink = true
		w.open("a", n.Attr)
		w.children(n)
		w.append("</a>")
		w.inLink = false
	}
}

func (w *htmlWriter) picture(n *html.Node) {
	address, words := attribute(n, "src"), strings.Join(strings.Fields(attribute(n, "alt")), " ")
	isAddress := linked(address, "http", "https")
	attached := isAddress && w.page.Picture != nil && w.page.Picture(address, words)
	switch {
	case attached && !w.inLink: // it is shown beside the text
	case w.inLink || !isAddress:
		if words == "" && isAddress {
			words = address
		}
		w.text(words)
	default:
		if words == "" {
			words = address
		}
		w.open("a", []html.Attribute{{Key: "href", Val: address}})
		w.text(words)
		w.append("</a>")
	}
}

func (w *htmlWriter) checkbox(n *html.Node) {
	if box := checkboxOf(n); box != "" {
		w.text(box + " ")
	}
}

// table writes a table, or its rows as lines.
func (w *htmlWriter) table(n *html.Node) {
	if !w.page.Simple {
		w.rows(n)
		return
	}

	outside, words, start := w.begin, w.words, len(w.out)
	w.begin = words
	w.append("<p>")
	for child := n.FirstChild; child != nil; child = child.NextSibling {
		if child.DataAtom == atom.Caption {
			w.children(child)
			w.append("<br>")
		}
	}
	for i, row := range rowsOf(n) {
		if i > 0 {
			w.append("<br>")
		}
		w.line(row)
	}
	if w.words == words {
		w.takeBack(start, outside)
		return
	}
	w.append("</p>")
	w.begin = w.words
}

// line writes the cells of a row on one line.
func (w *htmlWriter) line(row *html.Node) {
	first := true
	for cell := row.FirstChild; cell != nil; cell = cell.NextSibling {
		if cell.DataAtom != atom.Td && cell.DataAtom != atom.Th {
			continue
		}
		if !first {
			w.append(" | ")
		}
		first = false

		if cell.DataAtom == atom.Th {
			w.inline("strong", nil, cell)
			continue
		}
		w.children(cell)
	}
}

// rows writes the elements of a table as they are: an empty cell keeps the others in their columns.
func (w *htmlWriter) rows(n *html.Node) {
	switch n.DataAtom {
	case atom.Table, atom.Thead, atom.Tbody, atom.Tfoot, atom.Tr, atom.Td, atom.Th, atom.Caption:
	default:
		w.node(n)
		return
	}

	w.open(n.Data, n.Attr)
	w.begin = w.words
	for child := n.FirstChild; child != nil; child = child.NextSibling {
		if n.DataAtom == atom.Td || n.DataAtom == atom.Th || n.DataAtom == atom.Caption {
			w.node(child)
		} else {
			w.rows(child)
		}
	}
	w.append("</" + n.Data + ">")
	w.begin = w.words
}

// holdsBlocks reports whether an element has a block among its children, so that it is no paragraph itself.
func holdsBlocks(n *html.Node) bool {
	for child := n.FirstChild; child != nil; child = child.NextSibling {
		if child.Type == html.ElementNode && (block(child.DataAtom) || margins[child.DataAtom] > 0 || !inline(child.DataAtom) && holdsBlocks(child)) {
			return true
		}
	}
	return false
}

// inline reports whether an element marks words in a line.
func inline(tag atom.Atom) bool {
	switch tag {
	case atom.B, atom.Strong, atom.I, atom.Em, atom.U, atom.S, atom.Del, atom.Strike, atom.Ins, atom.Mark, atom.Code, atom.Kbd, atom.Samp, atom.Tt,
		atom.Sub, atom.Sup, atom.Small, atom.Span, atom.Q, atom.Cite, atom.Abbr, atom.Ruby, atom.Rt, atom.Rp:
		return true
	}
	return false
}
