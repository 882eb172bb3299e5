package email

import (
	"cmp"
	"html"
	"strings"

	"inbox/adapters/email/message"
	"inbox/adapters/email/text"
	"inbox/exchange"
	"inbox/normalized"
)

// maxQuoteLines bounds what an answer repeats of its question.
const maxQuoteLines = 30

// mayQuote says whether the answer may repeat its question: where the operator wants it, and only to people who have it
// already.
func (a *Adapter) mayQuote(reply exchange.Reply, notes route, people audience) bool {
	if a.options.QuoteLines <= 0 || notes.Opened || hasPolicy(reply.Response) {
		return false
	}
	has := map[string]bool{notes.From.Key(): true}
	for _, box := range notes.To {
		has[box.Key()] = true
	}
	for _, box := range notes.Cc {
		has[box.Key()] = true
	}
	for _, box := range people.all() {
		if !has[box.Key()] {
			return false
		}
	}
	return true
}

// addQuote repeats the beginning of a question below the answer.
func (c *composer) addQuote(question normalized.Message, notes route, most int) {
	from := notes.From
	lines := quotedLines(question, message.BaseSubject(notes.Subject), min(most, maxQuoteLines))
	if len(lines) == 0 {
		return
	}
	intro := "On " + question.ReceivedAt.UTC().Format("Mon, 2 Jan 2006") + ", " + cmp.Or(message.DisplayName(from.Name), from.Address()) + " wrote:"
	plain := intro + "\n> " + strings.Join(lines, "\n> ")
	plain = strings.ReplaceAll(plain, "\n> \n", "\n>\n")
	c.add(plain, "<p>"+html.EscapeString(intro)+"</p>\n<blockquote type=\"cite\">"+
		strings.ReplaceAll(html.EscapeString(strings.Join(lines, "\n")), "\n", "<br>\n")+"</blockquote>\n")
}

// quotedLines gives the first lines of the texts of a message, without what it quotes itself
// and without the subject that was put above its text.
func quotedLines(question normalized.Message, subject string, most int) []string {
	var lines []string
	for _, part := range question.Parts {
		if part.Kind != normalized.PartText {
			continue
		}
		for line := range strings.SplitSeq(text.Readable(strings.TrimPrefix(part.Content, "Subject: "+subject+"\n\n")), "\n") {
			if strings.HasPrefix(line, ">") {
				continue
			}
			if len(lines) >= most {
				return append(lines, "[…]")
			}
			lines = append(lines, strings.TrimRight(line, " \t\r"))
		}
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}
