package markup

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"inbox/internal/clip"
)

// Form is the form of the text that is made of a tree.
type Form int

const (
	// Plain is for reading: quotations begin with >, items with - or a number, code is indented, emphasis has no marks, and
	// links are written as "text <address>".
	Plain Form = iota

	// Markdown is CommonMark with the tables and the strikethrough of GitHub. What the words themselves would say in
	// Markdown is escaped.
	Markdown
)

// Bounds of a text.
const (
	defaultText = 512 << 10
	maxNesting  = 16   // quotations and lists shown inside of each other: each costs a prefix on every line
	maxHeading  = 1000 // bytes; a heading that was never closed holds the rest of its document
	maxAddress  = 8192 // bytes; a link to a longer one is its words alone
	maxPadding  = 40   // the width to which the cells of a table are filled up
	maxColumns  = 100  // of a table that is written as one
	maxLooked   = 256  // nodes that are looked at to know a short text
)

// Text writes what a tree says, at most limit bytes and a few closing marks; 0 means 512 KiB. Nothing is hidden here: the
// caller removes first what a reader does not see. A word with U+0001 in it is written as it is, and one that begins with
// U+0000 or U+0001 may be taken out of the text later: the next word is escaped as if it began the line. cut reports that
// something was left out.
func Text(node *html.Node, form Form, limit int) (text string, cut bool) {
	if limit <= 0 {
		limit = defaultText
	}
	w := &writer{markdown: form == Markdown, limit: limit, fresh: true}
	w.node(node)
	w.endMarks()
	return strings.Trim(w.written(), "\n"), w.full
}

// writer writes a tree in one walk. Blanks and line breaks are pending until a word follows, so that none stands at an
// edge, and marks of emphasis touch the words that they mark.
type writer struct {
	markdown bool
	limit    int
	out      []byte
	full     bool // the limit is reached

	lines int  // pending line breaks; 2 is an empty line
	hard  bool // the pending break is one inside of a paragraph
	space bool // pending blank
	fresh bool // the next word needs no blank before it
	start bool // the next word is the first of its line
	after bool // its line follows another one of the same paragraph
	angle bool // a < was written as an entity, and its > will be

	prefix []prefix
	outer  int      // how many prefixes hold for an empty line that is pending
	counts []int    // the next number of each open list, or -1
	dots   []string // what follows it

	marks  []mark // open in the source
	shown  int    // how many of marks are written
	closed string // the mark that the text ends with
	nested [3]int // open elements of each kind of emphasis
	spots  []spot // where Markdown has emphasis: its marks follow from the characters on both sides
	spare  int    // bytes that the marks at spots may need

	loose   int // > 0: the length of the text when it ended with a character that needs an escape if another one follows at once
	address int // > 0: the length of the text when it ended with a web address that is no link
	ticked  int // > 0: the length of the text when it ended with code
	number  int // > 0: the length of the text when it ended with a number that begins its line
	bare    int // > 0: the length of the text when it ended with an escaped character
	linked  int // > 0: the length of the text when it ended with a link, or with its beginning

	titled bool // inside of a heading that has marks
	line   int  // > 0 inside of elements that stay on one line
	cells  int  // > 0 inside of the cells of a Markdown table
	inLink bool
	coded  bool // inside of code that has links: each text is code
}

// prefix begins each line of a quotation, an item or a heading.
type prefix struct {
	first, rest string
	used        bool
}

// mark stands around words.
type mark struct {
	open, close string
	kind        int // of emphasis in Markdown, the marks of which stand at spots
}

// link is the kind of other marks.
const link = -1

const (
	bold = iota
	italic
	struck
)

var emphases = [3]string{bold: "**", italic: "*", struck: "~~"}

func (w *writer) node(n *html.Node) {
	if w.full {
		return
	}
	switch n.Type {
	case html.TextNode:
		w.text(n.Data)
	case html.ElementNode:
		w.element(n)
	case html.DocumentNode:
		w.children(n)
	}
}

func (w *writer) children(n *html.Node) {
	for child := n.FirstChild; child != nil; child = child.NextSibling {
		w.node(child)
	}
}

func (w *writer) element(n *html.Node) {
	switch n.DataAtom {
	case atom.Head, atom.Script, atom.Style, atom.Template, atom.Title:
	case atom.Br:
		w.breakLine()
	case atom.Hr:
		w.breakLines(2)
		if w.line == 0 {
			w.flush()
			w.append("* * *")
			w.breakLines(2)
		}
	case atom.A:
		w.link(n)
	case atom.Img:
		w.image(n)
	case atom.Input:
		w.checkbox(n)
	case atom.Math:
		w.formula(n)
	case atom.Pre, atom.Listing, atom.Xmp, atom.Plaintext:
		w.code(n)
	case atom.Code, atom.Tt, atom.Kbd, atom.Samp:
		w.inlineCode(n)
	case atom.Blockquote:
		w.quotation(n)
	case atom.Ul, atom.Ol, atom.Menu, atom.Dir:
		w.list(n)
	case atom.Li:
		w.item(n)
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		w.heading(n)
	case atom.B, atom.Strong:
		w.emphasis(n, bold)
	case atom.I, atom.Em:
		w.emphasis(n, italic)
	case atom.S, atom.Del, atom.Strike:
		w.emphasis(n, struck)
	case atom.Rt:
		w.reading(n)
	case atom.Table:
		w.table(n)
	case atom.Td, atom.Th:
		w.cell(n)
	default:
		lines := margins[n.DataAtom]
		if w.markdown && lines == 1 && n.DataAtom != atom.Tr {
			lines = 2 // one break would not end the line
		}
		w.breakLines(lines)
		w.children(n)
		w.breakLines(lines)
	}
}

// margins are the line breaks around blocks.
var margins = map[atom.Atom]int{
	atom.P: 2, atom.Dl: 2, atom.Div: 1, atom.Section: 1, atom.Article: 1, atom.Header: 1, atom.Footer: 1, atom.Figure: 1,
	atom.Figcaption: 1, atom.Tr: 1, atom.Dt: 1, atom.Dd: 1, atom.Aside: 1, atom.Main: 1, atom.Nav: 1, atom.Address: 1, atom.Center: 1,
	atom.Form: 1, atom.Fieldset: 1, atom.Details: 1, atom.Summary: 1, atom.Caption: 1, atom.Hgroup: 1, atom.Search: 1, atom.Dialog: 1,
	atom.Option: 1, atom.Legend: 1,
}

// breakLines makes the next word begin a new line.
func (w *writer) breakLines(lines int) {
	switch {
	case lines == 0:
	case w.line > 0:
		w.space = true
	default:
		if lines > 1 {
			w.hard = false
		}
		w.lines = max(w.lines, lines)
	}
}

func (w *writer) breakLine() {
	if w.line > 0 {
		w.space = true
		return
	}
	w.hard = w.lines == 0
	w.lines++
}

// flush writes what is pending before a word, and reports whether the word begins its line.
func (w *writer) flush() (begins bool) {
	switch {
	case len(w.out) == 0:
		w.beginLine()
	case w.lines > 0:
		w.endMarks()
		w.after, w.angle = w.lines == 1, false
		if w.hard && w.markdown {
			w.append("  ")
		}
		if w.lines > 1 {
			w.emptyLine()
		}

		w.append("\n")
		w.beginLine()
	case w.space && !w.fresh:
		w.append(" ")
	default:
		w.endAddress()
		w.escapeLast()
	}

	w.lines, w.hard, w.space, w.outer = 0, false, false, len(w.prefix)
	begins, w.start, w.fresh = w.start, false, false

	for ; w.shown < len(w.marks); w.shown++ {
		switch next := w.marks[w.shown]; {
		case next.kind != link:
			w.openSpot(next.kind)
		case next.open == w.closed && next.open != "":
			w.out = w.out[:len(w.out)-len(next.open)] // the same emphasis goes on
		default:
			w.append(next.open)
			w.linked = len(w.out)
		}
		w.closed = ""
	}

	w.full = w.full || w.room() <= 0
	return begins
}

// room is how many bytes the text may still have.
func (w *writer) room() int { return w.limit - len(w.out) - w.spare }

func (w *writer) emptyLine() {
	w.append("\n")
	end := len(w.out)
	for i, one := range w.prefix {
		if i >= w.outer || !one.used {
			break
		}
		w.append(one.rest)
		if strings.TrimSpace(one.rest) != "" {
			end = len(w.out)
		}
	}
	w.out = w.out[:end]
}

func (w *writer) beginLine() {
	for i, one := range w.prefix {
		if one.used {
			w.append(one.rest)
		} else {
			w.append(one.first)
			w.prefix[i].used = true
		}
	}
	w.fresh, w.start = true, true
}

func (w *writer) append(text string) {
	w.out = append(w.out, text...)
	w.closed = ""
}

// within writes children behind a prefix.
func (w *writer) within(n *html.Node, first, rest string) {
	w.prefix = append(w.prefix, prefix{first: first, rest: rest})
	w.children(n)
	w.prefix = w.prefix[:len(w.prefix)-1]
	w.outer = min(w.outer, len(w.prefix))
}

func (w *writer) text(text string) {
	if w.coded {
		w.codeText(text)
		return
	}
	for !w.full {
		trimmed := strings.TrimLeftFunc(text, unicode.IsSpace)
		w.space = w.space || len(trimmed) < len(text)

		if trimmed == "" {
			return
		}

		end := strings.IndexFunc(trimmed, unicode.IsSpace)
		if end < 0 {
			end = len(trimmed)
		}

		w.word(trimmed[:end], end == len(trimmed))
		text = trimmed[end:]
	}
}

// word writes one word. last reports that its text ends with it, so that other elements may go on with the word.
func (w *writer) word(word string, last bool) {
	begins := w.flush()
	if room := w.room(); len(word) > room {
		word, w.full = clip.Bytes(word, max(room, 0)), true
	}
	if word == "" {
		return
	}

	if w.markdown {
		w.escaped(word, begins, last)
	} else {
		w.append(word)
	}
}

// escaped writes a word so that Markdown takes it as it is. begins reports that it begins a line.
func (w *writer) escaped(word string, begins, last bool) {
	if word[0] < 2 {
		w.start = begins // what follows may become the beginning
	}
	apart := (begins || len(w.out) == 0 || w.out[len(w.out)-1] == ' ') && !w.atSpot()
	before := len(w.out)
	number := begins || w.number > 0 && w.number == len(w.out)
	if rest := strings.TrimLeft(word, "0123456789"); number && rest == "" {
		w.number = len(w.out) + len(word)
	} else if number && !begins && (rest == "." || rest == ")") {
		w.append(word[:len(word)-1] + "\\") // the number that its line begins with ends here
		word = rest
	}
	if begins {
		word = w.escapedStart(word)
	} else if w.titled && strings.Trim(word, "#") == "" || strings.Trim(word, "-") == "" && bytes.HasSuffix(w.out, []byte("- ")) {
		w.append("\\") // marks at the end of a heading close it, and dashes alone are a rule
	}
	if strings.IndexByte(word, 1) >= 0 {
		w.append(word)
		return
	}

	first := len(w.out) > before // the first character is escaped
	addressed := 0               // the end of the address at i
	for i := 0; i < len(word); i++ {
		if i >= addressed && (word[i]|0x20) == 'h' && (i == 0 && apart || w.mayAddress()) {
			addressed = i + addressLength(word[i:])
			if address := word[i:addressed]; strings.ContainsAny(address, "[]") && (w.inLink || strayBracket(address) < len(address)) {
				w.out = append(w.out, word[i:i+strings.IndexByte(word[i:], ':')]...)
				i += strings.IndexByte(word[i:], ':')
				addressed = 0
				w.out = append(w.out, '\\', ':') // only its words are shown
				continue
			}
		}
		if i > 0 && i == addressed && strings.ContainsAny(word[i:], "<>") {
			w.out = append(w.out, nothing...) // an entity would belong to the address
		}
		switch c := word[i]; {
		case i < addressed && c == '|' && w.cells > 0:
			w.out = append(w.out, '\\', c)
		case i < addressed:
			w.out = append(w.out, c)
		case addressed > 0 && c == '*' && w.nested == [3]int{} && i+1 == len(word):
			w.out = append(w.out, c)
			w.loose = len(w.out)
		case c == '<' && opensTag(word, i, last):
			w.out, w.angle = append(w.out, "&lt;"...), true
		case c == '>' && w.angle:
			w.out, w.angle = append(w.out, "&gt;"...), false
		case w.escapes(word, i, begins, apart, last):
			w.out = append(w.out, '\\', c)
			w.bare = len(w.out)
		default:
			if w.out = append(w.out, c); i == 0 && first {
				w.bare = len(w.out)
			}
			if i+1 == len(word) && strings.IndexByte(`\*_~!]&`, c) >= 0 {
				w.loose = len(w.out)
			}
		}
	}
	if strings.Contains(word, "www.") || addressed > 0 && strings.Trim(word[addressed:], ".,;:!?'*|\\`()[]{}") == "" {
		w.address = len(w.out)
	}

	w.closed = ""
}

// mayAddress reports whether an address is found that follows the text at once.
func (w *writer) mayAddress() bool {
	end := len(w.out)
	return w.atSpot() || w.ticked == end || w.linked == end || w.bare != end && strings.IndexByte(beforeAddress+"[", w.out[end-1]) >= 0
}

// escapeLast escapes the last character of the text, because what follows at once gives it another meaning.
func (w *writer) escapeLast() {
	if w.atSpot() {
		return // the marks stand between
	}
	if last := w.loose - 1; w.loose > 0 && w.loose == len(w.out) {
		w.out = append(w.out[:last], '\\', w.out[last])
	}
	w.loose = 0
}

// endAddress ends an address before a character that would belong to it.
func (w *writer) endAddress() {
	if w.address > 0 && w.address == len(w.out) && !w.atSpot() { // tags end it, too
		if strings.IndexByte(`\*`, w.out[len(w.out)-1]) >= 0 {
			w.escapeLast()
		}
		w.append(nothing)
	}
}

// nothing is a comment, which keeps apart what Markdown would read as one.
const nothing = "<!-- -->"

func opensTag(word string, i int, last bool) bool {
	if i+1 == len(word) {
		return last
	}
	next := word[i+1]
	return letter(next) || next == '/' || next == '!' || next == '?'
}

// escapedStart writes the escape of a word that would begin a block, and returns the rest.
func (w *writer) escapedStart(word string) string {
	same := strings.Trim(word, word[:1]) == ""
	if w.after && strings.Trim(word, "|:-") == "" { // the line below the head of a table
		w.append("\\")
		return word
	}
	switch word[0] {
	case '#':
		if same && (len(word) <= 6 || w.titled) {
			w.append("\\")
		}
	case '>':
		w.append("\\")
		w.angle = false
	case '-', '=', '+':
		if same && (len(word) == 1 || w.after || word[0] == '-' && (len(word) > 2 || w.inItem())) {
			w.append("\\")
		}
	case '[': // the box of a task
		if box := strings.ToLower(word); !w.inLink && (box == "[" || box == "[x]") && w.inItem() {
			w.append("\\")
		}
	default:
		if end := len(word) - 1; end > 0 && end < 10 && (word[end] == '.' || word[end] == ')') && strings.Trim(word[:end], "0123456789") == "" {
			w.append(word[:end] + "\\")
			return word[end:]
		}
	}

	return word
}

func (w *writer) inItem() bool {
	last := len(w.prefix) - 1
	return last >= 0 && strings.TrimSpace(w.prefix[last].rest) == ""
}

// escapes reports whether a character of a word would be a mark. Begins says that the word begins a line, apart that nothing stands right before it, last that other words may
// follow at once.
func (w *writer) escapes(word string, i int, begins, apart, last bool) bool {
	next := byte(' ')
	if i+1 < len(word) {
		next = word[i+1]
	}
	alone := len(word) == 1 && apart && !begins && !last

	switch word[i] {
	case '`':
		return true
	case '|':
		return w.cells > 0
	case '[':
		return w.inLink
	case ']':
		return w.inLink || next == '(' || next == ':' || next == '['
	case '\\':
		return next > ' ' && next < 0x7f && !letter(next) && (next < '0' || next > '9')
	case '*':
		return !alone
	case '_':
		return !alone && (i == 0 || !endsInWord(word[:i]) || !beginsWithWord(word[i+1:]))
	case '~': // at the beginning of a word it ends nothing
		return !alone && (i > 0 || !apart || next == '~' || last || w.nested[struck] > 0 || strings.Contains(word, "://"))
	case '.': // the rest of its address would have the entity or the escape
		return strings.HasSuffix(word[:i], "www") && strings.ContainsAny(word[i:], "<>*_~&|\\")
	case '&':
		return (letter(next) || next == '#') && strings.IndexByte(word[i:min(len(word), i+32)], ';') > 0
	}

	return false
}

func endsInWord(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(text)
	return unicode.IsLetter(r) || unicode.IsDigit(r)
}

func beginsWithWord(text string) bool {
	r, _ := utf8.DecodeRuneInString(text)
	return unicode.IsLetter(r) || unicode.IsDigit(r)
}

func letter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// openMark begins a mark; it is written before the next word.
func (w *writer) openMark(open, closing string) { w.marks = append(w.marks, mark{open, closing, link}) }

// closeMark ends the innermost mark. Without a word in it nothing was written.
func (w *writer) closeMark() {
	last := len(w.marks) - 1
	one := w.marks[last]
	w.marks = w.marks[:last]
	if w.shown <= last {
		return
	}

	w.shown = last
	w.endMark(one)

	if one.open == one.close && one.kind == link {
		w.closed = one.close
	}
}

func (w *writer) endMark(one mark) {
	if w.loose > 0 && strings.IndexByte(`\*_~`, w.out[w.loose-1]) >= 0 {
		w.escapeLast()
	}
	if one.kind != link {
		w.addSpot(one.kind, true)
		return
	}
	w.append(one.close)
	w.linked = len(w.out)
}

// endMarks closes the marks at the end of a line; they open again on the next one.
func (w *writer) endMarks() {
	for ; w.shown > 0; w.shown-- {
		w.endMark(w.marks[w.shown-1])
	}
}

// emphasis marks words. What its author took back is marked in plain text too: without the marks it would say the opposite.
func (w *writer) emphasis(n *html.Node, kind int) {
	if w.nested[kind] > 0 || !w.markdown && kind != struck {
		w.children(n)
		return
	}
	w.nested[kind]++
	if w.markdown {
		w.marks = append(w.marks, mark{kind: kind})
	} else {
		w.openMark(emphases[kind], emphases[kind])
	}
	w.children(n)
	w.closeMark()
	w.nested[kind]--
}

// quotation writes "> " before each line.
func (w *writer) quotation(n *html.Node) {
	w.breakLines(2)
	if w.line > 0 || len(w.prefix) >= maxNesting {
		w.children(n)
	} else {
		w.within(n, "> ", "> ")
	}
	w.breakLines(2)
}

func (w *writer) list(n *html.Node) {
	number := -1
	if n.DataAtom == atom.Ol {
		number = 1
		if start, is := ordinal(n, "start"); is {
			number = start
		}
	}

	margin := 2
	if len(w.counts) > 0 {
		margin = 1
	}

	w.counts = append(w.counts, number)
	w.dots = append(w.dots, ".")
	if w.markdown && n.DataAtom == atom.Ol && follows(n, atom.Ol) { // another mark begins another list
		w.dots[len(w.dots)-1] = ")"
	}
	w.breakLines(margin)
	w.children(n)
	w.breakLines(margin)
	w.counts, w.dots = w.counts[:len(w.counts)-1], w.dots[:len(w.dots)-1]
}

// follows reports whether an odd number of neighbours of a kind stand before a node.
func follows(n *html.Node, tag atom.Atom) (odd bool) {
	for range maxLooked {
		if n = n.PrevSibling; n == nil || n.DataAtom != tag && (n.Type != html.TextNode || strings.TrimSpace(n.Data) != "") {
			break
		}
		odd = odd != (n.DataAtom == tag)
	}
	return odd
}

// ordinal is a number of an item that the author wrote.
func ordinal(n *html.Node, name string) (number int, is bool) {
	number, err := strconv.Atoi(attribute(n, name))
	return number, err == nil && number >= 0 && number < 1_000_000
}

func (w *writer) item(n *html.Node) {
	bullet := "- "
	if last := len(w.counts) - 1; last >= 0 && w.counts[last] >= 0 {
		if value, is := ordinal(n, "value"); is {
			w.counts[last] = value
		}
		bullet = strconv.Itoa(w.counts[last]) + w.dots[last] + " "
		w.counts[last]++
	}

	w.breakLines(1)
	if w.line > 0 || len(w.prefix) >= maxNesting {
		w.children(n)
	} else {
		w.within(n, bullet, strings.Repeat(" ", len(bullet)))
	}

	w.breakLines(1)
}

func (w *writer) heading(n *html.Node) {
	w.breakLines(2)
	switch title, whole := shortText(n, maxHeading); {
	case !whole || title == "" || w.line > 0:
		w.children(n)
	case w.markdown:
		w.line++
		w.titled = true
		w.within(n, strings.Repeat("#", int(n.Data[1]-'0'))+" ", "")
		w.titled = false
		w.line--
	default:
		w.line++
		w.children(n)
		w.line--
	}

	w.breakLines(2)
}

// code writes preformatted text line by line.
func (w *writer) code(n *html.Node) {
	var source strings.Builder
	collect(n, &source, w.room()+1)
	content := strings.TrimRight(source.String(), " \t\r\n")
	if w.line > 0 || strings.TrimSpace(content) == "" {
		w.breakLines(2)
		w.text(content)
		w.breakLines(2)
		return
	}

	fence, indent := "", "    "
	if w.markdown {
		fence, indent = strings.Repeat("`", max(3, longestRun(content, '`')+1)), ""
	}

	w.breakLines(2)
	marks := w.marks
	w.endMarks()
	w.marks = nil
	w.flush()

	if fence != "" {
		w.append(fence + language(n))
	}

	first := fence == ""
	for line := range strings.SplitSeq(content, "\n") {
		if !first {
			w.nextLine()
		}

		first = false
		if w.full = w.full || w.room() <= 0; w.full {
			break
		}

		if line = strings.TrimRight(line, "\r"); line != "" {
			w.append(indent + line)
		}
	}

	if fence != "" {
		w.nextLine()
		w.append(fence)
	}

	w.marks = marks
	w.breakLines(2)
}

// nextLine begins a line of preformatted text.
func (w *writer) nextLine() {
	w.append("\n")
	w.beginLine()
	w.fresh, w.start = false, false
}

// language is what programs that show code write as class: "language-go" or "lang-go".
func language(n *html.Node) string {
	for node, steps := n, 0; node != nil && steps < 4; node, steps = node.FirstChild, steps+1 {
		for class := range strings.FieldsSeq(clip.Bytes(attribute(node, "class"), 256)) {
			name, known := strings.CutPrefix(class, "language-")
			if !known {
				name, known = strings.CutPrefix(class, "lang-")
			}
			if known && len(name) <= 32 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-#.") == "" {
				return name
			}
		}
	}
	return ""
}

func (w *writer) inlineCode(n *html.Node) {
	if !w.markdown {
		w.children(n)
		return
	}

	if w.coded || leads(n) {
		outside := w.coded
		w.coded = true
		w.children(n)
		w.coded = outside
		return
	}
	var source strings.Builder
	collect(n, &source, w.room()+1)
	w.codeText(source.String())
}

// leads reports whether there is a link or a picture in an element.
func leads(n *html.Node) bool {
	looked := 0
	for node := range n.Descendants() {
		if node.DataAtom == atom.A || node.DataAtom == atom.Img {
			return true
		}
		if looked++; looked > maxLooked {
			break
		}
	}
	return false
}

func (w *writer) codeText(source string) {
	content := strings.Join(strings.Fields(source), " ")
	if content == "" {
		w.space = w.space || source != ""
		return
	}

	w.space = w.space || unicode.IsSpace(rune(source[0]))
	w.flush()
	if w.ticked > 0 && w.ticked == len(w.out) {
		w.append(nothing)
	}
	// Some read the escape of a bar as two backslashes, and a bracket in code may end the words of a link or of a definition.
	if w.cells > 0 && strings.Contains(content, `\|`) || w.inLink && strings.ContainsAny(content, "[]") || strings.Contains(content, "]:") {
		w.append("<code>" + tagged.Replace(content) + "</code>")
	} else {
		if w.cells > 0 {
			content = strings.ReplaceAll(content, "|", `\|`)
		}
		fence := strings.Repeat("`", longestRun(content, '`')+1)
		if content[0] == '`' || content[len(content)-1] == '`' {
			content = " " + content + " "
		}
		w.append(fence + content + fence)
		w.ticked = len(w.out)
	}
	w.full = w.full || w.room() <= 0
	w.space = w.space || unicode.IsSpace(rune(source[len(source)-1]))
}

// tagged writes the content of code between tags: no character of it is a mark.
var tagged = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `\`, "&#92;", "|", "&#124;", "`", "&#96;", "*", "&#42;", "_", "&#95;", "~", "&#126;",
	"[", "&#91;", "]", "&#93;", ":", "&#58;", "@", "&#64;", "!", "&#33;", ".", "&#46;")

// reading writes the pronunciation of ruby text in parentheses, unless the page brings its own.
func (w *writer) reading(n *html.Node) {
	bare := n.PrevSibling == nil || n.PrevSibling.DataAtom != atom.Rp
	if bare {
		w.text("(")
	}
	w.children(n)
	if bare {
		w.text(")")
	}
}

// formula writes the source of a formula instead of its glyphs.
func (w *writer) formula(n *html.Node) {
	for node := range n.Descendants() {
		if node.Type == html.ElementNode && node.Data == "annotation" {
			w.children(node)
			return
		}
	}
}

// checkboxOf is the state of a task; empty for another input.
func checkboxOf(n *html.Node) string {
	switch {
	case !strings.EqualFold(attribute(n, "type"), "checkbox"):
		return ""
	case hasAttribute(n, "checked"):
		return "[x]"
	}
	return "[ ]"
}

// checkbox writes the state of a task.
func (w *writer) checkbox(n *html.Node) {
	box := checkboxOf(n)
	if box == "" {
		return
	}

	w.flush()
	w.append(box)
	w.space = true
}

// image writes a picture that can be found, else its words.
func (w *writer) image(n *html.Node) {
	words, source := attribute(n, "alt"), attribute(n, "src")
	if !w.markdown && !w.inLink && words != source && linked(source, "http", "https") && len(source) < w.room() {
		w.text(strings.TrimSpace(words + " <" + source + ">"))
		return
	}
	if !w.markdown || !linked(source, "http", "https", "cid") {
		w.text(words)
		return
	}

	w.flush()
	w.append("![")
	w.linked = len(w.out)
	outside := w.inLink
	w.inLink, w.fresh = true, true
	w.line++
	marks, shown := w.marks, w.shown
	w.marks, w.shown = nil, 0
	w.text(words)
	w.marks, w.shown = marks, shown
	w.line--
	w.inLink, w.space, w.fresh = outside, false, false
	w.append("](" + w.target(source) + ")")
	w.linked = len(w.out)
}

// link writes words and where they lead.
func (w *writer) link(n *html.Node) {
	address := attribute(n, "href")
	if w.inLink || !linked(address, "http", "https", "mailto") || len(address) > w.room() {
		w.children(n)
		return
	}

	opening, closing := "[", "]("+w.target(address)+")"
	if !w.markdown {
		opening, closing = "", " <"+strings.TrimPrefix(address, "mailto:")+">"
		if label, whole := shortText(n, maxAddress); whole && sameAddress(label, address) {
			closing = ""
		}
	}

	w.inLink = true
	w.line++
	w.openMark(opening, closing)
	w.children(n)
	w.closeMark()
	w.line--
	w.inLink = false
}

// sameAddress reports whether words show the address that they lead to.
func sameAddress(words, address string) bool {
	address = strings.TrimSuffix(address, "/")
	words = strings.TrimSuffix(words, "/")
	return words == address || words == strings.TrimPrefix(address, "mailto:") || words == strings.TrimPrefix(address, "https://") || words == strings.TrimPrefix(address, "http://")
}

// linked reports whether an address may be shown: it has one of the schemes, and no more than 8 KiB.
func linked(address string, schemes ...string) bool {
	scheme, rest, _ := strings.Cut(address, ":")
	for _, known := range schemes {
		if strings.EqualFold(scheme, known) {
			return rest != "" && len(address) <= maxAddress
		}
	}
	return false
}

// target writes an address so that it ends where it ends (CommonMark 0.31, section 6.3).
func target(address string) string {
	address = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, address)
	if strings.ContainsAny(address, " ()<>\\") {
		return "<" + strings.NewReplacer(" ", "%20", "<", "%3C", ">", "%3E", `\`, "%5C").Replace(address) + ">"
	}
	return address
}

func (w *writer) target(address string) string {
	if address = target(address); w.cells > 0 {
		address = strings.ReplaceAll(address, "|", `\|`)
	}
	return address
}

// table writes a table with headings as one; without them it lays out a page, and its rows are lines.
func (w *writer) table(n *html.Node) {
	w.breakLines(2)
	if rows := rowsOf(n); w.markdown && w.line == 0 && len(rows) > 0 && hasHeading(rows[0]) {
		w.rows(n, rows)
	} else {
		w.children(n)
	}
	w.breakLines(2)
}

// rowsOf returns the rows of a table itself.
func rowsOf(table *html.Node) (rows []*html.Node) {
	for child := table.FirstChild; child != nil; child = child.NextSibling {
		switch child.DataAtom {
		case atom.Tr:
			rows = append(rows, child)
		case atom.Thead, atom.Tbody, atom.Tfoot:
			for row := child.FirstChild; row != nil; row = row.NextSibling {
				if row.DataAtom == atom.Tr {
					rows = append(rows, row)
				}
			}
		}
	}
	return rows
}

// hasHeading reports whether a row has a heading, and not more columns than a person reads.
func hasHeading(row *html.Node) bool {
	headings, cells := 0, 0
	for cell := row.FirstChild; cell != nil; cell = cell.NextSibling {
		switch cell.DataAtom {
		case atom.Th:
			headings, cells = headings+1, cells+1
		case atom.Td:
			cells++
		}
	}
	return headings > 0 && cells <= maxColumns
}

func (w *writer) rows(table *html.Node, rows []*html.Node) {
	for child := table.FirstChild; child != nil; child = child.NextSibling {
		if child.DataAtom == atom.Caption {
			w.children(child)
			w.breakLines(2)
		}
	}

	texts := w.cellsOf(rows)
	var widths []int
	for _, row := range texts {
		for i, text := range row {
			if i == len(widths) {
				widths = append(widths, 1)
			}
			widths[i] = max(widths[i], min(utf8.RuneCountInString(text), maxPadding))
		}
	}

	for i, row := range texts {
		if len(row) == 0 {
			continue
		}

		w.lines = max(w.lines, 1)
		if w.flush(); w.full {
			return
		}

		w.append("|")
		for column, text := range row {
			w.append(" " + text + strings.Repeat(" ", max(0, widths[column]-utf8.RuneCountInString(text))) + " |")
		}

		if i == 0 {
			w.nextLine()
			w.append("|")
			for column := range row {
				w.append(strings.Repeat("-", widths[column]+2) + "|")
			}
		}
	}
}

// cellsOf writes the cells of all rows, each on one line. It stops where the limit would be reached.
func (w *writer) cellsOf(rows []*html.Node) (texts [][]string) {
	cells := &writer{markdown: true, cells: 1, line: 1, inLink: w.inLink, nested: w.nested}
	room := w.room()
	for _, row := range rows {
		var text []string
		for cell := row.FirstChild; cell != nil && room > 0; cell = cell.NextSibling {
			if cell.DataAtom != atom.Td && cell.DataAtom != atom.Th || len(text) == maxColumns {
				continue
			}

			cells.limit, cells.out, cells.fresh, cells.space = room, cells.out[:0], true, false
			cells.children(cell)
			cells.endMarks()
			written := cells.written()
			text = append(text, written)
			room -= len(written) + 1
			w.full = w.full || cells.full
			cells.full = false
		}

		texts = append(texts, text)
	}

	return texts
}

// cell keeps the cells of a row apart.
func (w *writer) cell(n *html.Node) {
	for before := n.PrevSibling; before != nil; before = before.PrevSibling {
		if before.Type == html.ElementNode {
			w.space = true
			if w.cells == 0 && len(w.out) > 0 && w.lines == 0 {
				w.flush()
				w.append("|")
				w.space = true
			}
			break
		}
	}
	w.children(n)
}

// collect gathers the text of a subtree with its line breaks, a little more than limit bytes at most.
func collect(n *html.Node, out *strings.Builder, limit int) {
	for child := n.FirstChild; child != nil && out.Len() < limit; child = child.NextSibling {
		switch {
		case child.Type == html.TextNode:
			out.WriteString(child.Data)
		case child.DataAtom == atom.Br:
			out.WriteByte('\n')
		case child.DataAtom == atom.Img:
			out.WriteString(attribute(child, "alt"))
		default:
			collect(child, out, limit)
		}
	}
}

// shortText returns the words of a subtree, and whether these are all: it looks at a few nodes and at most limit bytes.
func shortText(n *html.Node, limit int) (text string, whole bool) {
	var out strings.Builder
	looked := 0
	for node := range n.Descendants() {
		if looked++; looked > maxLooked || out.Len() > limit {
			return "", false
		}
		switch {
		case node.Type == html.TextNode:
			out.WriteString(clip.Bytes(node.Data, limit+1))
		case node.DataAtom == atom.Img:
			out.WriteString(clip.Bytes(attribute(node, "alt"), limit+1))
		}
	}

	return strings.Join(strings.Fields(out.String()), " "), out.Len() <= limit
}

func longestRun(text string, of byte) int {
	longest, run := 0, 0
	for i := range len(text) {
		if text[i] != of {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}

func attribute(n *html.Node, name string) string {
	for _, one := range n.Attr {
		if one.Key == name {
			return strings.TrimSpace(one.Val)
		}
	}
	return ""
}

func hasAttribute(n *html.Node, name string) bool {
	for _, one := range n.Attr {
		if one.Key == name {
			return true
		}
	}
	return false
}
