package text

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// fresh returns what a mail says itself: its text without the mail that it answers and without the signature. Rules are
// conservative, because a stripper that is too greedy eats forwarded mails and inline answers: what is not surely old
// stays, a forwarded mail stays whole, and so does a text of which nothing would be left. All work is by lines.
func fresh(text, subject string, answers bool) string {
	said, _ := parted(text, subject, "", answers)
	return said
}

// parted returns what a mail says itself, and as unmarked the lines that were cut only because they look like the header of an old mail and
// what follows it: a person can write the same. sender is the name and the address of the author; empty = not known.
func parted(text, subject, sender string, answers bool) (said, unmarked string) {
	lines := strings.Split(text, "\n")
	if forwards(subject) || !answers && hasForwardMark(lines) {
		return text, ""
	}

	kept, cut := cutQuoted(lines, answers)
	kept = cutSignature(kept, sender)
	// Thunderbird and others put the signature below the quotation.
	if again, more := cutQuoted(kept, answers); len(again) < len(kept) {
		kept, cut = cutSignature(again, sender), append(more, cut...)
	}

	// A mark inside of what was cut belongs to an older mail.
	if len(kept) == len(lines) || hasForwardMark(kept) {
		return text, ""
	}

	if result := strings.TrimSpace(strings.Join(trimEnd(kept), "\n")); visible(result) {
		return result, strings.Join(cut, "\n")
	}

	return text, ""
}

func visible(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsSpace(r) && unicode.IsGraphic(r) })
}

// cutQuoted takes the answered mail away: below the header or the line that the sender's program put above it, quoted
// with > to the end under a line that says who wrote it, or the only quotation with such a line anywhere. unmarked is what was cut below a
// header or a line and has no > in front.
func cutQuoted(lines []string, answers bool) (kept, unmarked []string) {
	lines = lines[:len(trimEnd(lines))]
	at := outlookHeader(lines, answers)
	if answers {
		if below := unquotedOriginal(lines); below >= 0 && (at < 0 || below < at) {
			at = below
		}
	}

	if at >= 0 && !answersBelow(lines[at:]) {
		return withoutRule(trimEnd(lines[:at])), lines[at:]
	}

	block, single := lastQuotation(lines)
	if block.quotes == 0 {
		return lines, nil
	}

	above, shared := announcedAbove(lines, block)
	if above < 0 && !announcedInside(lines[block.start:block.end]) {
		return lines, nil
	}

	if above < 0 {
		above = block.start
	}

	kept = trimEnd(lines[:above])
	// Proton puts the mark of Outlook above the line that says who wrote.
	if last := len(kept) - 1; last >= 0 && separates(kept[last]) {
		kept = trimEnd(kept[:last])
	}

	if shared != "" {
		kept = append(slices.Clone(kept), shared)
	}

	rest := lines[block.end:]
	if len(rest) == 0 {
		return kept, nil
	}

	// The sender's own words stand below, or on both sides: only the quotation goes, and only when it is the one that there is.
	if !single || shared != "" || len(cutSignature(kept, "")) < len(kept) || quotesOtherwise(kept) || quotesOtherwise(rest) {
		return lines, nil
	}

	for blank(rest[0]) {
		rest = rest[1:] // not the last one: block.end is the end of the text otherwise
	}

	return slices.Concat(kept, []string{""}, rest), nil
}

// quotation is a run of quoted lines; blank lines inside belong to it.
type quotation struct{ start, end, quotes int }

// lastQuotation returns the last quotation and reports whether it is the only one.
func lastQuotation(lines []string) (last quotation, single bool) {
	for i := range lines {
		switch {
		case quoted(lines[i]) && !closesAddress(lines, i), last.quotes > 0 && last.end == i && brokenLink(lines, i):
			if last.quotes == 0 || last.end < i {
				single = last.quotes == 0
				last = quotation{start: i}
			}
			last.end, last.quotes = i+1, last.quotes+1
		case last.quotes > 0 && last.end == i && blank(lines[i]) && quotedNext(lines, i):
			last.end = i + 1
		}
	}
	return last, single
}

// quotedNext reports whether a quoted line follows a few blank ones.
func quotedNext(lines []string, from int) bool {
	for i := from; i < len(lines) && i < from+4; i++ {
		if !blank(lines[i]) {
			return quoted(lines[i])
		}
	}
	return false
}

// brokenLink reports whether a line is the rest of a link that was cut off the quoted line above it.
func brokenLink(lines []string, i int) bool {
	line := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(lines[i]), ">"))
	if line == "" || strings.ContainsAny(line, " \t") || !quoted(lines[i-1]) {
		return false
	}
	if strings.HasPrefix(line, "(http") && strings.HasSuffix(line, ")") {
		return true
	}
	open := strings.LastIndex(lines[i-1], "(http")
	return open >= 0 && strings.IndexByte(lines[i-1][open:], ')') < 0 && strings.HasSuffix(line, ")")
}

// announcedAbove returns where the line begins that says who wrote a quotation; -1 = nowhere. shared is what the
// sender wrote on the same line before it.
func announcedAbove(lines []string, block quotation) (above int, shared string) {
	if above = attribution(lines[:block.start]); above >= 0 {
		return above, ""
	}

	head := trimEnd(lines[:block.start])
	if len(head) == 0 {
		return -1, ""
	}

	last := len(head) - 1
	if dashed(head[last]) || datedName(unmarked(head[last])) {
		return last, ""
	}

	if shared = ownWordsBefore(head[last]); shared != "" {
		return last, shared
	}

	return -1, ""
}

// ownWordsBefore returns the part of a line before "On <date and time>, <address> wrote:"; some programs put no line end between.
func ownWordsBefore(line string) string {
	if len(line) > 600 {
		return ""
	}

	for _, start := range []string{"On ", "Am ", "Le ", "El ", "Il ", "Op ", "Em "} {
		at := strings.LastIndex(line, start)
		if at <= 0 || line[at-1] != ' ' && line[at-1] != '-' {
			continue
		}
		if rest := line[at:]; announces(rest) && clocked(rest) && strings.Contains(rest, "@") {
			return strings.TrimRight(strings.TrimSpace(line[:at]), "- ")
		}
	}

	return ""
}

// announcedInside reports whether a quotation begins with the line that says who wrote it, as Apple Mail quotes it, or with
// the header of the old mail.
func announcedInside(block []string) bool {
	var inner []string
	for _, line := range block[:min(len(block), 3*maxAttribution)] {
		line = strings.TrimPrefix(strings.TrimPrefix(strings.TrimLeft(line, " "), ">"), " ")
		if len(inner) > 0 || !blank(line) {
			inner = append(inner, line)
		}
	}

	for i := range inner[:min(len(inner), maxAttribution)] {
		if attribution(inner[:i+1]) == 0 && hasDate(joinedLine(inner[:i+1])) {
			return true
		}
	}

	return anyFields(inner) >= 3
}

// unquotedOriginal finds where the program of the sender began the old mail without quoting it: at a line of dashes and words,
// or at a line that names date, time and address of its author. Nothing is found behind a line with which the
// sender leads over to what follows. -1 = nowhere.
func unquotedOriginal(lines []string) int {
	tried := 0
	for i, line := range lines {
		if i == 0 || len(line) < 4 && !endsInColon(line) || quoted(line) && !closesAddress(lines, i) {
			continue
		}

		start := -1
		switch {
		case original(line):
			start = i
		case dashed(line) && hasDate(line):
			start = i
		case datedName(line) && zoned(line):
			start = i
		case endsInColon(line):
			if tried++; tried > maxTried {
				return -1
			}

			start = attribution(lines[:i+1])
			if start >= 0 {
				whole := joinedLine(lines[start : i+1])
				if hasDate(whole) && quotedNext(lines, i+1) {
					return -1 // it announces a quotation: another rule knows more
				}
				if !hasDate(whole) || !clocked(whole) || !strings.Contains(whole, "@") {
					start = -1
				}
			}

		case datedName(line) && barred(lines[i+1:]):
			start = i
		}

		if start <= 0 {
			continue
		}

		if before := trimEnd(lines[:start]); len(before) == 0 || leadsOver(before[len(before)-1]) {
			return -1
		}

		return start
	}

	return -1
}

// leadsOver reports whether a line of the sender's own announces what follows, as a greeting does.
func leadsOver(line string) bool {
	line = unmarked(line)
	return line == "" || strings.ContainsAny(line[len(line)-1:], ",:") || strings.HasSuffix(line, "：") || strings.HasSuffix(line, "，")
}

// barred reports whether everything below is marked with a bar.
func barred(lines []string) bool {
	bars := 0
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line, "|"):
			bars++
		case !blank(line):
			return false
		}
	}

	return bars > 0
}

// answersBelow reports whether the old mail is quoted under its header and something else follows, which the sender wrote.
func answersBelow(lines []string) bool {
	quotes := false
	for i, line := range lines {
		switch {
		case quoted(line) && !closesAddress(lines, i):
			quotes = true
		case !quotes && i > 0 && i < 20 && (blank(line) || label(line) != "" || separates(line)), blank(line):
		case quotes:
			return true
		case i > 20:
			return false
		}
	}

	return false
}

// quotesOtherwise reports whether lines hold another announcement of a quotation, or quotations marked with initials.
func quotesOtherwise(lines []string) bool {
	tried := 0
	for i, line := range lines {
		if endsInColon(line) {
			if tried++; tried > maxTried || attribution(lines[:i+1]) >= 0 {
				return true
			}
		}
		if name, _, found := strings.Cut(line, ">"); found && name != "" && len(name) <= 12 && !strings.ContainsAny(name, " <\t") {
			return true
		}
	}

	return false
}

// withoutRule drops a line of dashes at the end, which stood above the old mail.
func withoutRule(lines []string) []string {
	if last := len(lines) - 1; last >= 0 {
		if line := strings.TrimSpace(lines[last]); len(line) >= 5 && strings.Trim(line, "-_*\\") == "" {
			return trimEnd(lines[:last])
		}
	}
	return lines
}

func quoted(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " "), ">") }

func blank(line string) bool { return strings.TrimSpace(line) == "" }

// trackerMark is alone on a line where an add-on of Gmail hides its picture.
const trackerMark = "ᐧ"

func trimEnd(lines []string) []string {
	for len(lines) > 0 && (blank(lines[len(lines)-1]) || strings.TrimSpace(lines[len(lines)-1]) == trackerMark) {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func endsInColon(line string) bool {
	line = strings.TrimRight(line, " \t*")
	return strings.HasSuffix(line, ":") || strings.HasSuffix(line, "：")
}

// closesAddress reports whether a line that begins with > only ends an address that was wrapped: "> wrote:".
func closesAddress(lines []string, i int) bool {
	line := strings.TrimLeft(lines[i], " ")
	if len(line) > 40 || !strings.HasPrefix(line, ">") || !endsInColon(line) {
		return false
	}

	open := 0
	for above := i - 1; above >= 0 && above >= i-3 && len(lines[above]) <= 600; above-- {
		if quoted(lines[above]) {
			return false
		}
		open += strings.Count(lines[above], "<") - strings.Count(lines[above], ">")
		if open > 0 {
			return true
		}
	}

	return false
}

// Bounds of how far "On …, Ann wrote:" may be wrapped.
const (
	maxAttribution      = 6 // lines
	maxAttributionBytes = 600
	maxTried            = 200 // lines of one text that end in a colon and are looked at so
)

// attribution finds the line, or the few lines of one paragraph, at the end that announce a quotation; -1 = none.
func attribution(lines []string) int {
	lines = trimEnd(lines)
	joined, found, nameless := "", -1, false
	for i := len(lines) - 1; i >= 0 && len(lines)-i <= maxAttribution; i-- {
		if len(lines[i]) > maxAttributionBytes || quoted(lines[i]) && !closesAddress(lines, i) {
			break
		}

		if blank(lines[i]) {
			// Some programs leave a line free before the address.
			if unopened(joined) || strings.HasPrefix(joined, "<") {
				continue
			}
			break
		}

		line := unmarked(lines[i])
		if found >= 0 && strings.ContainsAny(line[max(0, len(line)-1):], ".!?") {
			break // a sentence of the sender's own
		}

		if joined = strings.TrimSpace(line + " " + joined); len(joined) > maxAttributionBytes {
			break
		}

		switch {
		case unopened(joined) || !announces(joined):
		case hasDate(joined) && (found < 0 || nameless || beginsAnnouncement(joined)):
			return i
		case found < 0 || nameless:
			found, nameless = i, strings.HasPrefix(joined, "<")
		}
	}

	return found // the date did not stand above
}

// unopened reports whether a text closes an angle that it does not open: an address was wrapped.
func unopened(text string) bool {
	return strings.Count(text, ">") > strings.Count(text, "<")
}

func joinedLine(lines []string) string {
	var pieces []string
	for _, line := range lines {
		pieces = append(pieces, unmarked(line))
	}
	return strings.Join(pieces, " ")
}

// hasDate looks for digits outside of addresses and times of day.
func hasDate(line string) bool {
	for word := range strings.FieldsSeq(line) {
		digits := 0
		for i := range len(word) {
			if digit(word[i]) {
				digits++
			}
		}

		// Chinese and Japanese write date and time without a blank.
		if digits > 0 && !strings.Contains(word, "@") && (digits > 6 || !clocked(word)) {
			return true
		}
	}
	return false
}

// clocked reports whether a text holds a time of day.
func clocked(text string) bool {
	for i := 1; i+2 < len(text); i++ {
		// 10:05, 10.05 (as in the north), 10h05 (as in France)
		if (text[i] == ':' || text[i] == 'h' || text[i] == '.') && digit(text[i-1]) && digit(text[i+1]) && digit(text[i+2]) && (i+3 == len(text) || !digit(text[i+3])) {
			return text[i] != '.' || i+3 == len(text) || text[i+3] != '.'
		}
	}
	return strings.Contains(text, "点") || strings.Contains(text, "時")
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// datedName reports whether a line is how old Gmail announced a quotation: 2013/7/20 Ann <ann@…>.
func datedName(line string) bool {
	line = strings.TrimSuffix(strings.TrimSpace(line), ":")
	if len(line) < 12 || len(line) > maxAttributionBytes || strings.Trim(line[:4], "0123456789") != "" || line[4] != '-' && line[4] != '/' {
		return false
	}
	return strings.HasSuffix(line, ">") && strings.Contains(line, "@") || zoned(line)
}

// zoned reports whether a text names a time zone as such lines do.
func zoned(line string) bool {
	return clocked(line) && (strings.Contains(line, " GMT+") || strings.Contains(line, " GMT-") || strings.Contains(line, " UTC+") || strings.Contains(line, " UTC-"))
}

// dashed reports whether a line between dashes says who wrote, as Zoho and some telephones put it: "---- On …, Ann wrote ----".
func dashed(line string) bool {
	line = unmarked(line)
	if len(line) > maxAttributionBytes || !strings.HasPrefix(line, "---") || !strings.HasSuffix(line, "---") {
		return false
	}
	inner := strings.ToLower(strings.Trim(line, "- "))
	return announces(inner+":") || containsAny(inner+":", dashedVerbs)
}

// dashedVerbs end such a line that names no date.
var dashedVerbs = []string{" wrote:", " schrieb:", " a écrit:", " a écrit :", " escribió:", " ha scritto:", " schreef:", " escreveu:", " skrev:", " 写道:", " yazdı:", " napisał:", " написал:"}

// announcement is how clients of one language introduce a quotation: begins with one of the starts and holds one of the
// verbs.
type announcement struct{ starts, verbs []string }

// namesFirst are verbs with what leads to a date or an address, so that a sentence about a letter is none of them.
var namesFirst = []string{
	"wrote on ", "writes:", "schrieb am ", "geschrieben:", "zitat von ", "quoting ", "a écrit le ", "> a écrit", "escribió el ", "ha scritto il ", "schreef op ",
	"escreveu em ", "escreveu (", "escreveu no dia ", "napisał w dniu ", "wiadomość napisana przez ", "> wrote:", "> schrieb:", "> schreef:", "> escribió:", "> ha scritto:", "> escreveu:",
}

var announcements = []announcement{
	{[]string{"on ", "at "}, []string{"wrote", "sent:"}},                        // English
	{[]string{"am ", "um "}, []string{"schrieb", "hat geschrieben"}},            // German
	{[]string{"le ", "en date du "}, []string{"a écrit", "a e\u0301crit"}},      // French
	{[]string{"el ", "en "}, []string{"escribió", "escribio\u0301"}},            // Spanish
	{[]string{"il ", "in data "}, []string{"ha scritto", "scrive"}},             // Italian
	{[]string{"op "}, []string{"schreef", "geschreven"}},                        // Dutch
	{[]string{"em ", "no dia ", "a ", "às "}, []string{"escreveu"}},             // Portuguese
	{[]string{"w dniu ", "dnia "}, []string{"pisze", "napisał", "napisal"}},     // Polish
	{[]string{"den ", "d. ", "på "}, []string{"skrev"}},                         // Swedish, Danish, Norwegian
	{[]string{"dne ", "dňa "}, []string{"napsal", "napísal"}},                   // Czech, Slovak
	{[]string{"", "в "}, []string{"пишет:", "написал:", "написала:", "писал:"}}, // Russian
	{[]string{""}, []string{"kirjoitti:", "ezt írta", "a scris:"}},              // Finnish, Hungarian, Romanian
	{[]string{""}, namesFirst},                                                  // Outlook, Roundcube, Horde: the name before the date
	{[]string{""}, []string{"写道", "寫道", "のメール", "님이 작성", "yazdı"}},              // Chinese, Japanese, Korean, Turkish
}

// anywhere are verbs that announce wherever they stand, when address and time of day stand beside them.
var anywhere = []string{
	"wrote", "schrieb", "geschrieben", "a écrit", "escribió", "ha scritto", "schreef", "geschreven", "escreveu", "napisał", "skrev", "napsal", "napísal",
	"написав", "пише", "écrivit", "írta", "kirjoitti", "a scris", "έγραψε", "כתב", "كتب", "تمت كتابة", "đã viết", "menulis", "yazdı", "작성", "napsala",
}

// announces reports whether a line reads like "On 20 November 2026, Ann wrote:". A line of a person's own that ends in a
// colon names neither date nor address.
func announces(line string) bool {
	lower := strings.ToLower(strings.TrimSpace(line))
	if !strings.HasSuffix(lower, ":") && !strings.HasSuffix(lower, "：") {
		return false
	}

	dated, addressed := strings.ContainsAny(lower, "0123456789"), strings.Contains(lower, "@")
	if !dated && !addressed {
		return false
	}

	for _, one := range announcements {
		if startsWithAny(lower, one.starts) && containsAny(lower, one.verbs) {
			return true
		}
	}

	// Gmail in most languages: a date first, then name <address>, then a verb.
	if !dated || !addressed || !strings.Contains(lower, "<") || !strings.Contains(lower, ">") {
		return false
	}

	tail := strings.Trim(lower[strings.LastIndexByte(lower, '>')+1:], " :：")
	return len(strings.Fields(tail)) <= 2 || clocked(lower) && containsAny(lower, anywhere)
}

// beginsAnnouncement reports whether a text begins with one of the words that begin such a line.
func beginsAnnouncement(text string) bool {
	text = strings.ToLower(text)
	for _, one := range announcements {
		for _, start := range one.starts {
			if start != "" && strings.HasPrefix(text, start) {
				return true
			}
		}
	}
	return false
}

func startsWithAny(text string, starts []string) bool {
	for _, start := range starts {
		if strings.HasPrefix(text, start) {
			return true
		}
	}
	return false
}

func containsAny(text string, words []string) bool {
	for _, word := range words {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// unmarked takes the emphasis of markdown from a line: HTML mails set their labels in bold.
func unmarked(line string) string {
	if strings.ContainsAny(line, `*\`) { // a line without costs nothing: this is asked of every line several times
		line = marks.Replace(line)
	}
	return strings.TrimSpace(line)
}

var marks = strings.NewReplacer("*", "", `\`, "")

// MaxSignature is how many lines a signature has at most when its separator is not exact.
const MaxSignature = 12

// cutSignature cuts at the first signature line. Quoted lines below it mean that the mail goes on, and so does a question.
func cutSignature(lines []string, sender string) []string {
	for i, line := range lines {
		exact := false
		switch {
		case line == "-- ", line == `\-- `:
			exact = true
		case (line == "--" || line == `\--`) && len(lines)-i <= MaxSignature: // the blank was lost on the way
		default:
			continue
		}

		below := lines[i+1:]
		if slices.ContainsFunc(below, quoted) || slices.ContainsFunc(below, asks) || !exact && !signs(below, sender) {
			return lines
		}

		return trimEnd(lines[:i])
	}
	return lines
}

func asks(line string) bool {
	line = strings.TrimRight(line, " \t*_")
	return strings.HasSuffix(line, "?") || strings.HasSuffix(line, "？")
}

// signs reports whether lines below two dashes are a signature and not the next item of a list: they begin with a name, which is that of
// the sender where it is known, or with how to reach someone.
func signs(lines []string, sender string) bool {
	for len(lines) > 0 && blank(lines[0]) {
		lines = lines[1:]
	}
	if len(lines) == 0 {
		return true
	}

	head := unmarked(lines[0])
	if contact(head) && len(strings.Fields(head)) <= maxNameWords {
		return true
	}
	if !named(head) {
		return false
	}
	if sender == "" || slices.ContainsFunc(lines, contact) {
		return true
	}
	known := strings.ToLower(sender)
	for word := range wordsOf(strings.ToLower(head)) {
		if strings.Contains(known, word) {
			return true
		}
	}
	return false
}

// maxNameWords bounds the words of a name with its titles.
const maxNameWords = 6

// named reports whether a line can be the name of a person or of a firm: a few words, of which most have a capital.
func named(line string) bool {
	words := strings.Fields(line)
	if len(words) == 0 || len(words) > maxNameWords || strings.ContainsAny(line, ":;!?=") {
		return false
	}
	small := 0
	for _, word := range words {
		if r, _ := utf8.DecodeRuneInString(word); unicode.IsLower(r) {
			small++
		}
	}
	return small*2 < len(words) || len(words) == 1
}

// contact reports whether a line says how to reach someone: an address, a page, a telephone.
func contact(line string) bool {
	digits := 0
	for i := range len(line) {
		if digit(line[i]) {
			digits++
		}
	}
	return digits >= 6 && !strings.ContainsAny(line, "€$%") || strings.Contains(line, "@") || strings.Contains(line, "://") || strings.Contains(line, "www.")
}
