package chat

import (
	"bytes"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	goldmarkhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"inbox/exchange"
	"inbox/normalized"
)

// maxRendered bounds the Markdown that becomes HTML, in bytes; a longer answer is shown as text.
const maxRendered = 256 << 10

// markdown omits raw HTML. A single line break stays one: agents write chat, not books.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.GFM),
	goldmark.WithParserOptions(parser.WithASTTransformers(util.Prioritized(calm{}, 100))),
	goldmark.WithRendererOptions(goldmarkhtml.WithHardWraps()),
)

// permitted is what may stand in an answer on a page: structure of text and links that say nothing about the page. It
// starts from nothing.
var permitted = func() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "strong", "b", "em", "i", "del", "s", "code", "pre", "blockquote", "h3", "h4", "h5", "h6",
		"ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td")
	p.AllowAttrs("start").Matching(bluemonday.Integer).OnElements("ol")
	p.AllowAttrs("href").OnElements("a")
	p.AllowURLSchemes("http", "https", "mailto")
	p.RequireParseableURLs(true)
	p.AllowRelativeURLs(false)
	p.RequireNoFollowOnLinks(true)
	p.RequireNoReferrerOnLinks(true)
	p.AddTargetBlankToFullyQualifiedLinks(true) // with rel=noopener
	return p
}()

// calm fits a text into a page that has headings of its own, and makes links of images: a picture from elsewhere would
// tell its server who reads.
type calm struct{}

// Transform implements parser.ASTTransformer.
func (calm) Transform(document *ast.Document, _ text.Reader, _ parser.Context) {
	var images []*ast.Image
	_ = ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) { // the walker gives no error
		switch one := node.(type) {
		case *ast.Heading:
			if entering {
				one.Level = min(one.Level+2, 6)
			}
		case *ast.Image:
			if entering {
				images = append(images, one)
			}
		}
		return ast.WalkContinue, nil
	})
	for _, image := range images {
		linkImage(image)
	}
}

// linkImage puts the words of an image into a link to it; inside of a link the words stay alone.
func linkImage(image *ast.Image) {
	parent := image.Parent()
	if inLink(parent) {
		for child := image.FirstChild(); child != nil; child = image.FirstChild() {
			parent.InsertBefore(parent, image, child)
		}
		parent.RemoveChild(parent, image)
		return
	}
	link := ast.NewLink()
	link.Destination = image.Destination
	for child := image.FirstChild(); child != nil; child = image.FirstChild() {
		link.AppendChild(link, child)
	}
	if !link.HasChildren() {
		link.AppendChild(link, ast.NewString(image.Destination))
	}
	parent.ReplaceChild(parent, image, link)
}

func inLink(node ast.Node) bool {
	for ; node != nil; node = node.Parent() {
		if node.Kind() == ast.KindLink {
			return true
		}
	}
	return false
}

// htmlOf is the answer of a turn as HTML, without its files, which stand beside it.
func (a *Adapter) htmlOf(turn exchange.TurnRecord) string {
	if turn.Response == nil {
		return rendered(a.reply(turn))
	}
	var parts []normalized.Part
	for _, part := range a.presented(turn.Response.Parts) {
		if part.Kind != normalized.PartFile && part.Kind != normalized.PartArtifact {
			parts = append(parts, part)
		}
	}
	if source := normalized.MarkdownText(parts); source != "" {
		return rendered(source)
	}
	if normalized.PlainText(turn.Response.Parts) != "" {
		return "" // files alone
	}
	return rendered(a.reply(turn))
}

// rendered is a text as HTML that a page can show; empty where it is shown as text.
func rendered(source string) string {
	var out bytes.Buffer
	if source == "" || len(source) > maxRendered || markdown.Convert([]byte(source), &out) != nil {
		return ""
	}
	return permitted.Sanitize(out.String())
}
