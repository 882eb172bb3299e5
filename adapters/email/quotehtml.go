package email

import (
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// removeQuoted takes the answered mail and the signature out of a mail's HTML where a client marked them and nothing of
// the sender's own follows. It reports whether it removed something.
func removeQuoted(document *html.Node) bool {
	changed := false
	for _, node := range marked(document, isSignature) {
		if detach(node) {
			changed = true
		}
	}
	// Outlook on the web puts the mark between the answer and the old mail.
	if marks := marked(document, isOutlookMark); len(marks) > 0 && visibleBefore(marks[0]) {
		removeFrom(marks[0])
		return true
	}
	for range maxQuotations {
		last := lastQuote(document)
		if last == nil {
			break
		}
		prefix := previousElement(last)
		detach(last)
		if prefix != nil && hasClass(prefix, "moz-cite-prefix") {
			detach(prefix)
		}
		changed = true
	}
	return changed
}

// maxQuotations bounds how many quotations at the end of one mail are taken away.
const maxQuotations = 16

// lastQuote finds a quotation behind which nothing visible stands.
func lastQuote(document *html.Node) *html.Node {
	quotes := marked(document, isQuote)
	if len(quotes) == 0 {
		return nil
	}
	last := quotes[len(quotes)-1]
	if visibleAfter(last) || answersInside(last) || hasForwardMark(strings.Split(plainText(last), "\n")) {
		return nil
	}
	return last
}

// marked collects the outermost nodes that match, in order.
func marked(node *html.Node, match func(*html.Node) bool) []*html.Node {
	if node.Type == html.ElementNode && match(node) {
		return []*html.Node{node}
	}
	var found []*html.Node
	for child := node.FirstChild; child != nil; child = child.NextSibling {
		found = append(found, marked(child, match)...)
	}
	return found
}

func isQuote(node *html.Node) bool {
	switch node.DataAtom {
	case atom.Blockquote:
		return strings.EqualFold(attribute(node, "type"), "cite") || hasClass(node, "gmail_quote") || hasClass(node, "protonmail_quote")
	case atom.Div:
		return hasClass(node, "gmail_quote") || hasClass(node, "gmail_quote_container") || hasClass(node, "yahoo_quoted") || hasClass(node, "protonmail_quote")
	}
	return false
}

func isSignature(node *html.Node) bool {
	return hasClass(node, "gmail_signature") || hasClass(node, "moz-signature") || hasClass(node, "protonmail_signature_block") ||
		attribute(node, "id") == "Signature"
}

func isOutlookMark(node *html.Node) bool {
	switch attribute(node, "id") {
	case "divRplyFwdMsg", "appendonsend":
		return true
	}
	return false
}

func hasClass(node *html.Node, class string) bool {
	for one := range strings.FieldsSeq(attribute(node, "class")) {
		if one == class {
			return true
		}
	}
	return false
}

// answersInside says whether a quoting block holds text between or behind its own quotations: Gmail keeps inline answers
// there.
func answersInside(node *html.Node) bool {
	if node.DataAtom == atom.Blockquote {
		return false
	}
	quotes := innerQuotes(node)
	return len(quotes) > 0 && visibleBelow(node, quotes[0])
}

// innerQuotes gives the quotations inside a quoting block.
func innerQuotes(node *html.Node) []*html.Node {
	var found []*html.Node
	for child := node.FirstChild; child != nil; child = child.NextSibling {
		found = append(found, marked(child, func(n *html.Node) bool { return n.DataAtom == atom.Blockquote })...)
	}
	return found
}

// visibleBelow says whether text stands behind after, inside of node and outside of quotations.
func visibleBelow(node, after *html.Node) bool {
	for at := after; at != nil && at != node; at = at.Parent {
		for next := at.NextSibling; next != nil; next = next.NextSibling {
			if ownText(next) {
				return true
			}
		}
	}
	return false
}

func ownText(node *html.Node) bool {
	if node.Type == html.TextNode {
		return visible(node.Data)
	}
	if node.DataAtom == atom.Blockquote {
		return false
	}
	for child := node.FirstChild; child != nil; child = child.NextSibling {
		if ownText(child) {
			return true
		}
	}
	return node.DataAtom == atom.Img
}

// shows says whether a reader would see something of a node.
func shows(node *html.Node) bool {
	if node.Type == html.TextNode {
		return visible(node.Data)
	}
	for child := node.FirstChild; child != nil; child = child.NextSibling {
		if shows(child) {
			return true
		}
	}
	return node.DataAtom == atom.Img
}

func visibleAfter(node *html.Node) bool {
	for at := node; at != nil; at = at.Parent {
		for next := at.NextSibling; next != nil; next = next.NextSibling {
			if shows(next) {
				return true
			}
		}
	}
	return false
}

func visibleBefore(node *html.Node) bool {
	for at := node; at != nil; at = at.Parent {
		for before := at.PrevSibling; before != nil; before = before.PrevSibling {
			if shows(before) {
				return true
			}
		}
	}
	return false
}

// removeFrom takes a node and everything behind it out of the document.
func removeFrom(node *html.Node) {
	for at := node; at != nil; at = at.Parent {
		for at.NextSibling != nil {
			detach(at.NextSibling)
		}
	}
	detach(node)
}

func detach(node *html.Node) bool {
	if node.Parent == nil {
		return false
	}
	node.Parent.RemoveChild(node)
	return true
}

func previousElement(node *html.Node) *html.Node {
	for at := node.PrevSibling; at != nil; at = at.PrevSibling {
		if at.Type == html.ElementNode {
			return at
		}
		if visible(at.Data) {
			return nil
		}
	}
	return nil
}
