package markup

import (
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"inbox/internal/clip"
)

// Limits bounds what is made of one HTML document. The zero value of a field is its default.
type Limits struct {
	Bytes int // of the source; default 512 KiB
	Nodes int // of the tree; default 100,000
	Depth int // of open elements; default 256. The text of deeper elements belongs to the deepest one that is kept

	// Hides reports whether a reader would not see an element. It is asked only beyond Depth, where an element that is
	// not kept could not be found hidden later.
	Hides func(*html.Node) bool
}

// Bounds of the tree that no use needs to choose.
const (
	defaultBytes = 512 << 10
	defaultNodes = 100_000
	defaultDepth = 256

	maxAttributes = 32 // of one element; further ones are dropped
	maxFormatting = 16 // formatting elements that are repeated in the following blocks
)

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = defaultBytes
	}
	if l.Nodes <= 0 {
		l.Nodes = defaultNodes
	}
	if l.Depth <= 0 {
		l.Depth = defaultDepth
	}
	return l
}

// Parse makes the tree of a document as browsers do (WHATWG HTML, section 13.2.6), in time and memory proportional to its
// length. golang.org/x/net/html does not: it repeats open formatting elements in every block and joins pieces of text by
// copying. The tree has the shape that html.Parse returns, html with head and body, without comments and doctype;
// framesets, foreign content and the modes of select are read as ordinary elements. It never fails. cut reports that the
// source is longer than the limits allow.
func Parse(source string, limits Limits) (document *html.Node, cut bool) {
	limits = limits.withDefaults()
	if len(source) > limits.Bytes {
		source, cut = clip.Bytes(source, limits.Bytes), true
	}

	b := newBuilder(limits)
	tokens := html.NewTokenizer(strings.NewReader(source))
	for {
		if b.work > limits.Nodes {
			cut = true
			break
		}

		kind := tokens.Next()
		if kind == html.ErrorToken {
			break
		}

		switch kind {
		case html.TextToken:
			if b.skipped == "" {
				b.addText(string(tokens.Text()))
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			b.start(element(tokens))
		case html.EndTagToken:
			name, _ := tokens.TagName()
			b.end(string(name))
		case html.DoctypeToken:
			b.standard = b.work == 0
		}
	}

	b.endText()
	return b.document, cut
}

func element(tokens *html.Tokenizer) *html.Node {
	name, more := tokens.TagName()
	node := &html.Node{Type: html.ElementNode, DataAtom: atom.Lookup(name)}
	if node.DataAtom != 0 {
		node.Data = node.DataAtom.String()
	} else {
		node.Data = string(name)
	}

	for more {
		var key, value []byte
		key, value, more = tokens.TagAttr()
		if len(node.Attr) < maxAttributes {
			node.Attr = append(node.Attr, html.Attribute{Key: string(key), Val: string(value)})
		}
	}

	return node
}

// builder grows a tree from tags.
type builder struct {
	limits               Limits
	document, html, body *html.Node

	open       []*html.Node // the stack of open elements, body first
	opened     map[string]int
	formatting []*html.Node // the list of active formatting elements; nil is a marker
	work       int          // nodes made; a copy counts its attributes too

	run     *html.Node // the text node that grows
	text    strings.Builder
	newline bool // a line break at the beginning of pre is not shown

	standard bool // a doctype stands first; without it a table does not end a paragraph

	deep    map[string]int // open elements beyond the depth, by name
	skipped string         // the name of a hidden element beyond the depth; empty = none
	skips   int
}

func newBuilder(limits Limits) *builder {
	b := &builder{limits: limits, opened: map[string]int{}, deep: map[string]int{}}
	b.document = &html.Node{Type: html.DocumentNode}
	b.html = &html.Node{Type: html.ElementNode, DataAtom: atom.Html, Data: "html"}
	head := &html.Node{Type: html.ElementNode, DataAtom: atom.Head, Data: "head"}
	b.body = &html.Node{Type: html.ElementNode, DataAtom: atom.Body, Data: "body"}
	b.document.AppendChild(b.html)
	b.html.AppendChild(head)
	b.html.AppendChild(b.body)
	b.open = append(b.open, b.body)
	return b
}

func (b *builder) top() *html.Node { return b.open[len(b.open)-1] }

// place returns where the next node goes: the end of the innermost open element, or the place before a table for what a
// table cannot hold.
func (b *builder) place(node *html.Node) (parent, before *html.Node) {
	top := b.top()
	if !tablePart(top.DataAtom) || inTable(node) {
		return top, nil
	}

	for i := len(b.open) - 1; i > 0; i-- {
		if table := b.open[i]; table.DataAtom == atom.Table {
			if table.Parent != nil {
				return table.Parent, table
			}
			return b.open[i-1], nil
		}
	}
	return top, nil
}

func inTable(node *html.Node) bool {
	switch node.DataAtom {
	case atom.Caption, atom.Colgroup, atom.Col, atom.Tbody, atom.Thead, atom.Tfoot, atom.Tr, atom.Td, atom.Th,
		atom.Style, atom.Script, atom.Template, atom.Form:
		return true
	}
	return node.Type == html.TextNode && strings.Trim(node.Data, " \t\r\n\f") == ""
}

func tablePart(tag atom.Atom) bool {
	return tag == atom.Table || tag == atom.Tbody || tag == atom.Thead || tag == atom.Tfoot || tag == atom.Tr
}

func (b *builder) insert(node *html.Node) {
	b.work++
	b.newline = false
	parent, before := b.place(node)
	if before != nil {
		parent.InsertBefore(node, before)
	} else {
		parent.AppendChild(node)
	}
}

func (b *builder) addText(text string) {
	if strings.IndexByte(text, 0) >= 0 {
		text = strings.ReplaceAll(text, "\x00", "")
	}
	if b.newline {
		text, b.newline = strings.TrimPrefix(text, "\n"), false
	}
	if text == "" || b.work == 0 && strings.Trim(text, " \t\r\n\f") == "" {
		return
	}

	b.reconstruct()
	node := &html.Node{Type: html.TextNode, Data: text}
	parent, before := b.place(node)
	last := parent.LastChild
	if before != nil {
		last = before.PrevSibling
	}
	if b.run == nil || last != b.run {
		b.endText()
		b.insert(node)
		b.run = node
	}

	b.text.WriteString(text)
}

// endText writes down the text that has grown.
func (b *builder) endText() {
	if b.run != nil {
		b.run.Data = b.text.String()
		b.run = nil
		b.text.Reset()
	}
}

func (b *builder) push(node *html.Node) {
	b.insert(node)
	b.open = append(b.open, node)
	b.opened[node.Data]++
}

func (b *builder) pop() {
	node := b.top()
	b.open = b.open[:len(b.open)-1]
	b.opened[node.Data]--
	if marks(node.DataAtom) {
		b.clearFormatting()
	}
	if len(b.deep) > 0 {
		clear(b.deep)
	}
}

// popTo closes the open element at an index and all that are inside of it.
func (b *builder) popTo(index int) {
	for len(b.open) > index {
		b.pop()
	}
}

// remove takes an element out of the open ones and leaves those inside of it open.
func (b *builder) remove(index int) {
	b.opened[b.open[index].Data]--
	b.open = slices.Delete(b.open, index, index+1)
}

// find returns the index of the innermost open element of a name that stands within a scope, or -1 (section 13.2.4.2).
func (b *builder) find(name string, border func(atom.Atom) bool) int {
	if b.opened[name] == 0 {
		return -1
	}

	for i := len(b.open) - 1; i > 0; i-- {
		switch node := b.open[i]; {
		case node.Data == name:
			return i
		case border(node.DataAtom):
			return -1
		}
	}
	return -1
}

func (b *builder) closeElement(name string, border func(atom.Atom) bool) bool {
	index := b.find(name, border)
	if index < 0 {
		return false
	}
	b.popTo(index)
	return true
}

// marks reports whether formatting outside of an element does not reach into it.
func marks(tag atom.Atom) bool {
	switch tag {
	case atom.Td, atom.Th, atom.Caption, atom.Applet, atom.Marquee, atom.Object, atom.Template:
		return true
	}
	return false
}

func scope(tag atom.Atom) bool       { return marks(tag) || tag == atom.Table }
func buttonScope(tag atom.Atom) bool { return scope(tag) || tag == atom.Button }
func listScope(tag atom.Atom) bool   { return scope(tag) || tag == atom.Ul || tag == atom.Ol }
func tableScope(tag atom.Atom) bool  { return tag == atom.Table || tag == atom.Template }
func noScope(atom.Atom) bool         { return false }

// formats reports whether an element is one of formatting (section 13.2.4.3).
func formats(tag atom.Atom) bool {
	switch tag {
	case atom.A, atom.B, atom.Big, atom.Code, atom.Em, atom.Font, atom.I, atom.Nobr, atom.S, atom.Small, atom.Strike, atom.Strong, atom.Tt, atom.U:
		return true
	}
	return false
}

// block reports whether an element ends a paragraph that is open before it.
func block(tag atom.Atom) bool {
	switch tag {
	case atom.Address, atom.Article, atom.Aside, atom.Blockquote, atom.Center, atom.Details, atom.Dialog, atom.Dir, atom.Div, atom.Dl,
		atom.Dd, atom.Dt, atom.Li, atom.Fieldset, atom.Figcaption, atom.Figure, atom.Footer, atom.Form, atom.H1, atom.H2, atom.H3, atom.H4,
		atom.H5, atom.H6, atom.Header, atom.Hgroup, atom.Hr, atom.Listing, atom.Main, atom.Menu, atom.Nav, atom.Ol, atom.P, atom.Plaintext,
		atom.Pre, atom.Search, atom.Section, atom.Summary, atom.Table, atom.Ul, atom.Xmp:
		return true
	}
	return false
}

// special reports whether an end tag of another name does not reach beyond an element (section 13.2.4.2).
func special(tag atom.Atom) bool {
	switch tag {
	case atom.Body, atom.Button, atom.Col, atom.Colgroup, atom.Iframe, atom.Img, atom.Input, atom.Noembed, atom.Noframes, atom.Noscript,
		atom.Script, atom.Select, atom.Style, atom.Tbody, atom.Textarea, atom.Tfoot, atom.Thead, atom.Title, atom.Tr:
		return true
	}
	return block(tag) || scope(tag)
}

func void(tag atom.Atom) bool {
	switch tag {
	case atom.Area, atom.Base, atom.Basefont, atom.Bgsound, atom.Br, atom.Col, atom.Command, atom.Embed, atom.Frame, atom.Hr, atom.Img,
		atom.Input, atom.Keygen, atom.Link, atom.Meta, atom.Param, atom.Source, atom.Track, atom.Wbr:
		return true
	}
	return false
}

// endsByItself reports whether an element needs no end tag.
func endsByItself(tag atom.Atom) bool {
	switch tag {
	case atom.Dd, atom.Dt, atom.Li, atom.Optgroup, atom.Option, atom.P, atom.Rb, atom.Rp, atom.Rt, atom.Rtc:
		return true
	}
	return false
}

func heading(tag atom.Atom) bool {
	switch tag {
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		return true
	}
	return false
}

func (b *builder) start(node *html.Node) {
	switch node.DataAtom {
	case atom.Html:
		b.describe(b.html, node)
		return
	case atom.Body:
		b.describe(b.body, node)
		return
	case atom.Head, atom.Frameset:
		return
	case atom.Image:
		node.DataAtom, node.Data = atom.Img, "img"
	}

	if b.skipped != "" {
		if node.Data == b.skipped && !void(node.DataAtom) {
			b.skips++
		}
		return
	}
	if node.DataAtom == atom.Form && b.opened["form"] > 0 {
		return
	}

	b.closeBefore(node)
	switch node.DataAtom {
	case atom.Table, atom.Caption, atom.Colgroup, atom.Col, atom.Tbody, atom.Thead, atom.Tfoot, atom.Tr, atom.Td, atom.Th:
		if !b.openTable(node) {
			return
		}
	}

	if !block(node.DataAtom) && !inTable(node) {
		b.reconstruct()
	}

	switch {
	case void(node.DataAtom):
		b.insert(node)
	case len(b.open) >= b.limits.Depth:
		b.flatten(node)
	default:
		b.push(node)
		b.newline = node.DataAtom == atom.Pre || node.DataAtom == atom.Listing || node.DataAtom == atom.Textarea
		if formats(node.DataAtom) {
			b.addFormatting(node)
		} else if marks(node.DataAtom) {
			b.formatting = append(b.formatting, nil)
		}
	}
}

// describe takes over the attributes of the first html or body tag.
func (b *builder) describe(known, node *html.Node) {
	if known.Attr == nil {
		known.Attr = node.Attr
	}
}

// flatten drops an element beyond the depth. Its text stays, unless it is hidden.
func (b *builder) flatten(node *html.Node) {
	if b.limits.Hides != nil && b.limits.Hides(node) {
		b.skipped, b.skips = node.Data, 1
		return
	}
	b.deep[node.Data]++
	if block(node.DataAtom) {
		b.insert(&html.Node{Type: html.ElementNode, DataAtom: atom.Br, Data: "br"})
	}
}

// closeBefore closes what a start tag ends.
func (b *builder) closeBefore(node *html.Node) {
	tag := node.DataAtom
	switch tag {
	case atom.Li:
		b.closeItem(atom.Li, atom.Li)
	case atom.Dd, atom.Dt:
		b.closeItem(atom.Dd, atom.Dt)
	case atom.Option, atom.Optgroup:
		if top := b.top().DataAtom; top == atom.Option {
			b.pop()
		}
	case atom.Button:
		b.closeElement("button", scope)
	case atom.A:
		if b.active("a") >= 0 {
			b.adopt("a")
		}
	case atom.Nobr:
		if b.find("nobr", scope) >= 0 {
			b.adopt("nobr")
		}
	case atom.Rb, atom.Rt, atom.Rtc, atom.Rp:
		for len(b.open) > 1 && ruby(b.top().DataAtom) {
			b.pop()
		}
	}

	if block(tag) && (tag != atom.Table || b.standard) {
		b.closeElement("p", buttonScope)
	}
	if heading(tag) && heading(b.top().DataAtom) {
		b.pop()
	}
}

func ruby(tag atom.Atom) bool {
	return tag == atom.Rb || tag == atom.Rt || tag == atom.Rtc || tag == atom.Rp
}

// closeItem closes the entry of a list that is open in the same list.
func (b *builder) closeItem(one, other atom.Atom) {
	if b.opened[one.String()]+b.opened[other.String()] == 0 {
		return
	}
	for i := len(b.open) - 1; i > 0; i-- {
		switch tag := b.open[i].DataAtom; {
		case tag == one || tag == other:
			b.popTo(i)
			return
		case tag == atom.Address || tag == atom.Div || tag == atom.P:
		case special(tag):
			return
		}
	}
}

// openTable makes the place for a table or a part of one, and reports whether the part is kept.
func (b *builder) openTable(node *html.Node) bool {
	tag := node.DataAtom
	table := b.find("table", func(tag atom.Atom) bool { return tag == atom.Template })
	if tag == atom.Table {
		if table >= 0 && tablePart(b.top().DataAtom) {
			b.popTo(table)
		}
		return true
	}
	if table < 0 {
		return false
	}

	keep := table + 1 // how many elements stay open
	section := keep < len(b.open) && tablePart(b.open[keep].DataAtom)
	row := section && keep+1 < len(b.open) && b.open[keep+1].DataAtom == atom.Tr
	switch tag {
	case atom.Tr:
		if section {
			keep++
		}
	case atom.Td, atom.Th:
		if section {
			keep++
		}
		if row {
			keep++
		}
	case atom.Col:
		if keep < len(b.open) && b.open[keep].DataAtom == atom.Colgroup {
			keep++
		}
	}

	b.popTo(keep)
	if (tag == atom.Tr || tag == atom.Td || tag == atom.Th) && !section {
		b.imply(atom.Tbody)
	}
	if (tag == atom.Td || tag == atom.Th) && !row {
		b.imply(atom.Tr)
	}
	if tag == atom.Col && b.top().DataAtom == atom.Table {
		b.imply(atom.Colgroup)
	}

	return true
}

func (b *builder) imply(tag atom.Atom) {
	if len(b.open) < b.limits.Depth {
		b.push(&html.Node{Type: html.ElementNode, DataAtom: tag, Data: tag.String()})
	}
}

func (b *builder) end(name string) {
	if b.skipped != "" {
		if name == b.skipped {
			if b.skips--; b.skips == 0 {
				b.skipped = ""
			}
		}
		return
	}
	if b.deep[name] > 0 {
		b.deep[name]--
		return
	}

	tag := atom.Lookup([]byte(name))
	switch {
	case tag == atom.Html || tag == atom.Body || tag == atom.Head:
	case tag == atom.Br:
		b.reconstruct()
		b.insert(&html.Node{Type: html.ElementNode, DataAtom: atom.Br, Data: "br"})
	case tag == atom.P:
		if !b.closeElement(name, buttonScope) && b.work > 0 {
			b.insert(&html.Node{Type: html.ElementNode, DataAtom: atom.P, Data: "p"})
		}
	case tag == atom.Li:
		b.closeElement(name, listScope)
	case tag == atom.Form:
		if index := b.find(name, scope); index > 0 {
			for endsByItself(b.top().DataAtom) {
				b.pop()
			}
			b.remove(index)
		}
	case heading(tag):
		b.closeHeading()
	case formats(tag):
		b.adopt(name)
	case tag == atom.Table, tag == atom.Tbody, tag == atom.Thead, tag == atom.Tfoot, tag == atom.Tr, tag == atom.Td, tag == atom.Th, tag == atom.Caption:
		b.closeElement(name, tableScope)
	case tag == atom.Template:
		b.closeElement(name, noScope)
	case block(tag), marks(tag), tag == atom.Button:
		b.closeElement(name, scope)
	default:
		b.closeElement(name, special)
	}
}

// closeHeading closes the innermost heading: people mix up their numbers.
func (b *builder) closeHeading() {
	for i := len(b.open) - 1; i > 0 && !scope(b.open[i].DataAtom); i-- {
		if heading(b.open[i].DataAtom) {
			b.popTo(i)
			return
		}
	}
}

// addFormatting remembers a formatting element, so that it is repeated in the next block when its end tag does not come
// before. Of equal ones three are kept (the Noah's Ark clause).
func (b *builder) addFormatting(node *html.Node) {
	equal, first, count := 0, -1, 0
	for i := len(b.formatting) - 1; i >= 0 && b.formatting[i] != nil; i-- {
		count++
		if known := b.formatting[i]; known.Data == node.Data && slices.Equal(known.Attr, node.Attr) {
			equal, first = equal+1, i
		}
	}

	switch {
	case equal >= 3:
		b.formatting = slices.Delete(b.formatting, first, first+1)
	case count >= maxFormatting:
		oldest := len(b.formatting) - count
		b.formatting = slices.Delete(b.formatting, oldest, oldest+1)
	}

	b.formatting = append(b.formatting, node)
}

func (b *builder) clearFormatting() {
	for len(b.formatting) > 0 {
		last := b.formatting[len(b.formatting)-1]
		b.formatting = b.formatting[:len(b.formatting)-1]
		if last == nil {
			return
		}
	}
}

// active returns the index of the last formatting element of a name behind the last marker, or -1.
func (b *builder) active(name string) int {
	for i := len(b.formatting) - 1; i >= 0 && b.formatting[i] != nil; i-- {
		if b.formatting[i].Data == name {
			return i
		}
	}
	return -1
}

// reconstruct opens the formatting elements again that a block has closed (section 13.2.4.3).
func (b *builder) reconstruct() {
	first := len(b.formatting)
	for first > 0 && b.formatting[first-1] != nil && !b.isOpen(b.formatting[first-1]) {
		first--
	}
	for i := first; i < len(b.formatting) && len(b.open) < b.limits.Depth; i++ {
		copied := b.copyOf(b.formatting[i])
		b.push(copied)
		b.formatting[i] = copied
	}
}

// isOpen looks from the innermost element outwards. An element of formatting stays near to the text that it formats.
func (b *builder) isOpen(node *html.Node) bool {
	if b.opened[node.Data] == 0 {
		return false
	}
	for i := len(b.open) - 1; i > 0; i-- {
		if b.open[i] == node {
			return true
		}
	}
	return false
}

func (b *builder) copyOf(node *html.Node) *html.Node {
	for _, one := range node.Attr {
		b.work += len(one.Val) / 64 // who reads the tree reads them again
	}
	return &html.Node{Type: html.ElementNode, DataAtom: node.DataAtom, Data: node.Data, Attr: slices.Clone(node.Attr)}
}

// adopt closes a formatting element. When a block is open inside of it, the block goes on without it: the adoption agency
// algorithm (section 13.2.6.4.7).
func (b *builder) adopt(name string) {
	if top := b.top(); top.Data == name && len(b.open) > 1 && !slices.Contains(b.formatting, top) {
		b.pop()
		return
	}
	for range 8 {
		entry := b.active(name)
		if entry < 0 {
			b.closeElement(name, special)
			return
		}

		element := b.formatting[entry]
		at := slices.Index(b.open, element)
		if at < 0 {
			b.formatting = slices.Delete(b.formatting, entry, entry+1)
			return
		}
		if slices.ContainsFunc(b.open[at+1:], func(node *html.Node) bool { return scope(node.DataAtom) }) {
			return
		}

		inside := slices.IndexFunc(b.open[at+1:], func(node *html.Node) bool { return special(node.DataAtom) })
		if inside < 0 {
			b.popTo(at)
			b.formatting = slices.Delete(b.formatting, entry, entry+1)
			return
		}

		b.moveOut(entry, at, at+1+inside)
		if b.work > b.limits.Nodes {
			return
		}
	}
}

// moveOut moves a block out of the formatting element around it, and repeats the element inside of the block.
func (b *builder) moveOut(entry, at, inside int) {
	element, furthest, around := b.open[at], b.open[inside], b.open[at-1]
	bookmark, last := entry, furthest
	for steps, i := 1, inside-1; i > at; steps, i = steps+1, i-1 {
		node := b.open[i]
		known := slices.Index(b.formatting, node)
		if known >= 0 && steps > 3 {
			b.formatting = slices.Delete(b.formatting, known, known+1)
			if known < bookmark {
				bookmark--
			}
			known = -1
		}
		if known < 0 {
			b.remove(i)
			inside--
			continue
		}

		copied := b.copyOf(node)
		b.work++
		b.formatting[known], b.open[i] = copied, copied

		if last == furthest {
			bookmark = known + 1
		}

		adoptChild(copied, last)
		last = copied
	}

	if tablePart(around.DataAtom) && around.Parent != nil {
		detach(last)
		around.Parent.InsertBefore(last, around)
	} else {
		adoptChild(around, last)
	}

	copied := b.copyOf(element)
	b.work++

	for child := furthest.FirstChild; child != nil; child = furthest.FirstChild {
		furthest.RemoveChild(child)
		copied.AppendChild(child)
	}

	furthest.AppendChild(copied)
	if known := slices.Index(b.formatting, element); known >= 0 {
		b.formatting = slices.Delete(b.formatting, known, known+1)
		if known < bookmark {
			bookmark--
		}
	}

	b.formatting = slices.Insert(b.formatting, min(bookmark, len(b.formatting)), copied)
	b.remove(at)
	b.open = slices.Insert(b.open, inside, copied) // inside is now one less, so this is right behind the block
	b.opened[copied.Data]++
}

func adoptChild(parent, child *html.Node) {
	detach(child)
	parent.AppendChild(child)
}

func detach(node *html.Node) {
	if node.Parent != nil {
		node.Parent.RemoveChild(node)
	}
}
