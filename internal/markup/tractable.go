package markup

import "strings"

// Bounds of the Markdown that is rendered. goldmark looks from most marks to the end of their paragraph, so what a
// paragraph costs follows its marks times its length: about 4 ns for one mark and one byte.
const (
	maxMarkdown   = 256 << 10
	markWork      = 100_000   // marks × bytes for each KiB of the source
	markWorkFloor = 1_000_000 // of any source
	maxMarkers    = 24        // quotations and items that begin on one line
	maxIndent     = 100       // columns before an item, by which items are put into each other
	cellFloor     = 5_000     // cells of all tables, beside one for each byte of the source
)

// tractable estimates what rendering costs. It reads each line once and errs on the side of more: what it takes for the
// end of a paragraph surely is one (CommonMark 0.31).
func tractable(source string) bool {
	if len(source) > maxMarkdown {
		return false
	}

	e := estimate{allowed: markWorkFloor + markWork*len(source)/1024}
	fences := !hasHTMLBlock(source)
	fence := ""
	for line := range strings.SplitSeq(source, "\n") {
		line = strings.TrimSuffix(line, "\r")
		switch opened := opensFence(line); {
		case fence != "":
			if strings.HasPrefix(line, fence) && strings.Trim(line, fence[:1]+" \t") == "" {
				fence = ""
			}
		case fences && opened != "":
			e.endParagraph()
			fence = opened
		case !e.line(line):
			return false
		}
	}

	e.endParagraph()
	return e.work <= e.allowed && e.cells <= cellFloor+len(source) && e.brackets*e.definition <= 4*len(source)+64<<10
}

// hasHTMLBlock reports whether a line may begin a block of HTML, inside of which a fence is no fence.
func hasHTMLBlock(source string) bool {
	for line := range strings.SplitSeq(source, "\n") {
		if strings.HasPrefix(strings.TrimLeft(line, " \t>-*+.)0123456789"), "<") {
			return true
		}
	}
	return false
}

// opensFence returns the marks that open a block of code of the document itself; empty for another line.
func opensFence(line string) string {
	if len(line) < 3 || line[0] != '`' && line[0] != '~' {
		return ""
	}
	marks := len(line) - len(strings.TrimLeft(line, line[:1]))
	if marks < 3 || line[0] == '`' && strings.Contains(line[marks:], "`") {
		return ""
	}
	return line[:marks]
}

// estimate sums up what the paragraphs of a source cost.
type estimate struct {
	work, allowed int
	cells         int // of all tables, those among them by which short rows are filled up
	brackets      int // of the whole source: each may stand for a link that is defined elsewhere
	definition    int // bytes of the longest paragraph that may define one

	// Of the paragraph that is read.
	lines, marks, bytes int
	defines             int    // lines that may begin a definition
	numbered            byte   // the mark behind its number, when it begins as an item of a numbered list
	header              string // its first line
	columns             int    // of a table in it
	table               bool   // it surely is a table, the cells of which are read each by itself
}

// line takes one line, and reports false when the source is surely too much.
func (e *estimate) line(line string) bool {
	markers, indent := containers(line)
	if markers > maxMarkers || markers > 0 && indent > maxIndent {
		return false
	}

	blank, heading, number := emptyLine(line), headingLine(line), numberMark(line)
	if blank || heading || bulletLine(line) || number != 0 && number == e.numbered {
		e.endParagraph()
	}
	if blank {
		return e.work <= e.allowed
	}

	if e.lines++; e.lines == 1 {
		e.numbered, e.header = number, line
	}

	e.cells += e.columns
	if columns := delimiterColumns(line); columns > 0 {
		e.columns = max(e.columns, columns)
		e.table = e.table || e.lines == 2 && markers == 0 && plainHeader(e.header, line)
	}

	marks := countMarks(line)
	e.brackets += strings.Count(line, "[")

	if strings.Contains(line, "]:") {
		e.defines++
	}

	if e.table {
		e.work += marks * len(line)
	} else {
		e.marks += marks
	}

	e.bytes += len(line) + 1
	if heading {
		e.endParagraph()
	}

	return e.work+e.marks*e.bytes <= e.allowed && e.cells <= cellFloor+maxMarkdown
}

func (e *estimate) endParagraph() {
	e.work += (e.marks + e.defines) * e.bytes
	if e.defines > 0 {
		e.definition = max(e.definition, e.bytes)
	}
	e.lines, e.marks, e.bytes, e.defines, e.numbered, e.header, e.columns, e.table = 0, 0, 0, 0, 0, "", 0, false
}

// countMarks counts what makes a parser look ahead or back.
func countMarks(line string) (marks int) {
	for i := range len(line) {
		switch line[i] {
		case '*', '_', '~', '[', ']', '<', '`':
			marks++
		}
	}
	return marks
}

// containers counts the marks of quotations and items that a line begins with, and the columns before the last of them.
func containers(line string) (markers, indent int) {
	columns := 0
	for i := 0; i < len(line); {
		switch line[i] {
		case ' ':
			columns, i = columns+1, i+1
		case '\t':
			columns, i = columns+4, i+1
		case '>':
			markers, indent, i = markers+1, columns, i+1
		case '-', '+', '*':
			if !blankAt(line, i+1) {
				return markers, indent
			}
			markers, indent, i = markers+1, columns, i+1
		default:
			size := len(line[i:]) - len(strings.TrimLeft(line[i:], "0123456789"))
			if size == 0 || size > 9 || i+size == len(line) || line[i+size] != '.' && line[i+size] != ')' || !blankAt(line, i+size+1) {
				return markers, indent
			}
			markers, indent, i = markers+1, columns, i+size+1
		}
	}

	return markers, indent
}

func blankAt(line string, i int) bool { return i >= len(line) || line[i] == ' ' || line[i] == '\t' }

// emptyLine reports whether a line ends a paragraph by saying nothing.
func emptyLine(line string) bool {
	if strings.Trim(line, " \t") == "" {
		return true
	}
	return strings.Trim(line, "> ") == "" && !strings.Contains(line, "    ")
}

// outdented returns a line without up to three blanks; deeper, it may go on with a paragraph.
func outdented(line string) (string, bool) {
	content := strings.TrimLeft(line, " ")
	return content, len(line)-len(content) <= 3
}

func headingLine(line string) bool {
	content, ok := outdented(line)
	size := len(content) - len(strings.TrimLeft(content, "#"))
	return ok && size > 0 && size <= 6 && blankAt(content, size)
}

// bulletLine reports whether a line begins an item with words, which ends a paragraph; an empty item does not.
func bulletLine(line string) bool {
	content, ok := outdented(line)
	return ok && len(content) > 2 && strings.IndexByte("-+*", content[0]) >= 0 && blankAt(content, 1) && strings.TrimLeft(content[1:], " \t") != ""
}

// numberMark returns the mark behind the number of an item that begins a line, or 0.
func numberMark(line string) byte {
	size := len(line) - len(strings.TrimLeft(line, "0123456789"))
	if size == 0 || size > 9 || size+2 > len(line) || line[size] != '.' && line[size] != ')' || line[size+1] != ' ' {
		return 0
	}
	return line[size]
}

// delimiterColumns returns how many columns a line may add to a table, or 0 for another line.
func delimiterColumns(line string) int {
	if strings.Trim(line, "|:->+*.) \t0123456789") != "" || !strings.Contains(line, "-") {
		return 0
	}
	return strings.Count(line, "|") + 1
}

// plainHeader reports whether two lines that begin a paragraph surely begin a table: as many columns, and nothing that
// could hide a bar.
func plainHeader(header, delimiter string) bool {
	return strings.HasPrefix(header, "|") && strings.HasSuffix(header, "|") && strings.HasPrefix(delimiter, "|") && strings.HasSuffix(delimiter, "|") &&
		!strings.ContainsAny(header, "\\`") && strings.Count(header, "|") == strings.Count(delimiter, "|") && plainDelimiter(delimiter)
}

func plainDelimiter(line string) bool {
	for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
		if cell = strings.Trim(cell, " "); cell == "" || strings.Trim(strings.TrimSuffix(strings.TrimPrefix(cell, ":"), ":"), "-") != "" || !strings.Contains(cell, "-") {
			return false
		}
	}
	return true
}
