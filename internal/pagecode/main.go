// Command pagecode shortens the code that templ has generated in a directory and below it, as templ goes: pagecode DIRECTORY. Pages have thousands of texts, and after each
// of them templ checks for an error and makes one with file, line and column, which is a third of their machine code. The buffer of a page
// keeps its first error and returns it at the end (bufio.Writer), so that no text needs a check of its own (decision 0125).
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
)

var shorter = []struct {
	long  *regexp.Regexp
	short string
}{
	// Texts that are given.
	{
		regexp.MustCompile(`templ_7745c5c3_Err = templruntime\.WriteString\(templ_7745c5c3_Buffer, \d+, ("(?:[^"\\\n]|\\.)*")\)` + failed),
		`_, _ = templ_7745c5c3_Buffer.WriteString($1)`,
	},
	// Texts that are made. EscapeString takes texts alone, so that numbers, and functions that may fail, are refused by the compiler.
	{
		regexp.MustCompile(`(?s)var templ_7745c5c3_Var\d+ string\s*templ_7745c5c3_Var\d+, templ_7745c5c3_Err = templ\.JoinStringErrs\((.*?)\)` + misplaced + written),
		`_, _ = templ_7745c5c3_Buffer.WriteString(templ.EscapeString($1))`,
	},
	// Addresses; what kind of text they are decides whether their scheme is judged.
	{
		regexp.MustCompile(`(?s)var (templ_7745c5c3_Var\d+) templ\.SafeURL\s*templ_7745c5c3_Var\d+, templ_7745c5c3_Err = templ\.JoinURLErrs\((.*?)\)` + misplaced + written),
		"var ${1} templ.SafeURL\nif ${1}, templ_7745c5c3_Err = templ.JoinURLErrs($2); templ_7745c5c3_Err != nil {\nreturn templ_7745c5c3_Err\n}\n" +
			"_, _ = templ_7745c5c3_Buffer.WriteString(templ.EscapeString($1))",
	},
}

func shorten(code []byte) ([]byte, error) {
	for _, one := range shorter {
		code = one.long.ReplaceAll(code, []byte(one.short))
	}
	return format.Source(code)
}
