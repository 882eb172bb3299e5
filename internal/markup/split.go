package markup

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/rivo/uniseg"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Pieces cuts the document between its blocks. A block that is longer than limit, in characters that a reader sees, is cut inside: a list
// between items, code between lines, a table between rows, words between sentences. Each piece is whole: what is open is closed, and a list
// goes on with its next number, a table with its head, a quotation as a quotation.
func (d Document) Pieces(limit int) (pieces []Document) {
	if d.body == nil {
		return nil
	}
	limit = max(limit, 1)

	var words *html.Node // words and what marks them, outside of any block
	flush := func() {
		if words != nil {
			pieces = append(pieces, piecesOf(words, limit)...)
			words = nil
		}
	}
	for child := d.body.FirstChild; child != nil; {
		next := child.NextSibling
		d.body.RemoveChild(child)
		switch {
		case child.Type == html.ElementNode && (block(child.DataAtom) || margins[child.DataAtom] > 0):
			flush()
			pieces = append(pieces, piecesOf(child, limit)...)
		default:
			if words == nil {
				words = newElement(atom.P)
			}
			words.AppendChild(child)
		}
		child = next
	}
	flush()
	return pieces
}

func piecesOf(n *html.Node, limit int) (pieces []Document) {
	for rest := n; rest != nil; {
		head := rest
		if size(rest) > limit && !whole(rest.DataAtom) {
			head, rest = cutter{limit: limit}.cut(rest, limit, true)
		} else {
			rest = nil
		}
		body := newElement(atom.Body)
		body.AppendChild(head)
		if size(head) > 0 {
			pieces = append(pieces, Document{body: body})
		}
	}
	return pieces
}

// cutter cuts one block. What is no longer than limit, the length of a piece, is cut only between the blocks in it.
type cutter struct {
	limit int
	code  bool // inside of preformatted text
}

// cut takes the beginning of a node, of at most room characters, and takes the node apart. First says that the piece is empty so far, so that
// something is taken, whatever its length. Otherwise a nil head means that nothing was; a nil rest, that all was.
func (c cutter) cut(n *html.Node, room int, first bool) (head, rest *html.Node) {
	switch {
	case n.Type == html.TextNode:
		return c.words(n, room, first)
	case whole(n.DataAtom) && first:
		return n, nil
	case whole(n.DataAtom):
		return nil, n
	}

	c.code = c.code || n.DataAtom == atom.Pre
	head, rest = shallow(n), shallow(n)
	repeated := 0
	if n.DataAtom == atom.Table {
		repeated = takeHead(n, head, rest)
		room -= repeated
	}

	items, taken := 0, false
	for child := n.FirstChild; child != nil; child = n.FirstChild {
		n.RemoveChild(child)
		if length := size(child); length > room {
			if begin, end := c.child(child, room, length, first && !taken); begin != nil {
				head.AppendChild(begin)
				child, taken = end, true
			}
			if child != nil {
				rest.AppendChild(child)
			}
			break
		} else if length > 0 {
			room -= length
			taken = true
		}

		head.AppendChild(child)
		if child.DataAtom == atom.Li {
			items++
		}
	}
	move(n, rest)

	switch {
	case size(rest) == repeated:
		return head, nil
	case !taken:
		move(head, n)
		move(rest, n)
		return nil, n
	case n.DataAtom == atom.Ol:
		number, is := ordinal(n, "start")
		if !is {
			number = 1
		}
		rest.Attr = []html.Attribute{{Key: "start", Val: strconv.Itoa(number + items)}}
	}
	return head, rest
}

// child cuts a child that is longer than the room, unless it can go into the next piece as it is.
func (c cutter) child(n *html.Node, room, length int, first bool) (head, rest *html.Node) {
	if first || length > c.limit || n.Type == html.TextNode || container(n.DataAtom) {
		return c.cut(n, room, first)
	}
	return nil, n
}

func (c cutter) words(n *html.Node, room int, first bool) (head, rest *html.Node) {
	at := breakAt(n.Data, max(room, 0), c.code)
	if !first && at > byteIndex(n.Data, max(room, 0)) {
		return nil, n
	}
	before, after := n.Data[:at], n.Data[at:]
	if c.code {
		after = strings.TrimPrefix(after, "\n")
	} else {
		before, after = strings.TrimRightFunc(before, unicode.IsSpace), strings.TrimLeftFunc(after, unicode.IsSpace)
	}
	switch {
	case before == "" && !first:
		return nil, n
	case after != "":
		rest = &html.Node{Type: html.TextNode, Data: after}
	}
	return &html.Node{Type: html.TextNode, Data: before}, rest
}

// move moves the children of a node to the end of another one.
func move(from, to *html.Node) {
	for child := from.FirstChild; child != nil; child = from.FirstChild {
		from.RemoveChild(child)
		to.AppendChild(child)
	}
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

// takeHead moves the head of a table into the first part and a copy of it into the rest. It returns its length.
func takeHead(table, head, rest *html.Node) (length int) {
	for child := table.FirstChild; child != nil; child = child.NextSibling {
		if child.DataAtom != atom.Thead {
			continue
		}
		if length = size(child); length == size(table) {
			return 0
		}
		table.RemoveChild(child)
		head.AppendChild(child)
		rest.AppendChild(clone(child))
		return length
	}
	return 0
}

func clone(n *html.Node) *html.Node {
	copied := shallow(n)
	for child := n.FirstChild; child != nil; child = child.NextSibling {
		copied.AppendChild(clone(child))
	}
	return copied
}

// breakAt returns where a text is cut so that at most room characters come before: in code between lines; else after a sentence, or between
// words; else between two characters as readers see them (UAX #29).
func breakAt(text string, room int, code bool) int {
	end := byteIndex(text, room)
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
