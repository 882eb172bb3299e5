package text

import (
	"strings"
	"unicode"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"inbox/adapters/email/message"
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

// lastQuote finds a quotation that nothing visible follows.
func lastQuote(document *html.Node) *html.Node {
	quotes := marked(document, isQuote)
	if len(quotes) == 0 {
		return nil
	}
	last := quotes[len(quotes)-1]
	if visibleAfter(last) || answersInside(last) || hasForwardMark(strings.Split(textInside(last, maxTextBytes), "\n")) {
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
		id := attribute(node, "id")
		return strings.EqualFold(attribute(node, "type"), "cite") || hasClass(node, "gmail_quote") || hasClass(node, "protonmail_quote") ||
			hasClass(node, "tutanota_quote") || id == "blockquote_zmail" || id == "isReplyContent"
	case atom.Div:
		return hasClass(node, "gmail_quote") || hasClass(node, "gmail_quote_container") || hasClass(node, "protonmail_quote") || hasClass(node, "zmail_extra") ||
			strings.Contains(attribute(node, "class"), "yahoo_quoted") // newer Yahoo writes a prefix of its own before it
	}
	return false
}

// quoteMarks are the names that isQuote and isOutlookMark look for, as they stand in HTML.
var quoteMarks = []string{
	"gmail_quote", "yahoo_quoted", "protonmail_quote", "tutanota_quote", "blockquote_zmail", "zmail_extra", "isReplyContent", "divRplyFwdMsg", "appendonsend", `type="cite"`,
}

// ownByMarks returns what a plain text says itself by the marks in the HTML beside it, where the text itself has no form
// that is known; "" = the marks say nothing. It cuts only where the letters of the text up to the end of a line are exactly those
// of the sender's own part of the HTML, and what follows ends the HTML as well.
func ownByMarks(text string, rich *message.Entity) string {
	page := rich.Find("text/html")
	if page == nil || fresh(text, "", true) != text {
		return ""
	}

	source := sourceOf(page)
	if !containsAny(source, quoteMarks) {
		return ""
	}

	whole, _, own, _ := readHTML(source, false)
	wanted := letters(withoutTargets(own))
	if wanted == "" {
		return ""
	}

	end, rest := 0, wanted
	for line := range strings.SplitAfterSeq(text, "\n") {
		end += len(line)
		found := letters(line)
		if !strings.HasPrefix(rest, found) {
			return ""
		}

		if rest = rest[len(found):]; rest == "" {
			// What goes must stand in the HTML, too: the text may say more than it.
			if !strings.HasSuffix(letters(withoutTargets(whole)), letters(text[end:])) {
				return ""
			}
			return strings.TrimSpace(text[:end])
		}
	}

	return ""
}

// letters keeps of a text what both of its forms have.
func letters(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, text)
}

// withoutTargets drops where links of Markdown lead.
func withoutTargets(text string) string {
	var out strings.Builder
	for {
		before, behind, found := strings.Cut(text, "](")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		_, rest, closed := strings.Cut(behind, ")")
		if !closed {
			return out.String() + behind
		}
		text = rest
	}
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

// answersInside reports whether a quoting block holds text between or behind its own quotations: Gmail keeps inline answers
// there.
func answersInside(node *html.Node) bool {
	if node.DataAtom == atom.Blockquote {
		return false
	}
	quotes := innerQuotes(node)
	return len(quotes) > 0 && visibleBelow(node, quotes[0])
}

// innerQuotes returns the quotations inside a quoting block.
func innerQuotes(node *html.Node) []*html.Node {
	var found []*html.Node
	for child := node.FirstChild; child != nil; child = child.NextSibling {
		found = append(found, marked(child, func(n *html.Node) bool { return n.DataAtom == atom.Blockquote })...)
	}
	return found
}

// visibleBelow reports whether text follows after, inside of node and outside of quotations.
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

// shows reports whether a reader would see something of a node.
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
