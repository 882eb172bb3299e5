package email

import (
	"slices"
	"strings"
	"unicode"
)

// fresh gives what a mail says itself: its text without the mail that it answers and without the signature. Rules are
// conservative, because a stripper that is too greedy eats forwarded mails and inline answers: what is not surely old
// stays, a forwarded mail stays whole, and so does a text of which nothing would be left. All work is by lines.
func fresh(text, subject string, answers bool) string {
	lines := strings.Split(text, "\n")
	if forwards(subject) || hasForwardMark(lines) {
		return text
	}
	kept := cutQuoted(lines, answers)
	kept = cutSignature(kept)
	// Thunderbird and others put the signature below the quotation.
	if again := cutQuoted(kept, answers); len(again) < len(kept) {
		kept = cutSignature(again)
	}
	if len(kept) == len(lines) {
		return text
	}
	if result := strings.TrimSpace(strings.Join(kept, "\n")); visible(result) {
		return result
	}
	return text
}

func visible(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsSpace(r) && unicode.IsGraphic(r) })
}

// cutQuoted takes the mail below away: behind an Outlook header, or quoted with > under a line that says who wrote it.
func cutQuoted(lines []string, answers bool) []string {
	if at := outlookHeader(lines, answers); at >= 0 {
		return trimEnd(lines[:at])
	}
	end := len(trimEnd(lines))
	start, quotes := end, 0
	for start > 0 && (quoted(lines[start-1]) || blank(lines[start-1])) {
		if start--; quoted(lines[start]) {
			quotes++
		}
	}
	if quotes == 0 {
		return lines
	}
	if above := attribution(lines[:start]); above >= 0 {
		kept := trimEnd(lines[:above])
		// Proton puts the mark of Outlook above the line that says who wrote.
		if last := len(kept) - 1; last >= 0 && separates(kept[last]) {
			kept = trimEnd(kept[:last])
		}
		return kept
	}
	return lines
}

func quoted(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " "), ">") }

func blank(line string) bool { return strings.TrimSpace(line) == "" }

func trimEnd(lines []string) []string {
	for len(lines) > 0 && blank(lines[len(lines)-1]) {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// maxAttribution is how many lines "On …, Ann wrote:" may be wrapped over.
const maxAttribution = 3

// attribution finds the line, or the few lines of one paragraph, at the end that announce a quotation; -1 = none.
func attribution(lines []string) int {
	lines = trimEnd(lines)
	joined, found, nameless := "", -1, false
	for i := len(lines) - 1; i >= 0 && len(lines)-i <= maxAttribution && !blank(lines[i]) && !quoted(lines[i]); i-- {
		line := unmarked(lines[i])
		if found >= 0 && strings.ContainsAny(line[max(0, len(line)-1):], ".!?") {
			break // a sentence of the sender's own
		}
		if joined = strings.TrimSpace(line + " " + joined); len(joined) > 600 {
			break
		}
		switch {
		case !announces(joined):
		case hasDate(joined):
			return i
		case found < 0 || nameless:
			found, nameless = i, strings.HasPrefix(joined, "<")
		}
	}
	return found // the date did not stand above
}

// hasDate looks for digits outside of addresses.
func hasDate(line string) bool {
	before, rest, found := strings.Cut(line, "<")
	if found {
		_, rest, _ = strings.Cut(rest, ">")
	}
	return strings.ContainsAny(before+rest, "0123456789")
}

// announcement is how clients of one language introduce a quotation: begins with one of the starts and holds one of the
// verbs.
type announcement struct{ starts, verbs []string }

// namesFirst are verbs with what leads to a date or an address, so that a sentence about a letter is none of them.
var namesFirst = []string{
	"wrote on ", "writes:", "schrieb am ", "geschrieben:", "zitat von ", "quoting ", "a écrit le ", "> a écrit", "escribió el ", "ha scritto il ", "schreef op ",
	"escreveu em ", "napisał w dniu ", "wiadomość napisana przez ", "> wrote:", "> schrieb:", "> schreef:", "> escribió:", "> ha scritto:", "> escreveu:",
}

var announcements = []announcement{
	{[]string{"on "}, []string{"wrote", "sent:"}},                               // English
	{[]string{"am ", "um "}, []string{"schrieb", "hat geschrieben"}},            // German
	{[]string{"le ", "en date du "}, []string{"a écrit", "a e\u0301crit"}},      // French
	{[]string{"el ", "en "}, []string{"escribió", "escribio\u0301"}},            // Spanish
	{[]string{"il ", "in data "}, []string{"ha scritto", "scrive"}},             // Italian
	{[]string{"op "}, []string{"schreef", "geschreven"}},                        // Dutch
	{[]string{"em ", "no dia ", "a "}, []string{"escreveu"}},                    // Portuguese
	{[]string{"w dniu ", "dnia "}, []string{"pisze", "napisał", "napisal"}},     // Polish
	{[]string{"den ", "d. "}, []string{"skrev"}},                                // Swedish, Danish, Norwegian
	{[]string{"dne "}, []string{"napsal"}},                                      // Czech
	{[]string{"", "в "}, []string{"пишет:", "написал:", "написала:", "писал:"}}, // Russian
	{[]string{""}, []string{"kirjoitti:", "ezt írta", "a scris:"}},              // Finnish, Hungarian, Romanian
	{[]string{""}, namesFirst},                                                  // Outlook, Roundcube, Horde: the name before the date
	{[]string{""}, []string{"写道", "寫道", "のメール", "님이 작성", "yazdı"}},              // Chinese, Japanese, Korean, Turkish
}

// announces says whether a line reads like "On 20 November 2026, Ann wrote:". A line of a person's own that ends in a
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
	if dated && strings.Contains(lower, "<") && addressed && strings.Contains(lower, ">") {
		tail := strings.Trim(lower[strings.LastIndexByte(lower, '>')+1:], " :：")
		return len(strings.Fields(tail)) <= 2
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

// maxSignature is how many lines a signature has at most when its separator is not exact.
const maxSignature = 12

// cutSignature cuts at the first signature line. Quoted lines below it mean that the mail goes on.
func cutSignature(lines []string) []string {
	for i, line := range lines {
		switch {
		case line == "-- ", line == `\-- `:
		case (line == "--" || line == `\--`) && len(lines)-i <= maxSignature: // the blank was lost on the way
		default:
			continue
		}
		if slices.ContainsFunc(lines[i+1:], quoted) {
			return lines
		}
		return trimEnd(lines[:i])
	}
	return lines
}
