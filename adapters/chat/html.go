package chat

import (
	"crypto/sha256"
	"sync"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	goldmarkhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"inbox/exchange"
	"inbox/internal/markup"
	"inbox/normalized"
)

// markdown omits raw HTML. A single line break stays one: agents write chat, not books.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.GFM),
	goldmark.WithParserOptions(parser.WithASTTransformers(util.Prioritized(calm{}, 100), util.Prioritized(markup.LinkedImages{}, 101))),
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

// calm fits a text into a page that has headings of its own.
type calm struct{}

// Transform implements parser.ASTTransformer.
func (calm) Transform(document *ast.Document, _ text.Reader, _ parser.Context) {
	_ = ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) { // the walker gives no error
		if one, ok := node.(*ast.Heading); ok && entering {
			one.Level = min(one.Level+2, 6)
		}
		return ast.WalkContinue, nil
	})
}

// htmlOf is the answer of a turn as HTML, without its files, which stand beside it.
func (a *Adapter) htmlOf(turn exchange.TurnRecord) string {
	if turn.Response == nil {
		return a.render(a.reply(turn))
	}
	var parts []normalized.Part
	for _, part := range a.presented(turn.Response.Parts) {
		if part.Kind != normalized.PartFile && part.Kind != normalized.PartArtifact {
			parts = append(parts, part)
		}
	}
	if source := normalized.MarkdownText(parts); source != "" {
		return a.render(source)
	}
	if normalized.PlainText(turn.Response.Parts) != "" {
		return "" // files alone
	}
	return a.render(a.reply(turn))
}

// render is a text as HTML that a page can show; empty where it is shown as text. A session is read again and again while
// its answers stay as they are, so what was rendered is kept.
func (a *Adapter) render(source string) string {
	if source == "" {
		return ""
	}
	key := sha256.Sum256([]byte(source))
	if content, known := a.renderings.get(key); known {
		return content
	}
	content := rendered(source)
	a.renderings.put(key, content)
	return content
}

// rendered renders a text, unless that would cost more than the text is worth (markup.HTML).
func rendered(source string) string {
	content, ok := markup.HTML(markdown, source)
	if !ok {
		return ""
	}
	return permitted.Sanitize(content)
}

// maxRenderings bounds the HTML that is kept, in bytes; a rendering counts a little more than its length.
const (
	maxRenderings    = 16 << 20
	renderingAddends = 200
)

// renderings keeps HTML by the digest of its source; the oldest goes first.
type renderings struct {
	mutex sync.Mutex
	kept  map[[sha256.Size]byte]string
	order [][sha256.Size]byte
	bytes int
}

func (r *renderings) get(key [sha256.Size]byte) (string, bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	content, known := r.kept[key]
	return content, known
}

func (r *renderings) put(key [sha256.Size]byte, content string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if _, known := r.kept[key]; known || len(content) > maxRenderings/4 {
		return
	}
	if r.kept == nil {
		r.kept = map[[sha256.Size]byte]string{}
	}
	r.kept[key], r.order = content, append(r.order, key)
	for r.bytes += len(content) + renderingAddends; r.bytes > maxRenderings; r.order = r.order[1:] {
		r.bytes -= len(r.kept[r.order[0]]) + renderingAddends
		delete(r.kept, r.order[0])
	}
}
