package text

import (
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"inbox/adapters/email/message"
	"inbox/internal/markup"
	"inbox/normalized"
)

// maxHTMLBytes bounds what is converted of one part; longer HTML is cut before it is parsed.
const maxHTMLBytes = 512 << 10

// htmlCut is told to the agent where HTML was longer than it is read.
const htmlCut = "[The text was cut, because its HTML is very long; the original mail is kept.]"

// parseHTML makes the tree of a mail's HTML, at a cost proportional to its length. cut reports that the end is missing.
func parseHTML(text string) (document *html.Node, cut bool) {
	return markup.Parse(text, markup.Limits{Bytes: maxHTMLBytes, Hides: hidden})
}

// FromHTML converts a mail's HTML to markdown, or to plain text when it has no structure. What a reader would not
// see is removed first: hidden text is the usual way to slip instructions to a model. Nothing is ever fetched.
func FromHTML(text string) (content, mime string) {
	content, mime, _, _ = readHTML(text, false)
	return content, mime
}

// readHTML also returns, as own, what is left without quotations and signature that the client marked; it is empty when
// nothing was marked or when the mail is forwarded. links are where its links lead, whatever they show.
func readHTML(text string, forwarded bool) (content, mime, own string, links []normalized.Part) {
	document, cut := parseHTML(text)
	removeSelected(document, hiddenSelectors(document))
	removeHidden(document)
	unwrapLayout(document)
	form := markup.Plain
	if mime = normalized.MIMEPlain; structured(document) {
		form, mime = markup.Markdown, normalized.MIMEMarkdown
	}
	content, _ = markup.Text(document, form, maxTextBytes+1) // a little more than a message carries
	if !forwarded && removeQuoted(document) {
		own, _ = markup.Text(document, form, maxTextBytes+1)
	}

	if cut {
		content = strings.TrimSpace(content + "\n\n" + htmlCut)
	}

	return content, mime, own, linksOf(document)
}

// unwrapLayout turns tables without a heading row into blocks: mails are laid out with tables, and a markdown table
// of a whole mail is unreadable.
func unwrapLayout(document *html.Node) {
	headed := map[*html.Node]bool{}
	findHeadings(document, headed)
	unwrap(document, headed, false)
}

// findHeadings collects the tables with a heading in them, and reports whether the node holds one.
func findHeadings(node *html.Node, headed map[*html.Node]bool) bool {
	found := node.DataAtom == atom.Th
	for child := node.FirstChild; child != nil; child = child.NextSibling {
		found = findHeadings(child, headed) || found
	}
	if found && node.DataAtom == atom.Table {
		headed[node] = true
	}
	return found
}

func unwrap(node *html.Node, headed map[*html.Node]bool, layout bool) {
	if node.DataAtom == atom.Table {
		layout = !headed[node]
	}

	for child := node.FirstChild; child != nil; child = child.NextSibling {
		unwrap(child, headed, layout)
	}

	switch node.DataAtom {
	case atom.Table, atom.Tbody, atom.Thead, atom.Tfoot, atom.Tr, atom.Td, atom.Caption:
		if layout {
			node.DataAtom, node.Data = atom.Div, "div"
		}
	}
}

// cleanNode drops link targets that are neither web nor mail, and image sources that are not the mail's own.
func cleanNode(node *html.Node) {
	if node.Type != html.ElementNode {
		return
	}

	kept := node.Attr[:0]
	for _, one := range node.Attr {
		if (one.Key == "href" && !safeLink(one.Val)) || (one.Key == "src" && !strings.HasPrefix(strings.ToLower(one.Val), "cid:") && !safeLink(one.Val)) {
			continue
		}
		kept = append(kept, one)
	}

	if node.DataAtom == atom.A && len(kept) < len(node.Attr) {
		node.DataAtom, node.Data = atom.Span, "span"
	}

	node.Attr = kept
}

func safeLink(target string) bool {
	target = strings.ToLower(strings.TrimSpace(target))
	return strings.HasPrefix(target, "http://") || strings.HasPrefix(target, "https://") || strings.HasPrefix(target, "mailto:")
}

func attribute(node *html.Node, name string) string {
	value, _ := attributeOf(node, name)
	return value
}

func attributeOf(node *html.Node, name string) (string, bool) {
	for _, one := range node.Attr {
		if one.Key == name {
			return strings.TrimSpace(one.Val), true
		}
	}
	return "", false
}

// structured reports whether markdown would keep something that plain text loses.
func structured(node *html.Node) bool {
	switch node.DataAtom {
	case atom.A, atom.Ul, atom.Ol, atom.Th, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Strong, atom.B,
		atom.Em, atom.I, atom.Blockquote, atom.Pre, atom.Code, atom.Img:
		return true
	}

	for child := node.FirstChild; child != nil; child = child.NextSibling {
		if structured(child) {
			return true
		}
	}

	return false
}

// textInside writes what a reader sees inside of an element, at most limit bytes.
func textInside(node *html.Node, limit int) string {
	text, _ := markup.Text(&html.Node{Type: html.DocumentNode, FirstChild: node.FirstChild}, markup.Plain, limit)
	return text
}

// Bounds of what is kept of the links in a mail.
const (
	maxLinks     = 20
	maxLinkBytes = 2048
	maxLinkTitle = 200 // runes
)

// linksOf returns the links that a reader can see: where each leads, and the text that it shows. Only the address tells where
// a link leads; its text may name another place. Quotations have been taken out before where they were marked.
func linksOf(document *html.Node) []normalized.Part {
	var links []normalized.Part
	seen := map[string]bool{}
	var walk func(*html.Node)
	walk = func(node *html.Node) {
		if len(links) == maxLinks {
			return
		}

		if address := webAddress(node); address != "" && !seen[address] {
			seen[address] = true
			links = append(links, normalized.Part{Kind: normalized.PartLink, URL: address, Title: message.Clean(textInside(node, 4*maxLinkTitle), maxLinkTitle)})
		}

		for child := node.FirstChild; child != nil; child = child.NextSibling {
			walk(child)
		}
	}

	walk(document)
	return links
}

func webAddress(node *html.Node) string {
	if node.DataAtom != atom.A {
		return ""
	}

	address := attribute(node, "href")
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" || parsed.Scheme != "https" && parsed.Scheme != "http" {
		return ""
	}

	if address = parsed.String(); len(address) > maxLinkBytes || strings.ToValidUTF8(address, "") != address {
		return ""
	}

	return address
}
