package email

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"inbox/normalized"
)

// maxHTMLBytes bounds what is converted; longer HTML is cut before it is parsed.
const maxHTMLBytes = 512 << 10

// markdown knows tables with a heading row; tables without one lay out pages and are taken apart before.
var markdown = converter.NewConverter(converter.WithPlugins(base.NewBasePlugin(), commonmark.NewCommonmarkPlugin(), table.NewTablePlugin()))

// fromHTML converts a mail's HTML to markdown, or to plain text when it has no structure. What a reader would not
// see is removed first: hidden text is the usual way to slip instructions to a model. Nothing is ever fetched.
func fromHTML(text string) (content, mime string) {
	content, mime, _, _ = readHTML(text, false)
	return content, mime
}

// readHTML also gives, as own, what is left without quotations and signature that the client marked; it is empty when
// nothing was marked or when the mail is forwarded. links are where its links lead, whatever they show.
func readHTML(text string, forwarded bool) (content, mime, own string, links []normalized.Part) {
	if len(text) > maxHTMLBytes {
		text = strings.ToValidUTF8(text[:maxHTMLBytes], "")
	}
	document, err := html.Parse(strings.NewReader(text))
	if err != nil {
		return tokenText(text), normalized.MIMEPlain, "", nil
	}
	removeSelected(document, hiddenSelectors(document))
	removeHidden(document)
	unwrapLayout(document)
	content, mime = convertHTML(document)
	if !forwarded && removeQuoted(document) {
		// In the form of the whole, so that both can be read alike.
		if own, _ = convertHTML(document); mime == normalized.MIMEPlain {
			own = squeeze(plainText(document))
		}
	}
	return content, mime, own, linksOf(document)
}

func convertHTML(document *html.Node) (content, mime string) {
	if !structured(document) {
		return squeeze(plainText(document)), normalized.MIMEPlain
	}
	converted, err := markdown.ConvertNode(document)
	if err != nil {
		return squeeze(plainText(document)), normalized.MIMEPlain
	}
	return strings.TrimSpace(string(converted)), normalized.MIMEMarkdown
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

// unwrapLayout turns tables without a heading row into blocks: mails are laid out with tables, and a markdown table
// of a whole mail is unreadable.
func unwrapLayout(node *html.Node) {
	for child := node.FirstChild; child != nil; child = child.NextSibling {
		if child.DataAtom == atom.Table && !contains(child, atom.Th) {
			blocks(child)
		}
		unwrapLayout(child)
	}
}

func blocks(node *html.Node) {
	switch node.DataAtom {
	case atom.Table, atom.Tbody, atom.Thead, atom.Tfoot, atom.Tr, atom.Td, atom.Caption:
		node.DataAtom, node.Data = atom.Div, "div"
	}
	for child := node.FirstChild; child != nil; child = child.NextSibling {
		blocks(child)
	}
}

func contains(node *html.Node, tag atom.Atom) bool {
	for child := node.FirstChild; child != nil; child = child.NextSibling {
		if child.DataAtom == tag || contains(child, tag) {
			return true
		}
	}
	return false
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

// awayFromThePage says whether text stands where no window shows it.
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

// farOut says whether a length is at least 500 units below zero.
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

// structured says whether markdown would keep something that plain text loses.
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

// plainText writes the visible text with line breaks where blocks end.
func plainText(document *html.Node) string {
	var out strings.Builder
	var walk func(*html.Node)
	walk = func(node *html.Node) {
		if node.Type == html.TextNode {
			out.WriteString(collapse(node.Data))
		}
		for child := node.FirstChild; child != nil; child = child.NextSibling {
			walk(child)
		}
		switch node.DataAtom {
		case atom.P, atom.Div, atom.Br, atom.Tr, atom.Table, atom.Section, atom.Article, atom.Header, atom.Footer, atom.Hr:
			out.WriteByte('\n')
			if node.DataAtom == atom.P {
				out.WriteByte('\n')
			}
		case atom.Td:
			out.WriteByte(' ')
		}
	}
	walk(document)
	return out.String()
}

// collapse treats white space as HTML does, keeping one blank at either end.
func collapse(text string) string {
	joined := strings.Join(strings.Fields(text), " ")
	if joined == "" {
		if text != "" && !strings.Contains(text, "\n") {
			return " "
		}
		return ""
	}
	if strings.TrimLeft(text, " \t\r\n") != text {
		joined = " " + joined
	}
	if strings.TrimRight(text, " \t\r\n") != text {
		joined += " "
	}
	return joined
}

// squeeze trims lines and keeps at most one empty line in a row.
func squeeze(text string) string {
	var out []string
	empty := 0
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			if empty++; empty > 1 {
				continue
			}
		} else {
			empty = 0
		}
		out = append(out, line)
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}

// tokenText is the way out for HTML that the parser refuses, such as nesting beyond its limit.
func tokenText(text string) string {
	var out strings.Builder
	tokens := html.NewTokenizer(strings.NewReader(text))
	skip := 0
	for {
		switch kind := tokens.Next(); kind {
		case html.ErrorToken:
			return squeeze(out.String())
		case html.StartTagToken, html.EndTagToken:
			name, _ := tokens.TagName()
			if tag := atom.Lookup(name); tag == atom.Script || tag == atom.Style || tag == atom.Head || tag == atom.Title {
				if kind == html.StartTagToken {
					skip++
				} else if skip > 0 {
					skip--
				}
			}
		case html.TextToken:
			if skip == 0 {
				out.WriteString(collapse(string(tokens.Text())))
				out.WriteByte('\n')
			}
		}
	}
}
