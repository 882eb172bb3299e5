package archtest

import (
	"fmt"
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
	"testing"
)

// directive is how a test says which requirements it shows: a comment on the function, or right before a t.Run in it.
const directive = "//contract:shows"

// mark is one such comment.
type mark struct {
	folder, test, subtest string
	ids                   []string
	place                 string
}

func (m mark) name() string {
	name := m.folder + "." + m.test
	if m.subtest != "" {
		name += "/" + m.subtest
	}
	return name
}

// entries are the functions at which a test meets the network: it listens itself, dials, or starts a server that does. A function of
// a package counts by its name; "*" is all of a package, which does nothing else. A recorder, or a request that is never sent, is not among them.
var entries = map[string][]string{
	"net":                    {"Dial", "DialTimeout", "Listen"},
	"net/smtp":               {"Dial", "NewClient", "SendMail"},
	"net/http/httptest":      {"NewServer", "NewTLSServer", "NewUnstartedServer"},
	Module + "/inboxtest":    {"Start", "New", "NewWithTools"},
	Module + "/e2e/instance": {"New"},
}

// readMarks returns the marks of all tests below a folder, and what is wrong with them.
func readMarks(root string) (found []mark, faults []string) {
	folders := map[string][]*ast.File{}
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "node_modules", "testdata", "bin"}, entry.Name()):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}

		file, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if folder := filepath.Dir(name); strings.HasSuffix(name, "_test.go") {
			folders[folder] = append(folders[folder], file)
		} else if at := misplaced(file); at != token.NoPos {
			faults = append(faults, set.Position(at).String()+": only tests are marked")
		}
		return nil
	})
	if err != nil {
		return nil, append(faults, err.Error())
	}

	for folder, files := range folders {
		relative, _ := filepath.Rel(root, folder)
		marks, wrong := marksOf(set, filepath.ToSlash(relative), files)
		found, faults = append(found, marks...), append(faults, wrong...)
	}

	slices.SortFunc(found, func(a, b mark) int { return strings.Compare(a.place, b.place) })
	slices.Sort(faults)
	return found, faults
}

func misplaced(file *ast.File) token.Pos {
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if strings.HasPrefix(comment.Text, directive) {
				return comment.Pos()
			}
		}
	}
	return token.NoPos
}

// marksOf reads the marks of the test files of one folder.
func marksOf(set *token.FileSet, folder string, files []*ast.File) (found []mark, faults []string) {
	reach := reachOf(files)
	for _, file := range files {
		for _, group := range file.Comments {
			for _, comment := range group.List {
				rest, is := strings.CutPrefix(comment.Text, directive)
				if !is {
					continue
				}

				position := set.Position(comment.Pos())
				m := mark{folder: folder, ids: strings.Fields(rest), place: fmt.Sprintf("%s:%d", path.Join(folder, filepath.Base(position.Filename)), position.Line)}
				function := holder(file, comment)
				switch {
				case function == nil || function.Recv != nil || !isTest(function.Name.Name):
					faults = append(faults, m.place+": the mark stands on no test")
					continue
				case len(m.ids) == 0 || rest != "" && rest[0] != ' ':
					faults = append(faults, m.place+": the mark names no requirement")
					continue
				case !reach[function.Name.Name]:
					faults = append(faults, m.place+": "+function.Name.Name+" does not talk over the network: nothing that it calls in its folder starts a server, listens or dials")
					continue
				}

				m.test, m.subtest = function.Name.Name, ""
				if comment.Pos() > function.Body.Lbrace {
					m.subtest = subtestAfter(set, function, comment)
				}
				found = append(found, m)
			}
		}
	}
	return found, faults
}

// isTest is what go test takes for a test.
func isTest(name string) bool {
	rest, is := strings.CutPrefix(name, "Test")
	return is && name != "TestMain" && (rest == "" || rest[0] < 'a' || rest[0] > 'z')
}

// holder is the function whose comment, or whose body, has the mark.
func holder(file *ast.File, comment *ast.Comment) *ast.FuncDecl {
	for _, declared := range file.Decls {
		function, is := declared.(*ast.FuncDecl)
		if !is || function.Body == nil {
			continue
		}
		if function.Doc != nil && slices.Contains(function.Doc.List, comment) || function.Body.Lbrace < comment.Pos() && comment.Pos() < function.Body.Rbrace {
			return function
		}
	}
	return nil
}

// subtestAfter is the name of the t.Run that begins on the line below the mark, as go test writes it; "" if there is none.
func subtestAfter(set *token.FileSet, function *ast.FuncDecl, comment *ast.Comment) (name string) {
	below := set.Position(comment.Pos()).Line + 1
	ast.Inspect(function.Body, func(node ast.Node) bool {
		call, is := node.(*ast.CallExpr)
		if !is || set.Position(call.Pos()).Line != below || len(call.Args) < 2 {
			return true
		}
		selector, isMethod := call.Fun.(*ast.SelectorExpr)
		literal, isLiteral := call.Args[0].(*ast.BasicLit)
		if isMethod && isLiteral && selector.Sel.Name == "Run" {
			text, _ := strconv.Unquote(literal.Value)
			name = strings.ReplaceAll(text, " ", "_")
		}
		return true
	})
	return name
}

// reachOf tells of each function of the test files of a folder whether it meets the network, itself or through another one. It
// follows names: of two methods of one name both count.
func reachOf(files []*ast.File) map[string]bool {
	calls, reach := map[string]map[string]bool{}, map[string]bool{}
	for _, file := range files {
		imports := map[string]string{}
		for _, one := range file.Imports {
			imported, _ := strconv.Unquote(one.Path.Value)
			name := path.Base(imported)
			if one.Name != nil {
				name = one.Name.Name
			}
			imports[name] = imported
		}

		for _, declared := range file.Decls {
			function, is := declared.(*ast.FuncDecl)
			if !is || function.Body == nil {
				continue
			}

			name := function.Name.Name
			if calls[name] == nil {
				calls[name] = map[string]bool{}
			}
			ast.Inspect(function.Body, func(node ast.Node) bool {
				switch node := node.(type) {
				case *ast.SelectorExpr:
					if from, isName := node.X.(*ast.Ident); isName && slices.Contains(entries[imports[from.Name]], node.Sel.Name) {
						reach[name] = true
					}
					calls[name][node.Sel.Name] = true
				case *ast.Ident:
					calls[name][node.Name] = true
				}
				return true
			})
		}
	}

	for changed := true; changed; {
		changed = false
		for name, called := range calls {
			for other := range called {
				if reach[other] && calls[other] != nil && !reach[name] {
					reach[name], changed = true, true
				}
			}
		}
	}
	return reach
}

// TestMarksAreRead: a mark counts on a test that meets the network, also through the functions of its folder, and nowhere else.
func TestMarksAreRead(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("rig_test.go", `package a
import ("net/http/httptest"; "testing")
type rig struct{}
func newRig() rig { httptest.NewServer(nil); return rig{} }
func record() { httptest.NewRecorder() }
func (rig) ask() {}
`)
	write("a_test.go", `package a
import "testing"

// TestRig has words, too.
//
//contract:shows x-1 x-2
func TestRig(t *testing.T) {
	newRig().ask()
	//contract:shows x-3
	t.Run("a name", func(t *testing.T) {})
}

//contract:shows x-4
func TestRecorded(t *testing.T) { record() }

//contract:shows x-5
func helper() { newRig() }

//contract:shows
func TestNothing(t *testing.T) { newRig() }

//contract:shows x-6

func TestApart(t *testing.T) { newRig() }
`)
	write("a.go", "package a\n\n//contract:shows x-7\nfunc Made() {}\n")

	found, faults := readMarks(folder)
	var marks []string
	for _, one := range found {
		marks = append(marks, fmt.Sprint(one.name(), one.ids))
	}
	if want := []string{"..TestRig/a_name[x-3]", "..TestRig[x-1 x-2]"}; !slices.Equal(slices.Sorted(slices.Values(marks)), want) {
		t.Errorf("marks %q, want %q", marks, want)
	}

	for _, want := range []string{"TestRecorded does not talk", "a_test.go:16: the mark stands on no test", "names no requirement", "a_test.go:22: the mark stands on no test", "only tests are marked"} {
		if !strings.Contains(strings.Join(faults, "\n"), want) {
			t.Errorf("%q lacks %q", faults, want)
		}
	}
	if len(faults) != 5 {
		t.Errorf("%d faults: %q", len(faults), faults)
	}
}
