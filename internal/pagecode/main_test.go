package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inbox/internal/golden"
)

// TestShorten: testdata has a page (page.txt), what templ makes of it, and what is left of that.
func TestShorten(t *testing.T) {
	generated, err := os.ReadFile(filepath.Join("testdata", "generated.txt"))
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	name := filepath.Join(directory, "page_templ.go")
	if err := os.WriteFile(name, generated, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // what is short stays as it is
		if err := run(directory); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, "short.txt", got)
	}

	for name, code := range map[string]string{
		"no code":     "no code",
		"a new check": strings.Replace(string(generated), "if templ_7745c5c3_Err != nil {\n\t\t\treturn templ_7745c5c3_Err", "if templ_7745c5c3_Err != nil {\n\t\t\treturn wrapped(templ_7745c5c3_Err)", 1),
	} {
		if short, err := shorten([]byte(code)); err == nil {
			t.Errorf("%s was shortened to %s", name, short)
		}
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
		if unknown.Match(code) {
			t.Errorf("%s is as templ made it; make generate", path)
		}
		return err
	})
	if err != nil || pages == 0 {
		t.Errorf("%d files of pages: %v", pages, err)
	}
}
