package main

import (
	"regexp"
	"strings"
)

// passage is a paragraph, an item of a list, a heading, a row of a table, or one text of a program.
type passage struct {
	line    int
	text    string // code is "`…`", quotations are "…"
	running bool   // sentences, not a heading or a row of a table
}

// text is what one file has for its readers.
type text struct {
	file, kind string
	passages   []passage
}

var (
	fence     = regexp.MustCompile("^\\s*(?:```|~~~)")
	heading   = regexp.MustCompile(`^#{1,6}\s+`)
	listItem  = regexp.MustCompile(`^\s*(?:[-*+]|\d+[.)])\s+`)
	codeSpan  = regexp.MustCompile("``[^`]*``|`[^`]*`")
	image     = regexp.MustCompile(`!\[[^\]]*\]\([^)]*\)`)
	link      = regexp.MustCompile(`\[([^\]]*)\]\([^)\s]*\)`)
	reference = regexp.MustCompile(`^\s*\[[^\]]+\]:\s`)
	quotation = regexp.MustCompile(`"[^"]*"|“[^”]*”|«[^»]*»`)
	comment   = regexp.MustCompile(`(?s)<!--.*?-->`)
	markup    = regexp.MustCompile(`</?[a-z][^>]*>`)
)

// document reads Markdown into passages. Blocks of code and quotations (blocks with > as well as marks) are not the author's prose.
func document(file, kind, content string) text {
	content = comment.ReplaceAllStringFunc(content, func(found string) string {
		return strings.Repeat("\n", strings.Count(found, "\n"))
	})
	d := text{file: file, kind: kind}

	var pending []string
	begin, inFence := 0, false
	flush := func() {
		if len(pending) > 0 {
			d.add(begin, strings.Join(pending, " "), true)
		}
		pending = nil
	}
	for i, line := range strings.Split(content, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence.MatchString(line):
			flush()
			inFence = !inFence
		case inFence:
		case trimmed == "", strings.HasPrefix(trimmed, ">"), reference.MatchString(line):
			flush()
		case heading.MatchString(line):
			flush()
			d.add(i+1, heading.ReplaceAllString(line, ""), false)
		case strings.HasPrefix(trimmed, "|"):
			flush()
			for cell := range strings.SplitSeq(strings.Trim(trimmed, "|"), "|") {
				d.add(i+1, cell, false)
			}
		default:
			if listItem.MatchString(line) {
				flush()
				trimmed = listItem.ReplaceAllString(line, "")
			}
			if len(pending) == 0 {
				begin = i + 1
			}
			pending = append(pending, trimmed)
		}
	}
	flush()
	return d
}

func (d *text) add(line int, passageText string, running bool) {
	passageText = codeSpan.ReplaceAllString(passageText, "`…`")
	passageText = image.ReplaceAllString(passageText, "")
	passageText = link.ReplaceAllString(passageText, "$1")
	passageText = markup.ReplaceAllString(passageText, "")
	passageText = quotation.ReplaceAllString(passageText, "“…”")
	passageText = strings.NewReplacer("**", "", "__", "", "*", "").Replace(passageText)
	if passageText = strings.TrimSpace(passageText); passageText != "" {
		d.passages = append(d.passages, passage{line, passageText, running})
	}
}
