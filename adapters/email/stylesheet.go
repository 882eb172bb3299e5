package email

import (
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// maxStyleBytes bounds the style sheets that are read of one mail.
const maxStyleBytes = 64 << 10

// hiddenSelectors are the classes and ids that a mail's own style sheets hide: ".x" and "#x". Rules within @media and
// others are not looked at, because they hold for some readers only.
func hiddenSelectors(document *html.Node) map[string]bool {
	var sheet strings.Builder
	collectStyles(document, &sheet)
	found := map[string]bool{}
	depth, start, selector := 0, 0, ""
	text := strings.ToLower(sheet.String())
	for i := range len(text) {
		switch text[i] {
		case '{':
			if depth++; depth == 1 {
				selector, start = text[start:i], i+1
			}
		case '}':
			if depth == 1 && hiddenStyle(text[start:i]) {
				addSelectors(found, selector)
			}
			if depth = max(depth-1, 0); depth == 0 {
				start = i + 1
			}
		}
	}
	return found
}

func collectStyles(node *html.Node, out *strings.Builder) {
	for child := node.FirstChild; child != nil && out.Len() < maxStyleBytes; child = child.NextSibling {
		if node.DataAtom == atom.Style && child.Type == html.TextNode {
			out.WriteString(child.Data[:min(len(child.Data), maxStyleBytes)])
		}
		collectStyles(child, out)
	}
}

// addSelectors keeps selectors of one class or id, with or without a tag.
func addSelectors(found map[string]bool, selectors string) {
	for one := range strings.SplitSeq(selectors, ",") {
		one = strings.TrimSpace(one)
		at := strings.IndexAny(one, ".#")
		if at >= 0 && !strings.ContainsAny(one[at+1:], ".#: >+~[") && !strings.ContainsAny(one[:at], ": >+~[@") {
			found[one[at:]] = true
		}
	}
}

// removeSelected takes out what the style sheets hide.
func removeSelected(node *html.Node, selectors map[string]bool) {
	if len(selectors) == 0 {
		return
	}
	for child := node.FirstChild; child != nil; {
		next := child.NextSibling
		if child.Type == html.ElementNode && selected(child, selectors) {
			node.RemoveChild(child)
		} else {
			removeSelected(child, selectors)
		}
		child = next
	}
}

func selected(node *html.Node, selectors map[string]bool) bool {
	if id := attribute(node, "id"); id != "" && selectors["#"+strings.ToLower(id)] {
		return true
	}
	for class := range strings.FieldsSeq(strings.ToLower(attribute(node, "class"))) {
		if selectors["."+class] {
			return true
		}
	}
	return false
}
