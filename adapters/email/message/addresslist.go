package message

import (
	"bytes"
	"net/mail"
	"slices"
	"strings"
)

// Lists that keep the grammar of RFC 5322, section 3.4, are read by net/mail. It refuses a whole list for one address that does not, so
// the others are read here, entry by entry: a comma or a semicolon ends an entry, the last address in angle brackets is its mailbox, and what
// stands before it is the display name. Without such an address, each word with an @ is a mailbox.

// oddList is a list that does not keep the grammar.
type oddList struct {
	text   string
	masked []byte // text, with the bytes of quoted strings and of comments replaced, so that offsets are the same
	most   int
	boxes  []Mailbox
	orphan string // a name without an address before a comma: the first half of "Smith, Bob <bob@x.test>"
}

const (
	maskQuoted  = 0x01
	maskComment = ' '
	blanks      = " \t"
	closers     = " \t,;<@(.\""
)

// readList returns the mailboxes of a list, at most the given number.
func readList(text string, most int) []Mailbox {
	parser := mail.AddressParser{WordDecoder: wordDecoder}
	listed, err := parser.ParseList(text)
	if err != nil {
		return readOddList(text, most, true)
	}

	boxes := make([]Mailbox, 0, min(len(listed), most))
	for _, one := range listed {
		if box, err := toMailbox(one); err == nil && len(boxes) < most {
			boxes = append(boxes, box)
		}
	}
	return boxes
}

// readOddList reads a list that net/mail refuses. deeper also reads entries without a mailbox whose whole text is quoted or in encoded words.
func readOddList(text string, most int, deeper bool) []Mailbox {
	list := &oddList{text: text, masked: mask(text), most: most}
	start, lastGroup, bare := 0, bytes.LastIndexByte(list.masked, ';'), true // bare: nothing of an address came in this entry
	for at := 0; at <= len(text) && len(list.boxes) < most; at++ {
		if at == len(text) {
			list.entry(start, at, deeper)
			break
		}

		switch list.masked[at] {
		case ',', ';':
			list.entry(start, at, deeper)
			if list.masked[at] == ';' {
				list.orphan = ""
			}
			start, bare = at+1, true

		case '@', '<':
			bare = false
		case ':':
			if bare && at < lastGroup { // the end of the name of a group
				start, list.orphan = at+1, ""
			}
		}
	}
	return list.boxes[:min(len(list.boxes), most)]
}

// mask replaces quoted strings and comments. A quote or a parenthesis that is not closed where such a thing ends is a character like any other.
func mask(text string) []byte {
	masked := []byte(text)
	quotes, comments := true, true // there may be another end
	for at := 0; at < len(text); at++ {
		switch {
		case text[at] == '"' && quotes && (at == 0 || strings.IndexByte(" \t,;:<)", text[at-1]) >= 0):
			end := closingQuote(text, at)
			if quotes = end > 0; !quotes {
				continue
			}
			if end+1 == len(text) || strings.IndexByte(closers, text[end+1]) >= 0 {
				fill(masked[at:end+1], maskQuoted)
				at = end
			}

		case text[at] == '(' && comments:
			end := closingParenthesis(text, at)
			if comments = end > 0; comments {
				fill(masked[at:end+1], maskComment)
				at = end
			}
		}
	}
	return masked
}

func fill(bytes []byte, with byte) {
	for i := range bytes {
		bytes[i] = with
	}
}

// closingQuote returns where the quoted string that opens at start ends; 0 = nowhere.
func closingQuote(text string, start int) int {
	for at := start + 1; at < len(text); at++ {
		switch text[at] {
		case '\\':
			at++
		case '"':
			return at
		}
	}
	return 0
}

// closingParenthesis returns where the comment that opens at start ends; 0 = nowhere.
func closingParenthesis(text string, start int) int {
	depth := 0
	for at := start; at < len(text); at++ {
		switch text[at] {
		case '\\':
			at++
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return at
			}
		}
	}
	return 0
}

// entry reads one entry of the list.
func (l *oddList) entry(start, end int, deeper bool) {
	if l.angles(start, end) || l.words(start, end) {
		l.orphan = ""
		return
	}

	raw := strings.Trim(l.text[start:end], blanks)
	if deeper && strings.ContainsAny(raw, "@?") {
		plain := strings.ReplaceAll(DecodeWords(raw), `"`, " ")
		if found := readOddList(plain, l.most-len(l.boxes), false); len(found) > 0 {
			l.boxes, l.orphan = append(l.boxes, found...), ""
			return
		}
	}

	if raw != "" && l.orphan != "" {
		raw = l.orphan + ", " + raw
	}
	if len(raw) > MaxIDBytes {
		raw = ""
	}
	l.orphan = raw
}

// angles adds the last mailbox in angle brackets, and those directly before it: there a comma is missing.
func (l *oddList) angles(start, end int) bool {
	first := len(l.boxes)
	for stop := end; len(l.boxes) < l.most; {
		open := start + bytes.LastIndexByte(l.masked[start:stop], '<')
		if open < start {
			break
		}

		shut := stop
		if inside := bytes.IndexByte(l.masked[open:stop], '>'); inside >= 0 {
			shut = open + inside
		}
		box, ok := readSpec(l.text[open+1 : shut])
		if ok {
			box.Name = l.name(start, open)
			l.boxes = append(l.boxes, box)
		}
		if ok && !bytes.HasSuffix(bytes.TrimRight(l.masked[start:open], blanks), []byte(">")) {
			break
		}
		stop = open
	}

	slices.Reverse(l.boxes[first:])
	return len(l.boxes) > first
}

// name makes a display name of what stands before a mailbox.
func (l *oddList) name(start, end int) string {
	text := strings.TrimLeft(strings.TrimRight(l.text[start:end], " \t<"), blanks)
	if l.orphan != "" {
		text = l.orphan + ", " + text
	}
	if len(text) > maxWord {
		return ""
	}
	return DisplayName(unquote.Replace(DecodeWords(text)))
}

var unquote = strings.NewReplacer(`\"`, `"`, `\\`, `\`, `"`, "")

// words adds each word that is a mailbox.
func (l *oddList) words(start, end int) bool {
	first := len(l.boxes)
	var rest []string
	for at := start; at < end && len(l.boxes) < l.most; {
		begin, stop := l.word(at, end)
		word := l.text[begin:stop]
		switch box, ok := readSpec(word); {
		case ok:
			l.boxes = append(l.boxes, box)
		case word != "" && len(rest) < maxDisplayName:
			rest = append(rest, word)
		}
		at = stop + 1
	}

	if name := strings.Join(rest, " "); len(l.boxes) == first+1 && len(name) <= maxWord {
		l.boxes[first].Name = DisplayName(unquote.Replace(DecodeWords(name)))
	}
	return len(l.boxes) > first
}

// word returns the bounds of the first word; blanks around an @ are parts of it (RFC 5322, section 4.4).
func (l *oddList) word(at, end int) (begin, stop int) {
	for at < end && l.blank(at) {
		at++
	}
	begin = at
	for ; at < end; at++ {
		if !l.blank(at) {
			continue
		}
		next := at
		for next < end && l.blank(next) {
			next++
		}
		if next == end || l.masked[next] != '@' && (at == begin || l.masked[at-1] != '@') {
			return begin, at
		}
		at = next
	}
	return begin, end
}

func (l *oddList) blank(at int) bool { return l.masked[at] == ' ' || l.masked[at] == '\t' }

// readSpec reads one address as programs write it: in quotes, with mailto:, with a route, with blanks around the @.
func readSpec(text string) (Mailbox, bool) {
	if len(text) > maxWord || strings.IndexByte(text, '@') < 0 {
		return Mailbox{}, false
	}

	text = strings.Trim(text, " \t<>[]'`")
	if at := strings.LastIndexByte(text, '@'); at > 0 {
		local, domain := strings.TrimRight(text[:at], blanks), strings.TrimLeft(text[at+1:], blanks)
		if !strings.HasPrefix(local, `"`) {
			local = local[strings.LastIndexByte(local, ':')+1:]
		}
		domain, _, _ = strings.Cut(domain, "?") // of mailto:
		text = unquotedLocal(local) + "@" + strings.TrimRight(domain, ":>'\"")
	}

	box, err := ParseMailbox(text)
	return box, err == nil
}

// unquotedLocal returns a local part without its quotes (RFC 5321, section 4.1.2).
func unquotedLocal(local string) string {
	if len(local) < 3 || local[0] != '"' || local[len(local)-1] != '"' {
		return local
	}
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(local[1 : len(local)-1])
}

// everyReading returns the only mailbox that any program could read from a text, whatever it holds for quoted, commented or encoded. ok is
// false where two of them could read different ones, or where one of them cannot be read here.
func everyReading(text string) (only Mailbox, ok bool) {
	for at := range len(text) {
		if text[at] != '@' {
			continue
		}

		box, one := readingAt(text, at)
		switch {
		case !one:
			return Mailbox{}, false
		case box == Mailbox{}:
		case only != Mailbox{} && only.Key() != box.Key():
			return Mailbox{}, false
		default:
			only = box
		}
	}
	return only, only != Mailbox{}
}

// structural characters end what could be an address around an @.
const structural = " \t\"(),:;<>@[]\\" + quotes

// quotes are also letters of local parts.
const quotes = "'`"

// readingAt returns the mailbox around the @ at the given offset; an empty one means that none is there, as in "Ann @work".
func readingAt(text string, at int) (box Mailbox, ok bool) {
	before, after := strings.TrimRight(text[:at], blanks), strings.TrimLeft(text[at+1:], blanks)
	local := before[strings.LastIndexAny(before, strings.TrimRight(structural, quotes))+1:]
	domain := after
	if end := strings.IndexAny(after, structural); end >= 0 {
		domain = after[:end]
	}

	switch ends := strings.Trim(local, quotes) != local; {
	case ends && local != "" && strings.HasPrefix(after[len(domain):], local[:1]) && strings.Trim(local[1:], quotes) == local[1:]: // 'ann@x.test'
		local = local[1:]
	case ends:
		return Mailbox{}, false
	}

	apart := len(before) < at || len(after) < len(text)-at-1
	switch {
	case domain == "" && after != "" && strings.IndexByte(",;>@", after[0]) < 0, local == "" && before != "" && strings.IndexByte(`"<)\`, before[len(before)-1]) >= 0:
		return Mailbox{}, false // a literal, a quoted local part, a comment beside the @, a route
	case goesOn(strings.TrimSuffix(before, local), local, domain, after[len(domain):]):
		return Mailbox{}, false
	case local == "", domain == "", apart && !strings.Contains(domain, ".") && leadsToAngle(after):
		return Mailbox{}, true
	}

	box, err := ParseMailbox(local + "@" + domain)
	return box, err == nil
}

// goesOn reports whether a dot next to blanks or comments joins more words to a local part or a domain (RFC 5322, section 4.4): "a. ceo@x.test" is
// the mailbox of a.ceo to some programs.
func goesOn(before, local, domain, after string) bool {
	before, after = withoutLastComments(before), withoutFirstComments(after)
	wordBefore := before != "" && strings.IndexByte("<>,;:", before[len(before)-1]) < 0
	wordAfter := after != "" && strings.IndexByte("<>,;:", after[0]) < 0
	return strings.HasSuffix(before, ".") || wordBefore && strings.HasPrefix(local, ".") || strings.HasPrefix(after, ".") || wordAfter && strings.HasSuffix(domain, ".")
}

// withoutLastComments cuts comments and blanks at the end. A parenthesis that opens nowhere stays.
func withoutLastComments(text string) string {
	for {
		text = strings.TrimRight(text, blanks)
		if !strings.HasSuffix(text, ")") {
			return text
		}
		depth, at := 0, len(text)-1
		for ; at >= 0; at-- {
			if text[at] == ')' {
				depth++
			} else if text[at] == '(' {
				if depth--; depth == 0 {
					break
				}
			}
		}
		if at < 0 {
			return text
		}
		text = text[:at]
	}
}

// withoutFirstComments cuts comments and blanks at the start. A parenthesis that is not closed stays.
func withoutFirstComments(text string) string {
	for {
		text = strings.TrimLeft(text, blanks)
		if !strings.HasPrefix(text, "(") {
			return text
		}
		end := closingParenthesis(text, 0)
		if end == 0 {
			return text
		}
		text = text[end+1:]
	}
}

// leadsToAngle reports whether only words stand before the next mailbox in angle brackets, so that none of them is an address.
func leadsToAngle(text string) bool {
	next := strings.IndexAny(text, strings.TrimLeft(structural, blanks))
	if next < 0 || text[next] != '<' {
		return false
	}
	inside, _, closed := strings.Cut(text[next+1:], ">")
	_, mailbox := readSpec(inside)
	return closed && mailbox
}
