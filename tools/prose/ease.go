package main

import (
	"fmt"
	"regexp"
	"strings"
)

// ease sums up what was counted of texts.
type ease struct {
	words, sentences, syllables, passive int
}

func (e *ease) add(other ease) {
	e.words += other.words
	e.sentences += other.sentences
	e.syllables += other.syllables
	e.passive += other.passive
}

// flesch is the reading ease of Rudolf Flesch: 100 is read with ease by anyone, 30 by people who read for their profession.
func (e *ease) flesch() float64 {
	if e.words == 0 || e.sentences == 0 {
		return 0
	}
	return 206.835 - 1.015*float64(e.words)/float64(e.sentences) - 84.6*float64(e.syllables)/float64(e.words)
}

// String is a row of the table, without the name.
func (e *ease) String() string {
	sentences := float64(max(1, e.sentences))
	return fmt.Sprintf("%d\t%d\t%.1f\t%.0f %%\t%.1f", e.words, e.sentences, float64(e.words)/sentences, 100*float64(e.passive)/sentences, e.flesch())
}

// measure counts the running text. Headings and cells of tables are no sentences, and are left out.
func measure(one text) (sum ease) {
	for _, p := range one.passages {
		if !p.running {
			continue
		}
		for _, sentence := range sentences(p.text) {
			words := wordForm.FindAllString(sentence, -1)
			if len(words) == 0 {
				continue
			}
			sum.sentences++
			sum.words += len(words)
			for _, word := range words {
				sum.syllables += syllables(word)
			}
			if passiveForm.MatchString(sentence) {
				sum.passive++
			}
		}
	}
	return sum
}

var (
	wordForm    = regexp.MustCompile(`[\p{L}\p{N}][\p{L}\p{N}'’-]*`)
	sentenceEnd = regexp.MustCompile(`[.!?]["')\]]*\s+`)
	shortened   = regexp.MustCompile(`(?:\b(?:e\.g|i\.e|etc|cf|vs|No)|\b\p{Lu})\.\s*$`)

	// passiveForm finds a form of be and a participle, with at most two adverbs between them. It is a heuristic: "is needed" is counted
	// like "is sent by the peer", which is the same for texts that are compared.
	passiveForm = regexp.MustCompile(`(?i)\b(?:is|are|was|were|be|been|being)\s+(?:(?:not|never|also|then|only|already|again|still|always|once|first|\w+ly)\s+){0,2}` +
		`(?:\w+ed|` + irregular + `)\b`)
)

// irregular are participles that do not end in -ed, as far as texts about servers have them.
const irregular = `begun|bound|broken|brought|built|chosen|cut|done|drawn|driven|fed|forgotten|found|given|gone|held|hidden|kept|known|left|lost|` +
	`made|meant|met|paid|put|read|run|said|seen|sent|set|shown|shut|split|spoken|spent|stood|stolen|struck|taken|thought|thrown|told|understood|` +
	`withdrawn|won|written|overwritten|rewritten|undone`

// sentences cuts a passage where a sentence ends: at a full stop, a question or exclamation mark with space behind it.
func sentences(passage string) (all []string) {
	begin := 0
	for _, end := range sentenceEnd.FindAllStringIndex(passage, -1) {
		if shortened.MatchString(passage[begin:end[1]]) {
			continue
		}
		all = append(all, strings.TrimSpace(passage[begin:end[1]]))
		begin = end[1]
	}
	if rest := strings.TrimSpace(passage[begin:]); rest != "" {
		all = append(all, rest)
	}
	return all
}

var vowels = regexp.MustCompile(`[aeiouy]+`)

// syllables estimates how many syllables an English word has: its groups of vowels, without a silent e at its end.
func syllables(word string) int {
	word = strings.ToLower(word)
	count := len(vowels.FindAllString(word, -1))
	switch {
	case strings.HasSuffix(word, "le") && len(word) > 2 && !strings.ContainsAny(word[len(word)-3:len(word)-2], "aeiouy"): // ta-ble
	case strings.HasSuffix(word, "e"), strings.HasSuffix(word, "es") && !strings.HasSuffix(word, "ses") && !strings.HasSuffix(word, "ces"):
		count--
	case strings.HasSuffix(word, "ed") && !strings.HasSuffix(word, "ted") && !strings.HasSuffix(word, "ded"):
		count--
	}
	return max(1, count)
}
