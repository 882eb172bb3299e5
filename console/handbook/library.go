package handbook

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// section is what a search finds: a heading with the text below it, up to the next heading.
type section struct {
	page  *page
	id    string // empty = the beginning of the page
	words string // of the heading

	text   string // plain
	folded string // heading and text in lower case
}

var markdown = goldmark.New(goldmark.WithExtensions(
	extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), extension.Linkify, extension.Strikethrough,
))

// newLibrary renders the documents. Links to documents that are not served lose their address.
func newLibrary(files map[string]string) (*library, error) {
	all := &library{pages: map[string]*page{}}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		source := []byte(files[file])
		document := markdown.Parser().Parse(text.NewReader(source))
		one := &page{path: pathOf(file)}
		if err := all.take(one, document, source, file, files); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		var html bytes.Buffer
		if err := markdown.Renderer().Render(&html, source, document); err != nil {
			return nil, fmt.Errorf("render %s: %w", file, err)
		}
		// Tables may be wider than a phone; what scrolls must be reached by the keyboard.
		one.html = strings.NewReplacer("<table>", `<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>`, "</table>", "</table></div>",
			"<pre>", `<pre tabindex="0">`, "<!-- raw HTML omitted -->", "").Replace(html.String())
		all.pages[one.path] = one
	}
	return all, nil
}

// anchors are places in a table to which links lead: <a id="…">.
var anchors = regexp.MustCompile(`^<a id="([\w.:-]+)">$`)

// take sets the ids of headings, points links to where the documents are served, and adds the sections of a page.
func (l *library) take(one *page, document ast.Node, source []byte, file string, files map[string]string) error {
	ids := &headingIDs{used: map[string]bool{}}
	current := section{page: one}
	var words strings.Builder
	var dropped []ast.Node // whose children stay
	var raw []*ast.RawHTML
	end := func() {
		current.text = strings.Join(strings.Fields(words.String()), " ")
		if current.words != "" || current.text != "" {
			current.folded = strings.ToLower(current.words + "\n" + current.text)
			l.sections = append(l.sections, current)
		}
		words.Reset()
	}

	err := ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			if node.Type() == ast.TypeBlock {
				words.WriteByte('\n')
			}
			return ast.WalkContinue, nil
		}
		switch n := node.(type) {
		case *ast.Heading:
			end()
			name := plain(n, source)
			id := ids.of(name)
			n.SetAttributeString("id", []byte(id))
			current = section{page: one, id: id, words: name}
			if n.Level == 1 && one.title == "" {
				one.title = name
			}
			if n.Level == 2 {
				one.headings = append(one.headings, heading{id: id, words: name})
			}
			return ast.WalkSkipChildren, nil
		case *ast.Link:
			n.Destination = []byte(leadsTo(string(n.Destination), file, files))
			if len(n.Destination) == 0 {
				dropped = append(dropped, n)
			}
		case *ast.RawHTML:
			raw = append(raw, n)
		case *ast.Image: // pictures are not in the program
			dropped = append(dropped, n)
		case *ast.Text:
			words.Write(n.Segment.Value(source))
			words.WriteByte(' ')
		case *ast.String:
			words.Write(n.Value)
		case *ast.CodeSpan:
			words.WriteString(plain(n, source))
			words.WriteByte(' ')
			return ast.WalkSkipChildren, nil
		case *ast.FencedCodeBlock:
			words.Write(n.Lines().Value(source))
		case *ast.CodeBlock:
			words.Write(n.Lines().Value(source))
		}
		return ast.WalkContinue, nil
	})
	end()
	if one.title == "" {
		one.title = one.path
	}
	one.folded = strings.ToLower(one.title)
	for _, node := range raw { // of raw HTML, only places to which links lead are kept
		if anchor := anchors.FindSubmatch(node.Segments.Value(source)); anchor != nil {
			place := ast.NewString([]byte(`<span id="` + string(anchor[1]) + `"></span>`))
			place.SetRaw(true)
			node.Parent().InsertBefore(node.Parent(), node, place)
		}
		node.Parent().RemoveChild(node.Parent(), node)
	}
	for _, node := range dropped {
		for child := node.FirstChild(); child != nil; child = node.FirstChild() {
			node.Parent().InsertBefore(node.Parent(), node, child)
		}
		node.Parent().RemoveChild(node.Parent(), node)
	}
	return err
}

// leadsTo returns where a link of a document leads: to another document as it is served, to another place on the web, or nowhere.
func leadsTo(link, file string, files map[string]string) string {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "#") || strings.HasPrefix(link, "mailto:") {
		return link
	}
	target, fragment, marked := strings.Cut(link, "#")
	other := path.Join(path.Dir(file), target)
	if _, served := files[other]; !served {
		return ""
	}
	address := strings.TrimSuffix(Root+"/"+pathOf(other), "/")
	if marked {
		address += "#" + fragment
	}
	return address
}

// plain returns the text of a node.
func plain(node ast.Node, source []byte) string {
	var words strings.Builder
	_ = ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function returns no error
		if entering {
			switch n := n.(type) {
			case *ast.Text:
				words.Write(n.Segment.Value(source))
				if n.SoftLineBreak() {
					words.WriteByte(' ')
				}
			case *ast.String:
				words.Write(n.Value)
			}
		}
		return ast.WalkContinue, nil
	})
	return words.String()
}

// headingIDs makes the fragments of headings as the places do where the tree is usually read, so that one link is right in both: lower case,
// letters, digits, hyphens and underscores alone, a hyphen for each space, and a number behind a name that was there before.
type headingIDs struct{ used map[string]bool }

func (h *headingIDs) of(name string) string {
	id := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(name))
	unique := id
	for n := 1; h.used[unique]; n++ {
		unique = id + "-" + strconv.Itoa(n)
	}
	h.used[unique] = true
	return unique
}
