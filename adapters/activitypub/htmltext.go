package activitypub

import (
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/text/unicode/norm"
)

// Limits of HTML to text. The parser itself refuses more than 512 open elements.
const (
	maxHTMLBytes = 256 << 10
	maxTextBytes = 512 << 10
	maxHTMLNodes = 20_000
)

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
	mentions mentions
}

// plainText turns the HTML of a note into plain text: blocks become lines, mentions @user@host, links their address
// or "text (address)". Hidden elements are dropped, because nobody saw them.
func plainText(content string, as reader) string {
	body := &html.Node{Type: html.ElementNode, Data: "body", DataAtom: atom.Body}
	content = clip(content, maxHTMLBytes)
	nodes, err := html.ParseFragment(strings.NewReader(content), body)
	if err != nil { // over the parser's own limits: what stands between the tags is still worth reading
		return as.finish(stripTags(content))
	}
	w := textWriter{as: as}
	for _, node := range nodes {
		w.node(node)
	}
	return as.finish(w.String())
}

func stripTags(content string) string {
	var w textWriter
	tokens := html.NewTokenizer(strings.NewReader(content))
	for {
		switch tokens.Next() {
		case html.ErrorToken:
			return w.String()
		case html.TextToken:
			w.text(html.UnescapeString(string(tokens.Raw())))
		default:
			w.space = true
		}
	}
}

// literal cleans text that is no HTML and drops the leading mentions of the reader.
func (r reader) literal(content string) string {
	text := norm.NFC.String(strings.TrimSpace(strings.Map(func(c rune) rune {
		if c != '\n' && c != '\t' && unwanted(c) {
			return -1
		}
		return c
	}, strings.ReplaceAll(clip(content, maxHTMLBytes), "\r\n", "\n"))))
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
