package text

import "strings"

// Bounds of the comparison with a conversation.
const (
	maxCompared = 60        // words of what may be old
	maxKnown    = 256 << 10 // bytes of the conversation
	runOfWords  = 3
)

// Repeats reports whether lines that look like an old mail are one: a third of their runs of three words stand in what was said before. A few
// words must all stand there. Fields of the header count for nothing, because people write them, too.
func Repeats(unmarked string, before []string) bool {
	words := bodyWords(unmarked)
	if len(words) == 0 {
		return true
	}

	known, size := map[string]bool{}, 0
	length := min(runOfWords, len(words))
	for _, text := range before {
		if size += len(text); size > maxKnown {
			break
		}
		runs(strings.Fields(plainWords(text)), length, func(run string) { known[run] = true })
	}

	all, found := 0, 0
	runs(words, length, func(run string) {
		if all++; known[run] {
			found++
		}
	})
	return found*3 >= all
}

// bodyWords returns the first words below the header of an old mail.
func bodyWords(text string) (words []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if label(line) != "" || separates(line) || dashed(line) || announces(line) || datedName(line) {
			continue
		}
		if words = append(words, strings.Fields(plainWords(strings.TrimLeft(line, "> ")))...); len(words) >= maxCompared {
			return words[:maxCompared]
		}
	}
	return words
}

// plainWords leaves letters and digits in lower case: programs change the marks between them.
func plainWords(text string) string {
	return strings.Map(func(r rune) rune {
		if notOfWord(r) {
			return ' '
		}
		return r
	}, strings.ToLower(withoutTargets(text)))
}

// runs calls back for each run of words.
func runs(words []string, length int, each func(string)) {
	for i := 0; i+length <= len(words); i++ {
		each(strings.Join(words[i:i+length], " "))
	}
}

// maxHeaderLines bounds the header of an old mail as programs write it.
const maxHeaderLines = 6

// Names reports whether the header of what looks like an old mail has an address with that end in its first field, which is its sender.
func (c Content) Names(end string) bool {
	lines := strings.SplitN(c.Unmarked, "\n", maxHeaderLines)
	for _, line := range lines[:min(len(lines), maxHeaderLines-1)] {
		if label(line) == "from" || announces(line) || dashed(line) || datedName(line) {
			return strings.Contains(strings.ToLower(line), end)
		}
	}
	return false
}
