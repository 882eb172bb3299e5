package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The kinds of text, by whom they are read.
const (
	kindReadme    = "README"
	kindGuide     = "guides"
	kindContract  = "contracts"
	kindChangelog = "changelog"
	kindDecision  = "decisions"
	kindHelp      = "help of commands"
	kindPages     = "pages and notices"
	kindProgram   = "other texts of the program"
	kindComments  = "comments of the source" // of which few rules are read
)

// unread are folders and files without texts for readers, or with texts of others.
var unread = []string{".git", "node_modules", "testdata", "bin", "e2e", "bench", "docs/examples", "internal/archtest", "tools/prose"}

// collect reads what people read, in the order of the kinds.
func collect(root string) (all []text, err error) {
	byKind := map[string][]text{}
	err = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			if slices.Contains(unread, name) || slices.Contains(unread, entry.Name()) || name != "." && strings.HasPrefix(entry.Name(), ".") ||
				strings.HasSuffix(entry.Name(), "test") && name != "inboxtest" {
				return filepath.SkipDir
			}
			return nil
		}

		texts, err := readFile(file, name)
		for _, one := range texts {
			byKind[one.kind] = append(byKind[one.kind], one)
		}
		return err
	})
	if err != nil {
		return nil, err
	}

	for _, kind := range []string{kindReadme, kindGuide, kindContract, kindChangelog, kindDecision, kindHelp, kindPages, kindProgram, kindComments} {
		if len(byKind[kind]) == 0 {
			return nil, errors.New("no texts of the kind " + kind + ": is -root the root of the repository?")
		}
		all = append(all, byKind[kind]...)
	}
	return all, nil
}

func readFile(file, name string) ([]text, error) {
	kind := kindOf(name)
	if kind == "" {
		return nil, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}

	switch path.Ext(name) {
	case ".md":
		return []text{document(name, kind, string(content))}, nil
	case ".json":
		one, err := catalogue(name, content)
		return []text{one}, err
	}
	return goSource(name, content)
}

// kindOf returns the kind of a file, "" where it has nothing for readers.
func kindOf(name string) string {
	switch {
	case name == "README.md":
		return kindReadme
	case name == "CHANGELOG.md":
		return kindChangelog
	case strings.HasPrefix(name, "docs/decisions/") && strings.HasSuffix(name, ".md"):
		return kindDecision
	case name == "docs/contract/coverage.md": // written from requirements
		return ""
	case strings.HasPrefix(name, "docs/contract/") && strings.HasSuffix(name, ".md"):
		return kindContract
	case strings.HasPrefix(name, "docs/") && strings.HasSuffix(name, ".md"), name == "FEDERATION.md":
		return kindGuide
	case path.Base(path.Dir(name)) == "de" && path.Ext(name) == ".json":
		return kindPages
	case path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, "_templ.go"):
		return kindProgram
	}
	return ""
}

// catalogue reads the English texts, which are the keys of a translation.
func catalogue(name string, content []byte) (text, error) {
	d := text{file: name, kind: kindPages}
	decoder := json.NewDecoder(strings.NewReader(string(content)))
	if _, err := decoder.Token(); err != nil {
		return d, errors.New(name + ": " + err.Error())
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return d, errors.New(name + ": " + err.Error())
		}
		line := 1 + strings.Count(string(content[:decoder.InputOffset()]), "\n")
		if english, is := key.(string); is {
			d.passages = append(d.passages, passage{line, english, true})
		}
		var translation json.RawMessage
		if err := decoder.Decode(&translation); err != nil {
			return d, errors.New(name + ": " + err.Error())
		}
	}
	return d, nil
}

// goSource reads the texts of a Go file: those of cobra commands and their flags as help, others of three words and more as texts of the
// program, and its comments. Addresses, settings and SQL are among the texts of the program; they break no rule of prose.
func goSource(name string, content []byte) ([]text, error) {
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, name, content, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, err
	}

	help, program, comments := text{file: name, kind: kindHelp}, text{file: name, kind: kindProgram}, text{file: name, kind: kindComments}
	read := map[*ast.BasicLit]bool{}
	take := func(d *text, expression ast.Expr) {
		value := joined(expression, read)
		for paragraph := range strings.SplitSeq(value, "\n\n") {
			if len(strings.Fields(paragraph)) >= 3 {
				paragraph = quotation.ReplaceAllString(codeSpan.ReplaceAllString(paragraph, "`…`"), "“…”")
				d.passages = append(d.passages, passage{positions.Position(expression.Pos()).Line, paragraph, true})
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch one := node.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			return one.Tag == nil
		case *ast.KeyValueExpr:
			if key, is := one.Key.(*ast.Ident); is && strings.HasPrefix(name, "cmd/") && (key.Name == "Short" || key.Name == "Long") {
				take(&help, one.Value)
			}
		case *ast.CallExpr:
			if called, is := one.Fun.(*ast.SelectorExpr); is && strings.HasPrefix(name, "cmd/") && flags(called) && len(one.Args) > 2 {
				take(&help, one.Args[len(one.Args)-1])
			}
		case *ast.BinaryExpr:
			if one.Op == token.ADD {
				take(&program, one)
			}
		case *ast.BasicLit:
			take(&program, one)
		}
		return true
	})
	for _, group := range file.Comments {
		said := quotation.ReplaceAllString(codeSpan.ReplaceAllString(group.Text(), "`…`"), "“…”")
		comments.passages = append(comments.passages, passage{positions.Position(group.Pos()).Line, said, true})
	}
	return slices.DeleteFunc([]text{help, program, comments}, func(d text) bool { return len(d.passages) == 0 }), nil
}

// flags reports whether a call declares a flag, as in cmd.Flags().StringVar.
func flags(called *ast.SelectorExpr) bool {
	inner, is := called.X.(*ast.CallExpr)
	if !is {
		return false
	}
	of, is := inner.Fun.(*ast.SelectorExpr)
	return is && strings.HasSuffix(of.Sel.Name, "Flags")
}

// joined is the text of an expression that joins literals with +; what else is among them is "…". Each literal is read once.
func joined(expression ast.Expr, read map[*ast.BasicLit]bool) string {
	switch one := expression.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(one.Value)
		if one.Kind != token.STRING || err != nil || read[one] {
			return ""
		}
		read[one] = true
		return value
	case *ast.BinaryExpr:
		return joined(one.X, read) + joined(one.Y, read)
	}
	return "…"
}
