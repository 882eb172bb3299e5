package markup

import (
	"iter"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Pieces cuts the document between its blocks. A block that is longer than limit, in characters that a reader sees, is cut inside: a list
// between items, code between lines, a table between rows, words between sentences. Each piece is whole: what is open is closed, and a list
// goes on with its next number, a table with its head if that takes at most half of the limit, a quotation as a quotation. The document is
// empty afterwards. All pieces together cost the length of the document and the elements that each piece repeats.
func (d Document) Pieces(limit int) iter.Seq[Document] {
	return func(yield func(Document) bool) {
		if d.body == nil {
			return
		}
		c := cutter{limit: max(limit, 1), counted: &counted{}}
		for n := d.nextBlock(); n != nil; n = d.nextBlock() {
			if !c.pieces(n, yield) {
				return
			}
		}
	}
}

// nextBlock takes the first block out of the document. Words outside of any block become a paragraph.
func (d Document) nextBlock() *html.Node {
	var words *html.Node
	for child := d.body.FirstChild; child != nil; child = d.body.FirstChild {
		isBlock := child.Type == html.ElementNode && (block(child.DataAtom) || margins[child.DataAtom] > 0)
		if isBlock && words != nil {
			break
		}
		d.body.RemoveChild(child)
		if isBlock {
			return child
		}
		if words == nil {
			words = newElement(atom.P)
		}
		words.AppendChild(child)
	}
	return words
}

// cutter cuts one block. What is no longer than limit, the length of a piece, is cut only between the blocks in it.
type cutter struct {
	limit int
	code  bool // inside of preformatted text
	*counted
}

// counted has the sizes of the nodes of a block that is cut. They are counted once and follow each cut: to count the rest again for every
// piece would cost the square of the length.
type counted struct {
	sizes  map[*html.Node]int // characters, as size counts them
	blanks map[*html.Node]int // bytes of white space at the end of a text: a rest that is no longer shows nothing
	looked int                // nodes and bytes that were looked at; a test compares it with the length
}

func (c *counted) count(n *html.Node) (characters int) {
	c.looked++
	switch {
	case n.Type == html.TextNode:
		c.looked += len(n.Data)
		characters = size(n)
		c.blanks[n] = len(n.Data) - len(strings.TrimRightFunc(n.Data, unicode.IsSpace))
	case whole(n.DataAtom):
		characters = size(n)
	default:
		for child := n.FirstChild; child != nil; child = child.NextSibling {
			characters += c.count(child)
		}
	}
	c.sizes[n] = characters
	return characters
}

// pieces yields a block, cut where it is too long. It returns false when no more pieces are wanted.
func (c cutter) pieces(n *html.Node, yield func(Document) bool) bool {
	c.sizes, c.blanks = map[*html.Node]int{}, map[*html.Node]int{}
	c.count(n)
	for all := false; !all; {
		head := n
		if all = c.sizes[n] <= c.limit || whole(n.DataAtom); !all {
			head, all = c.cut(n, c.limit, true)
		}
		body := newElement(atom.Body)
		body.AppendChild(head)
		if size(head) > 0 && !yield(Document{body: body}) {
			return false
		}
	}
	return true
}

// cut takes the beginning of a node, of at most room characters, out of the node. First says that the piece is empty so far, so that
// something is taken, whatever its length. Otherwise a nil head means that nothing was taken. All reports that the node has nothing left.
func (c cutter) cut(n *html.Node, room int, first bool) (head *html.Node, all bool) {
	switch {
	case n.Type == html.TextNode:
		return c.words(n, room, first)
	case whole(n.DataAtom) && first:
		return n, true
	case whole(n.DataAtom):
		return nil, false
	}

	c.code = c.code || n.DataAtom == atom.Pre
	head = shallow(n)
	titles := c.repeatedHead(n)
	repeated := c.sizes[titles]
	if titles != nil {
		room -= repeated
		head.AppendChild(clone(titles))
	}

	items, taken := 0, false
	var next *html.Node
	for child := n.FirstChild; child != nil; child = next {
		c.looked++
		if next = child.NextSibling; child == titles {
			continue
		}
		length := c.sizes[child]
		if length > max(room, 0) {
			begin, ends := c.child(child, room, length, first && !taken)
			if ends {
				n.RemoveChild(child)
				c.sizes[child] = 0
			}
			if begin != nil {
				head.AppendChild(begin)
				taken = true
			}
			c.sizes[n] -= length - c.sizes[child]
			break
		}

		n.RemoveChild(child)
		head.AppendChild(child)
		room -= length
		c.sizes[n] -= length
		taken = taken || length > 0
		if child.DataAtom == atom.Li {
			items++
		}
	}

	switch {
	case c.sizes[n] == repeated:
		return head, true
	case !taken:
		if titles != nil {
			head.RemoveChild(head.FirstChild)
		}
		for last := head.LastChild; last != nil; last = head.LastChild {
			head.RemoveChild(last)
			n.InsertBefore(last, n.FirstChild)
		}
		return nil, false
	case n.DataAtom == atom.Ol:
		number, is := ordinal(n, "start")
		if !is {
			number = 1
		}
		n.Attr = []html.Attribute{{Key: "start", Val: strconv.Itoa(number + items)}}
	}
	return head, false
}

// child cuts a child that is longer than the room, unless it can go into the next piece as it is.
func (c cutter) child(n *html.Node, room, length int, first bool) (head *html.Node, all bool) {
	if first || length > c.limit || n.Type == html.TextNode || container(n.DataAtom) {
		return c.cut(n, room, first)
	}
	return nil, false
}

func (c cutter) words(n *html.Node, room int, first bool) (head *html.Node, all bool) {
	end := byteIndex(n.Data, max(room, 0))
	at := breakAt(n.Data, end, c.code)
	c.looked += max(end, at)
	if !first && at > end {
		return nil, false
	}
	before, after := n.Data[:at], n.Data[at:]
	if c.code {
		after = strings.TrimPrefix(after, "\n")
	} else {
		before, after = strings.TrimRightFunc(before, unicode.IsSpace), strings.TrimLeftFunc(after, unicode.IsSpace)
	}
	if before == "" && !first {
		return nil, false
	}

	taken := n.Data[:len(n.Data)-len(after)]
	n.Data = after
	if c.sizes[n] -= utf8.RuneCountInString(taken); len(after) <= c.blanks[n] {
		c.sizes[n] = 0
	}
	return &html.Node{Type: html.TextNode, Data: before}, after == ""
}

// whole reports whether an element is not cut.
func whole(tag atom.Atom) bool {
	return tag == atom.Img || tag == atom.Input || tag == atom.Ruby || tag == atom.Br || tag == atom.Hr || tag == atom.Tr
}

// container reports whether an element has blocks, between which it may be cut.
func container(tag atom.Atom) bool {
	switch tag {
	case atom.Tbody, atom.Ul, atom.Ol, atom.Blockquote, atom.Div, atom.Table:
		return true
	}
	return false
}

func shallow(n *html.Node) *html.Node {
	return &html.Node{Type: n.Type, DataAtom: n.DataAtom, Data: n.Data, Attr: n.Attr}
}

// repeatedHead returns the head of a table that all of its pieces repeat, or nil.
func (c cutter) repeatedHead(table *html.Node) *html.Node {
	if table.DataAtom != atom.Table {
		return nil
	}
	for child := table.FirstChild; child != nil && child.DataAtom != atom.Tbody; child = child.NextSibling {
		if child.DataAtom == atom.Thead && 2*c.sizes[child] <= c.limit && c.sizes[child] < c.sizes[table] {
			return child
		}
	}
	return nil
}

func clone(n *html.Node) *html.Node {
	copied := shallow(n)
	for child := n.FirstChild; child != nil; child = child.NextSibling {
		copied.AppendChild(clone(child))
	}
	return copied
}

// breakAt returns where a text is cut so that at most its first end bytes come before: in code between lines; else after a sentence, or
// between words; else between two characters as readers see them (UAX #29).
func breakAt(text string, end int, code bool) int {
	if end == len(text) {
		return end
	}
	if code {
		if at := strings.LastIndexByte(text[:end], '\n'); at > 0 {
			return at
		}
		return characterAt(text, end)
	}
	if at := lastBreak(text[:end], end/2); at > 0 {
		return at
	}
	return characterAt(text, end)
}

// byteIndex returns where the first n code points end.
func byteIndex(text string, n int) int {
	for i := range text {
		if n == 0 {
			return i
		}
		n--
	}
	return len(text)
}

// lastBreak finds the best place to cut behind the given byte: a sentence, a word; 0 = there is none.
func lastBreak(text string, from int) int {
	for _, marks := range [][]string{{". ", "! ", "? ", "。", "！", "？", "… ", ".\n", "!\n", "?\n"}, {" ", "\n"}} {
		best := 0
		for _, mark := range marks {
			if at := strings.LastIndex(text, mark); at >= from && at+len(mark) > best {
				best = at + len(mark)
			}
		}
		if best > 0 {
			return best
		}
	}
	return 0
}

// characterAt returns the end of the last whole grapheme cluster before a byte, or of the first one where the text begins with one that is longer.
func characterAt(text string, end int) int {
	at, state := 0, -1
	for rest := text; rest != ""; {
		var one string
		one, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if at > 0 && at+len(one) > end {
			break
		}
		at += len(one)
	}
	return at
}
