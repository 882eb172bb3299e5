package text

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// maxStyleBytes bounds the style sheets that are read of one mail.
const maxStyleBytes = 64 << 10

// hiddenSelectors are the tags, classes and ids that a mail's own style sheets hide: "x", ".x" and "#x". Rules within
// @media count when they hold for every screen; others hold for some readers only.
func hiddenSelectors(document *html.Node) map[string]bool {
	var sheet strings.Builder
	collectStyles(document, &sheet)
	found := map[string]bool{}
	if sheet.Len() > 0 {
		open := strings.Repeat("}", maxRuleDepth) // a sheet that ends within a rule ends it
		readRules(withoutComments(strings.ToLower(sheet.String()))+open, found, 0)
	}
	return found
}

// maxRuleDepth is how deep @media is followed into itself.
const maxRuleDepth = 4

func readRules(text string, found map[string]bool, level int) {
	depth, start, selector := 0, 0, ""
	for i := range len(text) {
		switch text[i] {
		case '{':
			if depth++; depth == 1 {
				selector, start = strings.TrimSpace(text[start:i]), i+1
			}

		case ';':
			if depth == 0 {
				start = i + 1 // behind @import and @charset
			}

		case '}':
			switch queries, media := strings.CutPrefix(selector, "@media"); {
			case depth != 1:
			case media && level < maxRuleDepth && everyScreen(queries):
				readRules(text[start:i], found, level+1)
			case !strings.HasPrefix(selector, "@") && hiddenStyle(text[start:i]):
				addSelectors(found, selector)
			}
			if depth = max(depth-1, 0); depth == 0 {
				start = i + 1
			}
		}
	}
}

// everyScreen reports whether one of the media queries has no condition that a screen could fail.
func everyScreen(queries string) bool {
	for query := range strings.SplitSeq(queries, ",") {
		switch strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(query), "only ")) {
		case "", "all", "screen":
			return true
		}
	}
	return false
}

func withoutComments(sheet string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(sheet, "/*")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteByte(' ')
		_, sheet, _ = strings.Cut(rest, "*/")
	}
}

func collectStyles(node *html.Node, out *strings.Builder) {
	for child := node.FirstChild; child != nil && out.Len() < maxStyleBytes; child = child.NextSibling {
		if node.DataAtom == atom.Style && child.Type == html.TextNode {
			out.WriteString(child.Data[:min(len(child.Data), maxStyleBytes)])
		}
		collectStyles(child, out)
	}
}

// addSelectors keeps selectors of one class or id, with or without a tag, and of one tag alone.
func addSelectors(found map[string]bool, selectors string) {
	for one := range strings.SplitSeq(selectors, ",") {
		one = strings.TrimSpace(one)
		at := strings.IndexAny(one, ".#")
		switch {
		case at < 0 && tagName(one):
			found[one] = true
		case at >= 0 && !strings.ContainsAny(one[at+1:], ".#: >+~[") && !strings.ContainsAny(one[:at], ": >+~[@"):
			found[one[at:]] = true
		}
	}
}

// tagName reports whether a selector is a tag that may hide a part of a mail, and not all of it.
func tagName(selector string) bool {
	return selector != "" && selector != "html" && selector != "body" && strings.Trim(selector, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
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

	if selectors[node.Data] {
		return true
	}

	for class := range strings.FieldsSeq(strings.ToLower(attribute(node, "class"))) {
		if selectors["."+class] {
			return true
		}
	}

	return false
}

// removeHidden takes out scripts, styles, comments, hidden blocks, tracking pixels and links that are not web or mail.
func removeHidden(node *html.Node) {
	for child := node.FirstChild; child != nil; {
		next := child.NextSibling
		if child.Type == html.CommentNode || (child.Type == html.ElementNode && hidden(child)) {
			node.RemoveChild(child)
		} else {
			cleanNode(child)
			removeHidden(child)
		}
		child = next
	}
}

func hidden(node *html.Node) bool {
	switch node.DataAtom {
	case atom.Script, atom.Style, atom.Head, atom.Template, atom.Iframe, atom.Object, atom.Embed, atom.Svg, atom.Math,
		atom.Noscript, atom.Audio, atom.Video, atom.Select, atom.Textarea, atom.Input, atom.Title:
		return true
	case atom.Img:
		return tiny(attribute(node, "width")) || tiny(attribute(node, "height")) || hiddenStyle(attribute(node, "style"))
	}

	if _, ok := attributeOf(node, "hidden"); ok {
		return true
	}

	return strings.EqualFold(attribute(node, "aria-hidden"), "true") && attribute(node, "style") != "" ||
		hiddenStyle(attribute(node, "style")) || invisibleFont(node)
}

func tiny(size string) bool { return size == "0" || size == "1" || size == "0px" || size == "1px" }

func invisibleFont(node *html.Node) bool {
	return node.DataAtom == atom.Font && white(strings.ToLower(attribute(node, "color"))) && attribute(node, "style") == ""
}

var zeroSize = regexp.MustCompile(`^0*\.?0*(px|pt|em|rem|%)?$|^[01](px|pt)?$`)

// hiddenStyle reads an inline style for the ways in which senders hide text.
func hiddenStyle(style string) bool {
	if style == "" {
		return false
	}

	properties := map[string]string{}
	for declaration := range strings.SplitSeq(strings.ToLower(style), ";") {
		name, value, _ := strings.Cut(declaration, ":")
		value = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "!important"))
		properties[strings.TrimSpace(name)] = value
	}

	clipped := properties["overflow"] == "hidden"
	switch {
	case properties["display"] == "none", properties["visibility"] == "hidden", properties["visibility"] == "collapse",
		properties["mso-hide"] == "all":
		return true
	case zero(properties["font-size"]), zeroOpacity(properties["opacity"]):
		return true
	case clipped && (zero(properties["max-height"]) || zero(properties["height"]) || zero(properties["max-width"]) || zero(properties["width"])):
		return true
	}

	if awayFromThePage(properties) || properties["color"] == "transparent" {
		return true
	}

	return white(properties["color"]) && (white(properties["background-color"]) || white(properties["background"]))
}

func zero(value string) bool { return value != "" && zeroSize.MatchString(value) }

// awayFromThePage reports whether text is placed where no window shows it.
func awayFromThePage(properties map[string]string) bool {
	if farOut(properties["text-indent"]) {
		return true
	}
	switch properties["position"] {
	case "absolute", "fixed", "relative":
		return farOut(properties["left"]) || farOut(properties["top"]) || farOut(properties["right"]) || farOut(properties["bottom"])
	}
	return farOut(properties["margin-left"])
}

// farOut reports whether a length is at least 500 units below zero.
func farOut(length string) bool {
	digits, negative := strings.CutPrefix(length, "-")
	digits, _, _ = strings.Cut(strings.TrimRight(digits, "abcdefghijklmnopqrstuvwxyz%"), ".")
	units, err := strconv.Atoi(digits)
	return negative && (err == nil && units >= 500 || errors.Is(err, strconv.ErrRange))
}

func zeroOpacity(value string) bool { return value != "" && strings.Trim(value, "0.") == "" }

func white(color string) bool {
	switch strings.ReplaceAll(color, " ", "") {
	case "white", "#fff", "#ffffff", "rgb(255,255,255)":
		return true
	}
	return false
}
