package activitypub

import (
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/text/unicode/norm"

	"inbox/adapters/activitypub/document"
	"inbox/internal/markup"
	"inbox/normalized"
)

// Limits of HTML to text.
const (
	maxHTMLBytes = 256 << 10
	maxTextBytes = 512 << 10
	maxHTMLNodes = 20_000
)

// textCut is told to the agent where a post was longer than it is read.
const textCut = "[The text was cut, because the post is very long.]"

// Marks in the growing text. Control characters never come in from outside, so they cannot be forged.
const (
	markUs       = '\x00' // a mention of the reader
	markOther    = '\x01' // begin of a mention of somebody else
	markOtherEnd = '\x02'
)

// reader is the agent whose text is made: leading mentions of it are dropped.
type reader struct {
	address  string
	isUs     func(href string) bool
	mentions document.Mentions
}

// plainText turns the HTML of a note into plain text: blocks become lines, mentions @user@host, links their address
// or "text (address)". Hidden elements are dropped, because nobody saw them.
func plainText(content string, as reader) string {
	document, cut := readNote(content, as)
	return as.written(document, markup.Plain, cut)
}

// noteText is plainText for the body of a note: where it has quotations, headings, lists or code, it becomes Markdown, so
// that the words of others are not taken for those of the sender.
func noteText(content string, as reader) (text, mime string) {
	document, cut := readNote(content, as)
	if structured(document) {
		return as.written(document, markup.Markdown, cut), normalized.MIMEMarkdown
	}
	return as.written(document, markup.Plain, cut), normalized.MIMEPlain
}

func (r reader) written(document *html.Node, form markup.Form, cut bool) string {
	text, full := markup.Text(document, form, maxTextBytes)
	text = r.finish(text)
	if cut || full {
		text = strings.TrimSpace(text + "\n\n" + textCut)
	}
	return text
}

// structured reports whether a note says more than lines of text.
func structured(document *html.Node) bool {
	for node := range document.Descendants() {
		switch node.DataAtom {
		case atom.Blockquote, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Ul, atom.Ol, atom.Pre, atom.Code:
			return true
		}
	}
	return false
}

// literal cleans text that is no HTML and drops the leading mentions of the reader.
func (r reader) literal(content string) string {
	text := norm.NFC.String(strings.TrimSpace(strings.Map(func(c rune) rune {
		if c != '\n' && c != '\t' && unwanted(c) {
			return -1
		}
		return c
	}, strings.ReplaceAll(document.Clip(content, maxHTMLBytes), "\r\n", "\n"))))
	return r.withoutAddress(text)
}

var unmarked = strings.NewReplacer(string(markOther), "", string(markOtherEnd), "")

// finish drops the leading mentions of the reader and writes all others out.
func (r reader) finish(text string) string {
	head, rest := r.leading(text)
	text = head + rest
	text = strings.ReplaceAll(text, string(markUs), r.address)
	text = unmarked.Replace(text)
	return norm.NFC.String(strings.TrimSpace(text))
}

// leading splits the text into the mentions of others that it begins with and the rest, without mentions of us.
func (r reader) leading(text string) (head, rest string) {
	var others strings.Builder
	for {
		text = strings.TrimLeft(text, " \n\t")
		switch {
		case strings.HasPrefix(text, string(markUs)):
			text = text[1:]
			if after := strings.TrimLeft(text, ",:"); after == "" || strings.HasPrefix(after, " ") || strings.HasPrefix(after, "\n") {
				text = after
			}
		case strings.HasPrefix(text, string(markOther)):
			end := strings.IndexByte(text, markOtherEnd)
			others.WriteString(text[1:end] + " ")
			text = text[end+1:]
		default:
			return others.String(), text
		}
	}
}
