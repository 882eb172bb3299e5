// Package catalogtest holds the translations of a room to the texts in its source.
package catalogtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"inbox/internal/catalog"
)

// text is one that the source uses.
type text struct {
	at     token.Position
	plural bool
	params []string
}

var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

// Check fails for each text of the package in dir that lacks a translation, whose translation has other placeholders or forms,
// and for each translation that nothing uses. Texts are the literals of calls named text, Text, count and Count, which take the context first.
func Check(t *testing.T, dir string, c *catalog.Catalog) {
	t.Helper()
	used := texts(t, dir)
	if len(used) == 0 {
		t.Fatalf("no texts in %s", dir)
	}

	for _, language := range catalog.Languages() {
		if language == catalog.English {
			continue
		}

		translated := c.Translated(language)
		for english, one := range used {
			forms, is := translated[english]
			switch {
			case !is:
				t.Errorf("%s: %q has no translation into %s", one.at, english, language)
			case (len(forms) == 2) != one.plural:
				t.Errorf("%s: %q has %d forms in %s", one.at, english, len(forms), language)
			}
			for _, form := range forms {
				if got := params(form); !slices.Equal(got, one.params) && (!one.plural || !slices.Equal(withoutCount(got), withoutCount(one.params))) {
					t.Errorf("%s: %q has placeholders %v; in %s it has %v: %q", one.at, english, one.params, language, got, form)
				}
			}
		}
		for english := range translated {
			if _, is := used[english]; !is {
				t.Errorf("the translation of %q into %s is not used", english, language)
			}
		}
	}
}

func texts(t *testing.T, dir string) map[string]text {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}

	files, used := token.NewFileSet(), map[string]text{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			call, is := node.(*ast.CallExpr)
			if !is {
				return true
			}
			if english, found, is := textOf(call); is {
				found.at, found.params = files.Position(call.Pos()), params(english)
				used[english] = found
			}
			return true
		})
	}

	return used
}

// textOf returns the English text of a call, that of several where it has two forms.
func textOf(call *ast.CallExpr) (english string, found text, is bool) {
	var name string
	switch function := call.Fun.(type) {
	case *ast.Ident:
		name = function.Name
	case *ast.SelectorExpr:
		name = function.Sel.Name
	}

	at := 1
	switch name {
	case "text", "Text":
	case "count", "Count":
		at, found.plural = 3, true
	default:
		return "", found, false
	}
	if len(call.Args) <= at {
		return "", found, false
	}

	literal, is := call.Args[at].(*ast.BasicLit)
	if !is || literal.Kind != token.STRING {
		return "", found, false
	}
	english, err := strconv.Unquote(literal.Value)
	return english, found, err == nil
}

func params(text string) []string {
	found := placeholder.FindAllString(text, -1)
	slices.Sort(found)
	return slices.Compact(found)
}

func withoutCount(params []string) []string {
	return slices.DeleteFunc(slices.Clone(params), func(name string) bool { return strings.EqualFold(name, "{n}") })
}
