package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const generated = `package pages

func page(v view) templ.Component {
	return templruntime.GeneratedTemplate(func(templ_7745c5c3_Input templruntime.GeneratedComponentInput) (templ_7745c5c3_Err error) {
		templ_7745c5c3_Err = templruntime.WriteString(templ_7745c5c3_Buffer, 1, "<p title=\"")
		if templ_7745c5c3_Err != nil {
			return templ_7745c5c3_Err
		}
		var templ_7745c5c3_Var4 string
		templ_7745c5c3_Var4, templ_7745c5c3_Err = templ.JoinStringErrs(text(ctx, "A (b)"))
		if templ_7745c5c3_Err != nil {
			return templ.Error{Err: templ_7745c5c3_Err, FileName: ` + "`page.templ`" + `, Line: 14, Col: 51}
		}
		_, templ_7745c5c3_Err = templ_7745c5c3_Buffer.WriteString(templ.EscapeString(templ_7745c5c3_Var4))
		if templ_7745c5c3_Err != nil {
			return templ_7745c5c3_Err
		}
		var templ_7745c5c3_Var5 templ.SafeURL
		templ_7745c5c3_Var5, templ_7745c5c3_Err = templ.JoinURLErrs(at("work"))
		if templ_7745c5c3_Err != nil {
			return templ.Error{Err: templ_7745c5c3_Err, FileName: ` + "`page.templ`" + `, Line: 21, Col: 83}
		}
		_, templ_7745c5c3_Err = templ_7745c5c3_Buffer.WriteString(templ.EscapeString(templ_7745c5c3_Var5))
		if templ_7745c5c3_Err != nil {
			return templ_7745c5c3_Err
		}
		templ_7745c5c3_Err = icon("x").Render(ctx, templ_7745c5c3_Buffer)
		if templ_7745c5c3_Err != nil {
			return templ_7745c5c3_Err
		}
		return nil
	})
}
`

const short = `package pages

func page(v view) templ.Component {
	return templruntime.GeneratedTemplate(func(templ_7745c5c3_Input templruntime.GeneratedComponentInput) (templ_7745c5c3_Err error) {
		_, _ = templ_7745c5c3_Buffer.WriteString("<p title=\"")
		_, _ = templ_7745c5c3_Buffer.WriteString(templ.EscapeString(text(ctx, "A (b)")))
		var templ_7745c5c3_Var5 templ.SafeURL
		if templ_7745c5c3_Var5, templ_7745c5c3_Err = templ.JoinURLErrs(at("work")); templ_7745c5c3_Err != nil {
			return templ_7745c5c3_Err
		}
		_, _ = templ_7745c5c3_Buffer.WriteString(templ.EscapeString(templ_7745c5c3_Var5))
		templ_7745c5c3_Err = icon("x").Render(ctx, templ_7745c5c3_Buffer)
		if templ_7745c5c3_Err != nil {
			return templ_7745c5c3_Err
		}
		return nil
	})
}
`

func TestShorten(t *testing.T) {
	directory := t.TempDir()
	name := filepath.Join(directory, "page_templ.go")
	if err := os.WriteFile(name, []byte(generated), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // what is short stays as it is
		if err := run(directory); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil || string(got) != short {
			t.Fatalf("got %s, %v", got, err)
		}
	}

	if _, err := shorten([]byte("no code")); err == nil {
		t.Error("what is no code was shortened")
	}
}

// TestPagesAreShort fails when templ generates something else than what is shortened.
func TestPagesAreShort(t *testing.T) {
	pages := 0
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_templ.go") {
			return err
		}
		pages++
		code, err := os.ReadFile(path)
		for _, long := range []string{"templ.Error{", "templ.JoinStringErrs(", "templruntime.WriteString("} {
			if strings.Contains(string(code), long) {
				t.Errorf("%s has %s", path, long)
			}
		}
		return err
	})
	if err != nil || pages == 0 {
		t.Errorf("%d files of pages: %v", pages, err)
	}
}
