package markup

import (
	"bytes"
	"cmp"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	goldmarkhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/util"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"inbox/normalized"
)

// Document is what a text says, as the tree of a web page. Every form of an answer is written from one Document, so that all of them say
// the same words and lead to the same addresses. The zero value says nothing.
type Document struct {
	body  *html.Node
	plain string // the source of FromText; Text writes it as it was
}

// reader reads Markdown for FromMarkdown alone: its HTML never leaves this package. A line break of the author stays one: agents write
// chat, not books.
var reader = goldmark.New(
	goldmark.WithExtensions(extension.NewLinkify(extension.WithLinkifyEmailRegexp(mailbox)), extension.Table, extension.Strikethrough),
	goldmark.WithParserOptions(parser.WithInlineParsers(util.Prioritized(bareAddress{}, 998), util.Prioritized(asterisk{}, 499), util.Prioritized(taskBox{extension.NewTaskCheckBoxParser()}, 0)),
		parser.WithASTTransformers(util.Prioritized(partners{}, 999))),
	goldmark.WithRendererOptions(goldmarkhtml.WithHardWraps(), goldmarkhtml.WithUnsafe(), renderer.WithNodeRenderers(util.Prioritized(writtenTags{}, 100), util.Prioritized(extension.NewTaskCheckBoxHTMLRenderer(), 500))),
)

// mailbox is a mail address as GitHub finds it. goldmark's own has the marks of emphasis before it.
var mailbox = regexp.MustCompile(`^[a-zA-Z0-9.+_-]{1,64}@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)+`)

// From reads a text of a media type: text/markdown, text/html, or plain text, which is every other one (normalized.TextMIME).
func From(mime, content string) Document {
	switch text, _ := normalized.TextMIME(mime); text {
	case normalized.MIMEMarkdown:
		return FromMarkdown(content)
	case normalized.MIMEHTML:
		return FromHTML(content)
	}
	return FromText(content)
}

// FromMarkdown reads CommonMark with the extensions of GitHub. HTML in it counts where it formats text; other tags, such as those of
// Vec<String>, are words. A source whose reading would cost more than its length is worth, such as 64 KiB of "*a_", is read as plain text.
func FromMarkdown(source string) Document {
	if !tractable(source) {
		return FromText(source)
	}
	var out bytes.Buffer
	if err := reader.Convert([]byte(wholeRows(source)), &out); err != nil {
		return FromText(source)
	}
	tree, cut := Parse(out.String(), Limits{Bytes: 8 * maxMarkdown, Nodes: 2 * defaultNodes})
	if cut {
		return FromText(source)
	}
	return Document{body: shown(tree)}
}

// FromHTML reads a page or a piece of one. What a browser would not show as text, such as scripts, is left out.
// At the end of one that is longer than maxHTML, it says that text is missing.
func FromHTML(source string) Document {
	tree, cut := Parse(source, Limits{Bytes: maxHTML})
	body := shown(tree)
	if cut {
		note := newElement(atom.P)
		note.AppendChild(&html.Node{Type: html.TextNode, Data: "[The text was cut, because its HTML is very long.]"})
		body.AppendChild(note)
	}
	return Document{body: body}
}

// maxHTML is the largest text part of the message contract, in bytes.
const maxHTML = 1 << 20

// FromText reads plain text: an empty line ends a paragraph, and web addresses are links.
func FromText(text string) Document {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	d := Document{body: newElement(atom.Body), plain: strings.Trim(text, "\n")}
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if paragraph = strings.Trim(paragraph, "\n"); strings.TrimSpace(paragraph) == "" {
			continue
		}
		p := newElement(atom.P)
		d.body.AppendChild(p)
		for i, line := range strings.Split(paragraph, "\n") {
			if i > 0 {
				p.AppendChild(newElement(atom.Br))
			}
			addLine(p, line)
		}
	}
	return d
}

// addLine adds a line of plain text. Blanks at its beginning stay, because they indent.
func addLine(p *html.Node, line string) {
	content := strings.TrimLeft(line, " \t")
	add := func(text string) {
		if text != "" {
			p.AppendChild(&html.Node{Type: html.TextNode, Data: text})
		}
	}
	add(strings.Repeat("\u00a0", len(line)-len(content)))

	written := 0
	for at := 0; at < len(content); at++ {
		if content[at]|0x20 != 'h' || at > 0 && wordASCII(content[at-1]) {
			continue
		}
		length := addressLength(content[at:])
		if length == 0 {
			continue
		}

		add(content[written:at])
		link := newElement(atom.A)
		link.Attr = []html.Attribute{{Key: "href", Val: content[at : at+length]}}
		link.AppendChild(&html.Node{Type: html.TextNode, Data: content[at : at+length]})
		p.AppendChild(link)
		at += length
		written = at
		at--
	}
	add(content[written:])
}

func newElement(tag atom.Atom) *html.Node {
	return &html.Node{Type: html.ElementNode, DataAtom: tag, Data: tag.String()}
}

// Text writes the words of the document in a form, at most limit bytes; 0 means 512 KiB. What was read as plain text is plain text as it was.
func (d Document) Text(form Form, limit int) (text string, cut bool) {
	switch {
	case d.body == nil:
		return "", false
	case form == Plain && d.plain != "" && (limit <= 0 || len(d.plain) <= limit):
		return d.plain, false
	}
	return Text(d.body, form, limit)
}

// Source writes the document as HTML that FromHTML reads. It is not for a page.
func (d Document) Source() string {
	if d.body == nil {
		return ""
	}
	var out strings.Builder
	for child := d.body.FirstChild; child != nil; child = child.NextSibling {
		_ = html.Render(&out, child) // a string takes everything
	}
	return out.String()
}

// Size counts the characters that a reader sees, without blanks between elements.
func (d Document) Size() int {
	if d.body == nil {
		return 0
	}
	return size(d.body)
}

func size(n *html.Node) (characters int) {
	switch {
	case n.Type == html.TextNode && strings.TrimSpace(n.Data) == "":
		return 0
	case n.Type == html.TextNode:
		return utf8.RuneCountInString(n.Data)
	case n.DataAtom == atom.Hr:
		return 1
	case n.DataAtom == atom.Input:
		return len(checkboxOf(n))
	case n.DataAtom == atom.Img:
		return utf8.RuneCountInString(cmp.Or(attribute(n, "alt"), attribute(n, "src"))) // without a description its address is shown
	}
	for child := n.FirstChild; child != nil; child = child.NextSibling {
		characters += size(child)
	}
	return characters
}

// shown takes out of a tree what is no text for readers, and returns its body.
func shown(document *html.Node) *html.Node {
	body := document.FirstChild.LastChild
	clean(body)
	return body
}

func clean(n *html.Node) {
	for child := n.FirstChild; child != nil; {
		next := child.NextSibling
		switch child.DataAtom {
		case atom.Script, atom.Style, atom.Template, atom.Title, atom.Head, atom.Iframe, atom.Noscript, atom.Noembed, atom.Noframes, atom.Object,
			atom.Frame, atom.Frameset, atom.Audio, atom.Video, atom.Canvas:
			n.RemoveChild(child)
		case atom.Math:
			n.InsertBefore(&html.Node{Type: html.TextNode, Data: formulaOf(child)}, child)
			n.RemoveChild(child)
		case atom.Rt:
			clean(child)
			parenthesize(child)
		case atom.A:
			clean(child)
			clarify(child)
		case atom.Img:
			clarifyPicture(child, inside(child, atom.A))
		default:
			clean(child)
		}
		child = next
	}
}

// clarify makes a link lead where its author says, and shows the address of one that shows nothing else. What cannot be linked, such as a
// number to call or a path, is shown behind the words.
func clarify(a *html.Node) {
	address, links := linkable(attribute(a, "href"), "http", "https", "mailto")
	says := !links || showsSomething(a) // else the address of the link says more than that of a picture in it
	for node := range a.Descendants() {
		if node.DataAtom != atom.Img || attribute(node, "alt") != "" {
			continue
		}
		if _, found := linkable(attribute(node, "src"), "http", "https"); says {
			clarifyPicture(node, false)
		} else if !found {
			setAttribute(node, "src", "")
		}
	}
	shows := address
	if label, whole := shortText(a, maxAddress); links && showsSomething(a) || whole && sameAddress(label, address) {
		shows = ""
	} else if links {
		shows = strings.TrimPrefix(address, "mailto:")
	} else if shows != "" && showsSomething(a) {
		shows = " (" + address + ")"
	}

	if shows != "" {
		a.AppendChild(&html.Node{Type: html.TextNode, Data: shows})
	}
	if links {
		setAttribute(a, "href", address)
		return
	}
	for child := a.FirstChild; child != nil; child = a.FirstChild {
		a.RemoveChild(child)
		a.Parent.InsertBefore(child, a)
	}
	a.Parent.RemoveChild(a)
}

// clarifyPicture does the same for a picture, whose words are its description.
func clarifyPicture(img *html.Node, linked bool) {
	address, links := linkable(attribute(img, "src"), "http", "https")
	switch words := attribute(img, "alt"); {
	case links:
		setAttribute(img, "src", address)
	case address == "", linked && words == "":
	case words == "" || words == address:
		setAttribute(img, "src", "")
		setAttribute(img, "alt", address)
	default:
		setAttribute(img, "src", "")
		setAttribute(img, "alt", words+" ("+address+")")
	}
}

func inside(n *html.Node, tag atom.Atom) bool {
	for n, looked := n.Parent, 0; n != nil && looked < maxLooked; n, looked = n.Parent, looked+1 {
		if n.DataAtom == tag {
			return true
		}
	}
	return false
}

func setAttribute(n *html.Node, name, value string) {
	for i := range n.Attr {
		if n.Attr[i].Key == name {
			n.Attr[i].Val = value
			return
		}
	}
	n.Attr = append(n.Attr, html.Attribute{Key: name, Val: value})
}

// showsSomething reports whether a link has words or a picture.
func showsSomething(a *html.Node) bool {
	for node := range a.Descendants() {
		_, links := linkable(attribute(node, "src"), "http", "https")
		picture := node.DataAtom == atom.Img && (links || attribute(node, "alt") != "")
		if picture || node.Type == html.TextNode && strings.TrimSpace(node.Data) != "" {
			return true
		}
	}
	return false
}

// formulaOf returns the source of a formula, if its author gave one, instead of its glyphs.
func formulaOf(math *html.Node) string {
	from := math
	for node := range math.Descendants() {
		if node.Type == html.ElementNode && node.Data == "annotation" {
			from = node
			break
		}
	}
	var words strings.Builder
	collect(from, &words, maxAddress)
	return strings.Join(strings.Fields(words.String()), " ")
}

// parenthesize puts the pronunciation of ruby text into parentheses for readers that do not show it above, unless the page has its own.
func parenthesize(rt *html.Node) {
	if rt.PrevSibling != nil && rt.PrevSibling.DataAtom == atom.Rp {
		return
	}
	for _, one := range []struct {
		mark   string
		before *html.Node
	}{{"(", rt}, {")", rt.NextSibling}} {
		rp := newElement(atom.Rp)
		rp.AppendChild(&html.Node{Type: html.TextNode, Data: one.mark})
		rt.Parent.InsertBefore(rp, one.before)
	}
}
