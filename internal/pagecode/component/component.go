// Package component is what the shortened code of pages calls (internal/pagecode): how a component begins and ends, and how it writes.
package component

import (
	"context"
	"io"

	"github.com/a-h/templ"
	"github.com/a-h/templ/runtime"
)

// Context is context.Context, so that the code of pages imports one package for all that it needs.
type Context = context.Context

// Page is where one component writes. It keeps the first error, so that the code of pages needs no check after each text.
type Page struct {
	buffer *runtime.Buffer
	err    error
}

// New returns a component of a page, whose children are what stands between its braces where it is used.
func New(write func(ctx Context, page *Page, children templ.Component)) templ.Component { //nolint:ireturn // templ's components are of this type
	return templ.ComponentFunc(func(ctx context.Context, w io.Writer) error {
		ctx = templ.InitializeContext(ctx)
		children := templ.GetChildren(ctx)
		return render(templ.ClearChildren(ctx), w, func(ctx Context, page *Page) { write(ctx, page, children) })
	})
}

// Children returns what stands between the braces of a component that is used.
func Children(write func(ctx Context, page *Page)) templ.Component { //nolint:ireturn // templ's components are of this type
	return templ.ComponentFunc(func(ctx context.Context, w io.Writer) error {
		return render(templ.InitializeContext(ctx), w, write)
	})
}

// render writes to the buffer of the page in which a component stands, or to a new one that it sends to w.
func render(ctx Context, w io.Writer, write func(Context, *Page)) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	buffer, given := runtime.GetBuffer(w)
	page := Page{buffer: buffer}
	write(ctx, &page)
	if !given {
		page.keep(runtime.ReleaseBuffer(buffer))
	}
	return page.err
}

// Fixed writes what the template says.
func (p *Page) Fixed(markup string) {
	_, _ = p.buffer.WriteString(markup) // the buffer keeps its first error and returns it when it is flushed
}

// Escaped writes what the template says, then a text with its characters escaped.
func (p *Page) Escaped(markup, text string) {
	p.Fixed(markup)
	p.Fixed(templ.EscapeString(text))
}

// Address writes what the template says, then an address; one with a scheme that a page must not lead to becomes about:invalid.
func (p *Page) Address(markup, address string) { p.Escaped(markup, string(templ.URL(address))) }

// Styles writes the styles of those classes that bring one (css of templ).
func (p *Page) Styles(ctx Context, classes []any) {
	p.keep(templ.RenderCSSItems(ctx, p.buffer, classes...))
}

// Component writes what the template says, then another component.
func (p *Page) Component(ctx Context, markup string, other templ.Component) {
	p.Fixed(markup)
	p.keep(other.Render(ctx, p.buffer))
}

func (p *Page) keep(err error) {
	if p.err == nil {
		p.err = err
	}
}
