package markup

import (
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// LinkedImages makes links of the images in Markdown: a picture from elsewhere would tell its server who reads.
type LinkedImages struct{}

// Transform implements parser.ASTTransformer.
func (LinkedImages) Transform(document *ast.Document, _ text.Reader, _ parser.Context) {
	var images []*ast.Image
	_ = ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) { // the walker returns no error
		if image, ok := node.(*ast.Image); ok && entering {
			images = append(images, image)
		}
		return ast.WalkContinue, nil
	})

	for _, image := range images {
		linkImage(image)
	}
}

// linkImage puts the words of an image into a link to it; inside of a link the words stay alone, or its address where there
// are none.
func linkImage(image *ast.Image) {
	if !image.HasChildren() {
		image.AppendChild(image, ast.NewString(image.Destination))
	}

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

	parent.ReplaceChild(parent, image, link)
}

// inLink reports whether a node stands inside of a link. Emphasis nests, so only the nearest ancestors are asked.
func inLink(node ast.Node) bool {
	for steps := 0; node != nil && node.Type() == ast.TypeInline && steps < 64; node, steps = node.Parent(), steps+1 {
		if node.Kind() == ast.KindLink {
			return true
		}
	}
	return false
}
