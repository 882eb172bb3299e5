package component_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/a-h/templ"

	"inbox/internal/pagecode/component"
)

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// framed writes its children between two texts.
var framed = component.New(func(ctx component.Context, page *component.Page, children templ.Component) {
	page.Component(ctx, "<i>", children)
	page.Fixed("</i>")
})

func TestComponent(t *testing.T) {
	inner := component.Children(func(ctx component.Context, page *component.Page) {
		page.Escaped("<b>", `"&<`)
		page.Address(`</b><a href="`, "javascript:alert(1)")
		page.Address(`"></a><a href="`, "/a?b&c")
		page.Component(ctx, `"></a>`, framed) // children of one component are not those of the next
	})
	outer := component.New(func(ctx component.Context, page *component.Page, _ templ.Component) {
		page.Component(templ.WithChildren(ctx, inner), "<p>", framed)
		page.Fixed("</p>")
	})

	var got strings.Builder
	if err := outer.Render(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	want := `<p><i><b>&#34;&amp;&lt;</b><a href="about:invalid#TemplFailedSanitizationURL"></a><a href="/a?b&amp;c"></a><i></i></i></p>`
	if got.String() != want {
		t.Errorf("got %s, want %s", got.String(), want)
	}
}

// TestErrors: what fails first is what the page returns.
func TestErrors(t *testing.T) {
	failing := templ.ComponentFunc(func(context.Context, io.Writer) error { return errBroken })
	page := component.New(func(ctx component.Context, page *component.Page, _ templ.Component) {
		page.Component(ctx, "", failing)
		page.Component(ctx, "", templ.ComponentFunc(func(context.Context, io.Writer) error { return io.EOF }))
		page.Fixed("the end")
	})
	if err := page.Render(t.Context(), io.Discard); !errors.Is(err, errBroken) {
		t.Errorf("a component that fails: %v", err)
	}
	if err := framed.Render(t.Context(), broken{}); !errors.Is(err, errBroken) {
		t.Errorf("a reader that has left: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var got strings.Builder
	if err := framed.Render(ctx, &got); !errors.Is(err, context.Canceled) || got.String() != "" {
		t.Errorf("a context that has ended: %v, %q", err, got.String())
	}
}
