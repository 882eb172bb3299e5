package markup

import (
	"bytes"
	"html"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
	extensionast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	goldmarkhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
	xhtml "golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// writtenTags keeps the words of an author that look like tags and are none, such as Vec<String>. Real tags are read by
// Parse.
type writtenTags struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (w writtenTags) RegisterFuncs(register renderer.NodeRendererFuncRegisterer) {
	register.Register(ast.KindRawHTML, w.inline)
	register.Register(ast.KindHTMLBlock, w.block)
	register.Register(ast.KindAutoLink, w.autoLink)
	register.Register(ast.KindLink, w.link)
	register.Register(ast.KindImage, w.image)
}

// autoLink writes an address as its author did. goldmark escapes the brackets around the host of one in IPv6.
func (writtenTags) autoLink(out util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if link, ok := node.(*ast.AutoLink); ok && entering {
		address, label := string(link.URL(source)), string(link.Label(source))
		if inCell(node) {
			address, label = strings.ReplaceAll(address, `\|`, "|"), strings.ReplaceAll(label, `\|`, "|")
		}
		if link.AutoLinkType == ast.AutoLinkEmail && !strings.HasPrefix(strings.ToLower(address), "mailto:") {
			address = "mailto:" + address
		}
		if label = html.EscapeString(label); inLink(node) {
			_, _ = out.WriteString(label)
		} else {
			_, _ = out.WriteString(`<a href="` + html.EscapeString(address) + `">` + label + "</a>")
		}
	}
	return ast.WalkContinue, nil
}

func inLink(node ast.Node) bool {
	for node = node.Parent(); node != nil && node.Type() == ast.TypeInline; node = node.Parent() {
		if node.Kind() == ast.KindLink {
			return true
		}
	}
	return false
}

// inCell reports whether words stand in the cell of a table, where a bar needs a backslash.
func inCell(node ast.Node) bool {
	for node = node.Parent(); node != nil && node.Type() == ast.TypeInline; node = node.Parent() {
	}
	return node != nil && node.Kind() == extensionast.KindTableCell
}

func (writtenTags) link(out util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if link, ok := node.(*ast.Link); ok && entering {
		_, _ = out.WriteString(`<a href="`)
		goldmarkhtml.DefaultWriter.Write(out, link.Destination)
		_, _ = out.WriteString(`">`)
	} else {
		_, _ = out.WriteString("</a>")
	}
	return ast.WalkContinue, nil
}

// image writes all words of a description. goldmark drops addresses and words that look like tags, and writes tags for line breaks.
func (writtenTags) image(out util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if image, ok := node.(*ast.Image); ok && entering {
		_, _ = out.WriteString(`<img src="`)
		goldmarkhtml.DefaultWriter.Write(out, image.Destination)
		_, _ = out.WriteString(`" alt="`)
		_ = ast.Walk(image, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
			if !entering {
				return ast.WalkContinue, nil
			}
			switch words := node.(type) {
			case *ast.Text:
				if words.IsRaw() || node.Parent().Kind() == ast.KindCodeSpan {
					goldmarkhtml.DefaultWriter.RawWrite(out, words.Value(source))
				} else {
					goldmarkhtml.DefaultWriter.Write(out, words.Value(source))
				}
				if words.SoftLineBreak() || words.HardLineBreak() {
					_ = out.WriteByte(' ')
				}
			case *ast.String:
				goldmarkhtml.DefaultWriter.RawWrite(out, words.Value)
			case *ast.AutoLink:
				goldmarkhtml.DefaultWriter.RawWrite(out, words.Label(source))
			case *ast.RawHTML:
				if text := rawText(words, source); alone(node) || tagOrWords(text) != text {
					goldmarkhtml.DefaultWriter.RawWrite(out, []byte(text))
				}
			}
			return ast.WalkContinue, nil // it never fails
		})
		_, _ = out.WriteString(`">`)
	}
	return ast.WalkSkipChildren, nil
}

func (writtenTags) inline(out util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if raw, ok := node.(*ast.RawHTML); ok && entering {
		text := rawText(raw, source)
		if alone(node) {
			text = html.EscapeString(text)
		} else {
			text = tagOrWords(text)
		}
		_, _ = out.WriteString(text) // a buffer in memory
	}
	return ast.WalkSkipChildren, nil
}

func rawText(raw *ast.RawHTML, source []byte) string {
	var text strings.Builder
	for i := range raw.Segments.Len() {
		segment := raw.Segments.At(i)
		text.Write(segment.Value(source))
	}
	return text.String()
}

func blockText(block *ast.HTMLBlock, source []byte) string {
	content := string(block.Lines().Value(source))
	if block.HasClosure() {
		content += string(block.ClosureLine.Value(source))
	}
	return content
}

// partners marks the tags that have no partner in their document: <address> in "Send it to <address>" is a word of the author.
type partners struct{}

var withoutPartner = []byte("alone")

// Transform implements parser.ASTTransformer.
func (partners) Transform(document *ast.Document, reader text.Reader, _ parser.Context) {
	if bytes.IndexByte(reader.Source(), '<') < 0 {
		return
	}

	opened := map[string][]ast.Node{} // those that wait for their partner, by name
	first := map[ast.Node]bool{}      // whether a piece of HTML begins with a tag that waits
	_ = ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		var content string
		switch raw := node.(type) {
		case *ast.RawHTML:
			content = rawText(raw, reader.Source())
		case *ast.HTMLBlock:
			content = blockText(raw, reader.Source())
		}
		if !entering || content == "" {
			return ast.WalkContinue, nil
		}

		content = strings.TrimSpace(content)
		most := -1
		if node.Kind() == ast.KindRawHTML { // one tag, or a comment
			most = 1
		}
		for _, at := range tag.FindAllStringSubmatchIndex(content, most) {
			if most == 1 && at[0] > 0 {
				break
			}
			name, begins := strings.ToLower(content[at[4]:at[5]]), at[0] == 0
			if begins && (comparison(content) || name == "img" && !strings.Contains(content, "=")) {
				node.SetAttribute(withoutPartner, true)
				continue
			}
			waiting := opened[name]
			last := len(waiting) - 1
			switch closes := content[at[2]:at[3]] == "/"; {
			case !closes && endsItself(atom.Lookup([]byte(name))):
			case !closes && begins:
				first[node] = true
				opened[name] = append(waiting, node)
			case !closes:
				opened[name] = append(waiting, nil)
			case last >= 0:
				delete(first, waiting[last])
				opened[name] = waiting[:last]
			case begins && name != "p" && name != "br":
				node.SetAttribute(withoutPartner, true)
			}
		}
		return ast.WalkContinue, nil // it never fails
	})

	for node := range first {
		node.SetAttribute(withoutPartner, true)
	}
}

// comparison reports whether a tag has an attribute that no author writes: in "a<b and c>d" they are words.
func comparison(content string) bool {
	tokens := xhtml.NewTokenizer(strings.NewReader(content))
	if kind := tokens.Next(); kind != xhtml.StartTagToken && kind != xhtml.SelfClosingTagToken {
		return false
	}
	for _, one := range tokens.Token().Attr {
		if one.Val == "" && !slices.Contains(flags, one.Key) && !strings.HasPrefix(one.Key, "data-") && !strings.HasPrefix(one.Key, "aria-") {
			return true
		}
	}
	return false
}

// flags are the attributes that tags have without a value.
var flags = []string{
	"alt", "checked", "class", "compact", "disabled", "height", "hidden", "href", "id", "inert", "ismap", "itemscope", "lang", "nowrap", "open", "readonly", "required",
	"reversed", "selected", "src", "style", "target", "title", "value", "width",
}

// tag is the beginning of one: its slash and its name.
var tag = regexp.MustCompile(`<(/?)([A-Za-z][A-Za-z0-9-]*)`)

// endsItself reports whether an element needs no closing tag.
func endsItself(tag atom.Atom) bool {
	switch tag {
	case atom.Br, atom.Hr, atom.Img, atom.Wbr, atom.P, atom.Li, atom.Dt, atom.Dd, atom.Tr, atom.Td, atom.Th, atom.Thead, atom.Tbody, atom.Tfoot, atom.Caption,
		atom.Rt, atom.Rp:
		return true
	}
	return false
}

func alone(node ast.Node) bool {
	_, is := node.Attribute(withoutPartner)
	return is
}

func (writtenTags) block(out util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if block, ok := node.(*ast.HTMLBlock); ok && entering {
		if first := block.Lines(); first.Len() > 0 {
			line := first.At(0)
			if text := strings.TrimSpace(string(line.Value(source))); alone(node) || tagOrWords(text) != text || swallows(string(first.Value(source))) {
				_, _ = out.WriteString("<p>" + html.EscapeString(blockText(block, source)) + "</p>")
				return ast.WalkContinue, nil
			}
		}

		_, _ = out.WriteString(blockText(block, source))
	}
	return ast.WalkContinue, nil
}

// tagOrWords returns a tag that forms text as it is, and every other one escaped: a tag that hides or swallows text is
// something that the author writes about.
func tagOrWords(tag string) string {
	if strings.HasPrefix(tag, "<!--") {
		return tag
	}

	name := strings.TrimLeft(tag, "</")
	if end := strings.IndexAny(name, " \t\r\n/>"); end >= 0 {
		name = name[:end]
	}

	switch known := atom.Lookup([]byte(name)); {
	case known == atom.Plaintext, known == atom.Xmp:
	case block(known), formats(known), tablePart(known):
		return tag
	case known == atom.Br, known == atom.Span, known == atom.Td, known == atom.Th, known == atom.Caption, known == atom.Img, known == atom.Sub,
		known == atom.Sup, known == atom.Mark, known == atom.Del, known == atom.Ins, known == atom.Kbd, known == atom.Samp, known == atom.Q,
		known == atom.Cite, known == atom.Abbr, known == atom.Wbr, known == atom.Ruby, known == atom.Rt, known == atom.Rp:
		return tag
	}

	return html.EscapeString(tag)
}

// swallows reports whether a block of HTML holds a tag behind which text would be lost.
func swallows(text string) bool {
	text = strings.ToLower(text)
	for _, tag := range []string{"<script", "<style", "<title", "<textarea", "<xmp", "<plaintext", "<iframe", "<noembed", "<noframes", "<template", "<head"} {
		if strings.Contains(text, tag) {
			return true
		}
	}
	return false
}
