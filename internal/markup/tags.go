package markup

import (
	"html"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
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
}

// autoLink writes an address as its author did. goldmark escapes the brackets around the host of one in IPv6.
func (writtenTags) autoLink(out util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if link, ok := node.(*ast.AutoLink); ok && entering {
		address, label := string(link.URL(source)), html.EscapeString(string(link.Label(source)))
		if link.AutoLinkType == ast.AutoLinkEmail && !strings.HasPrefix(strings.ToLower(address), "mailto:") {
			address = "mailto:" + address
		}
		_, _ = out.WriteString(`<a href="` + html.EscapeString(address) + `">` + label + "</a>")
	}
	return ast.WalkContinue, nil
}

func (writtenTags) link(out util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if link, ok := node.(*ast.Link); ok && entering {
		address := util.ResolveEntityNames(util.ResolveNumericReferences(util.UnescapePunctuations(link.Destination)))
		_, _ = out.WriteString(`<a href="` + html.EscapeString(string(address)) + `">`)
	} else {
		_, _ = out.WriteString("</a>")
	}
	return ast.WalkContinue, nil
}

func (writtenTags) inline(out util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if raw, ok := node.(*ast.RawHTML); ok && entering {
		var text strings.Builder
		for i := range raw.Segments.Len() {
			segment := raw.Segments.At(i)
			text.Write(segment.Value(source))
		}
		_, _ = out.WriteString(tagOrWords(text.String())) // a buffer in memory
	}
	return ast.WalkSkipChildren, nil
}

func (writtenTags) block(out util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if block, ok := node.(*ast.HTMLBlock); ok && entering {
		if first := block.Lines(); first.Len() > 0 {
			line := first.At(0)
			if text := strings.TrimSpace(string(line.Value(source))); tagOrWords(text) != text || swallows(string(first.Value(source))) {
				_, _ = out.WriteString("<p>" + html.EscapeString(string(block.Lines().Value(source))) + "</p>")
				return ast.WalkContinue, nil
			}
		}

		for i := range block.Lines().Len() {
			line := block.Lines().At(i)
			_, _ = out.Write(line.Value(source))
		}

		if block.HasClosure() {
			_, _ = out.Write(block.ClosureLine.Value(source))
		}
	}
	return ast.WalkContinue, nil
}

// tagOrWords returns a tag that forms text as it is, and every other one escaped: a tag that hides or swallows text is
// something that the author writes about.
func tagOrWords(tag string) string {
	if strings.HasPrefix(tag, "<!") || strings.HasPrefix(tag, "<?") {
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
