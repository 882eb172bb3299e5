// Command pagecode shortens the code that templ has generated in a directory and below it, as templ goes: pagecode DIRECTORY. Each component
// of templ begins and ends with thirty lines of its own, and after each text it checks for an error and makes one with file, line and column:
// together more than half of the machine code of pages. Package component has both once, and keeps the first error (decision 0125).
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "use: pagecode DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "pagecode:", err)
		os.Exit(1)
	}
}

func run(directory string) error {
	return filepath.WalkDir(directory, func(name string, _ fs.DirEntry, err error) error { //nolint:gosec // a developer names the directory
		if err != nil || !strings.HasSuffix(name, "_templ.go") {
			return err
		}
		code, err := os.ReadFile(name) //nolint:gosec // source code of the tree
		if err != nil {
			return err
		}
		short, err := shorten(code)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if bytes.Equal(short, code) {
			return nil
		}
		return os.WriteFile(name, short, 0o644) //nolint:gosec // source code of the tree
	})
}

// Parts of what templ generates.
const (
	failed    = `\s*if templ_7745c5c3_Err != nil \{\s*return templ_7745c5c3_Err\s*\}`
	misplaced = `\s*if templ_7745c5c3_Err != nil \{\s*return templ\.Error\{[^\n]*\}\s*\}`
	written   = `\s*_, templ_7745c5c3_Err = templ_7745c5c3_Buffer\.WriteString\(templ\.EscapeString\(templ_7745c5c3_Var\d+\)\)` + failed
	quoted    = `("(?:[^"\\\n]|\\.)*")`
	begun     = `templruntime\.GeneratedTemplate\(func\([^\n]*\{\s*templ_7745c5c3_W, ctx := [^\n]*\n(?:\s*if templ_7745c5c3_CtxErr [^\n]*\n[^\n]*\n\s*\}\n)?` +
		`\s*templ_7745c5c3_Buffer, templ_7745c5c3_IsBuffer := [^\n]*\n\s*if !templ_7745c5c3_IsBuffer \{\n(?:[^\n]*\n){7}\s*ctx = templ\.InitializeContext\(ctx\)`
	parent = `\s*(templ_7745c5c3_Var\d+) := templ\.GetChildren\(ctx\)\s*if templ_7745c5c3_Var\d+ == nil \{[^}]*\}\s*ctx = templ\.ClearChildren\(ctx\)`
)

var shorter = []struct {
	long  *regexp.Regexp
	short string
}{
	{regexp.MustCompile(`import templruntime "[^"]*"`), `import "inbox/internal/pagecode/component"`},

	{regexp.MustCompile(`var _ = templruntime\.GeneratedTemplate`), `var _ = component.New`},

	// How a component begins and ends.
	{regexp.MustCompile(`(?s)` + begun + parent), `component.New(func(ctx component.Context, page *component.Page, ${1} templ.Component) {`},
	{regexp.MustCompile(`(?s)` + begun), `component.Children(func(ctx component.Context, page *component.Page) {`},
	{regexp.MustCompile(`return nil\s*\}\)`), `})`},

	// Texts that are given.
	{regexp.MustCompile(`templ_7745c5c3_Err = templruntime\.WriteString\(templ_7745c5c3_Buffer, \d+, ` + quoted + `\)` + failed), `page.Fixed($1)`},
	// Texts that are made. Page.Escaped takes texts alone, so that numbers, and functions that may fail, are refused by the compiler.
	{regexp.MustCompile(`(?s)var templ_7745c5c3_Var\d+ string\s*templ_7745c5c3_Var\d+, templ_7745c5c3_Err = templ\.JoinStringErrs\((.*?)\)` + misplaced + written), `page.Escaped("", $1)`},
	// Addresses. Those that a template calls safe are not judged by their scheme.
	{regexp.MustCompile(`(?s)var templ_7745c5c3_Var\d+ templ\.SafeURL\s*templ_7745c5c3_Var\d+, templ_7745c5c3_Err = templ\.JoinURLErrs\(templ\.SafeURL\((.*?)\)\)` + misplaced + written), `page.Escaped("", $1)`},
	{regexp.MustCompile(`(?s)var templ_7745c5c3_Var\d+ templ\.SafeURL\s*templ_7745c5c3_Var\d+, templ_7745c5c3_Err = templ\.JoinURLErrs\((.*?)\)` + misplaced + written), `page.Address("", $1)`},
	// Classes.
	{
		regexp.MustCompile(`var (templ_7745c5c3_Var\d+) = (\[\]any\{[^\n]*\})\s*templ_7745c5c3_Err = templ\.RenderCSSItems\(ctx, templ_7745c5c3_Buffer, templ_7745c5c3_Var\d+\.\.\.\)` + failed),
		"$1 := ${2}\npage.Styles(ctx, ${1})",
	},
	// Components.
	{regexp.MustCompile(`(?s)templ_7745c5c3_Err = (.*?)\.Render\((ctx|templ\.WithChildren\(ctx, templ_7745c5c3_Var\d+\)), templ_7745c5c3_Buffer\)` + failed), `page.Component($2, "", $1)`},

	// What is given is written together with what follows it.
	{regexp.MustCompile(`page\.Fixed\(` + quoted + `\)\s*page\.(Escaped|Address)\("", `), `page.$2($1, `},
	{regexp.MustCompile(`page\.Fixed\(` + quoted + `\)\s*page\.Component\((ctx|templ\.WithChildren\(ctx, templ_7745c5c3_Var\d+\)), "", `), `page.Component($2, $1, `},
}

// shorten fails for code of templ that none of the rules knows.
func shorten(code []byte) ([]byte, error) {
	for _, one := range shorter {
		code = one.long.ReplaceAll(code, []byte(one.short))
	}
	if line := unknown.Find(code); line != nil {
		return nil, fmt.Errorf("this code of templ is not known: %s", bytes.TrimSpace(line))
	}
	return format.Source(code)
}

var unknown = regexp.MustCompile(`[^\n]*(?:templruntime|templ_7745c5c3_Err|templ_7745c5c3_Buffer)[^\n]*`)
