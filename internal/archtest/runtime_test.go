package archtest

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// runtimeRoom holds packages of which every exported name has a user in the program: what only tests use is test code, and what no one
// uses is none. deadcode does not see methods that reflection could call, types, constants and fields.
const runtimeRoom = Module + "/agents/runtime/"

// unset are options of the loop that no setting of the server sets, each with the reason why it stays. All of them are driven by recorded
// cases (agents/testdata/agents-api), and a row of docs/contract/deviations.md tells of them.
var unset = map[string]string{
	"loop.Options.CompactionPolicy": "the llm agent compacts around the loop, where it knows what the model refused",
	"loop.Options.Control":          "the states of turns do its work, for every kind of agent",
	"loop.Options.Declarations":     "the server normalizes tools before, and hands them in as Tools",
	"loop.Options.Metadata":         "names session and run where a caller does not; the server has an id of its own for both",
	"loop.Options.Model":            "is for a provider adapter",
	"loop.Options.OnDelta":          "is for a provider adapter; the llm agent streams what its runner reads",
	"loop.Options.Provider":         "the llm agent is a runner, which sees retries and refusals of the provider",
	"loop.Options.RequestStore":     "the pipeline stores requests in the transaction that parks the turn",
	"loop.Options.Runtime":          "is for a provider adapter",
	"loop.Options.SingleTurn":       "the maximum of turns does the same",
	"loop.Options.StructuredOutput": "answers go to people, on networks that carry text",
	"loop.Options.Summarizer":       "goes with CompactionPolicy",
}

// implied are methods that the standard library calls by interfaces of its own.
var implied = []string{"Error", "Unwrap", "Is", "String", "MarshalJSON", "UnmarshalJSON"}

// TestEveryNameOfTheRuntimeHasAUser looks for exported names below agents/runtime that nothing in cmd/inbox uses: functions, methods, types,
// constants, variables and fields, and fields of Options that nothing sets.
func TestEveryNameOfTheRuntimeHasAUser(t *testing.T) {
	program := programOf(t)
	unused := program.unused(runtimeRoom)
	if len(program.names) < 300 {
		t.Fatalf("only %d exported names were found: does the search still read them?", len(program.names))
	}

	for name, reason := range unset {
		if !slices.Contains(unused, name) {
			t.Errorf("%s is said to be unset (%s), but it is gone or it is set: take it off the list", name, reason)
		}
	}
	for _, name := range unused {
		if _, known := unset[name]; !known {
			t.Errorf("agents/runtime: nothing in cmd/inbox uses %s; delete it, or move it into the tests that use it", name)
		}
	}
}

// program is what was found in all packages of cmd/inbox.
type program struct {
	names     map[string]string // exported names, by package and place of their declaration
	methods   map[string]bool   // which of them are methods
	used, set map[string]bool   // by place
	called    map[string]bool   // names of methods that are called on interfaces
	stated    map[string]bool   // functions that read a stated address, see statedReaders
	changes   map[string]bool   // names of methods of the store that change a row on a condition
	ignored   []ignored
}

// built is one package as go list sees it.
type built struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// onceProgram is read by the first test that asks for it.
var onceProgram *program

func programOf(t *testing.T) *program {
	t.Helper()
	if onceProgram != nil {
		return onceProgram
	}

	command := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./cmd/inbox")
	command.Dir = filepath.Join("..", "..")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}

	exports, list := map[string]string{}, []built{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var one built
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[one.ImportPath] = one.Export
		if ours(one.ImportPath) {
			list = append(list, one)
		}
	}

	files := token.NewFileSet()
	imports := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	p := &program{names: map[string]string{}, methods: map[string]bool{}, used: map[string]bool{}, set: map[string]bool{}, called: map[string]bool{}, stated: map[string]bool{}, changes: map[string]bool{}}
	for _, one := range list {
		p.read(t, files, imports, one)
	}
	onceProgram = p
	return p
}

// read takes one package into account.
func (p *program) read(t *testing.T, files *token.FileSet, imports types.Importer, one built) {
	t.Helper()
	var parsed []*ast.File
	for _, name := range one.GoFiles {
		file, err := parser.ParseFile(files, filepath.Join(one.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}

	info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	checked, err := (&types.Config{Importer: imports}).Check(one.ImportPath, files, parsed, info)
	if err != nil {
		t.Fatal(err)
	}

	for _, object := range info.Uses {
		place := placeOf(files, object)
		p.used[place] = true
		if method, is := object.(*types.Func); is {
			if receiver := method.Signature().Recv(); receiver != nil && types.IsInterface(receiver.Type()) {
				p.called[method.Name()] = true
			}
		}
	}
	for _, file := range parsed {
		ast.Inspect(file, func(node ast.Node) bool {
			for _, name := range setBy(node) {
				p.set[placeOf(files, info.Uses[name])] = true
			}
			return true
		})
		p.readStated(roomOf(one.ImportPath), file, info)
		p.readIgnored(roomOf(one.ImportPath), file, info)
	}
	p.declare(files, checked)
}

// declare notes the exported names of a package, with those of methods and fields.
func (p *program) declare(files *token.FileSet, checked *types.Package) {
	scope := checked.Scope()
	for _, name := range scope.Names() {
		object := scope.Lookup(name)
		if !object.Exported() {
			continue
		}
		full := path.Base(checked.Path()) + "." + name
		key := func(object types.Object) string { return checked.Path() + " " + placeOf(files, object) }
		p.names[key(object)] = full

		named, is := object.Type().(*types.Named)
		if _, isType := object.(*types.TypeName); !is || !isType {
			continue
		}
		for method := range named.Methods() {
			if method.Exported() {
				p.names[key(method)] = full + "." + method.Name()
				p.methods[key(method)] = true
			}
		}
		if fields, is := named.Underlying().(*types.Struct); is {
			for field := range fields.Fields() {
				if field.Exported() {
					p.names[key(field)] = full + "." + field.Name()
				}
			}
		}
	}
}

// unused returns the names below a room that have no user, in order.
func (p *program) unused(room string) (list []string) {
	for key, name := range p.names {
		importPath, place, _ := strings.Cut(key, " ")
		last := name[strings.LastIndexByte(name, '.')+1:]
		found := p.used[place]
		switch {
		case p.methods[key]:
			found = found || p.called[last] || slices.Contains(implied, last)
		case strings.Contains(name, ".Options."):
			found = p.set[place]
		}
		if strings.HasPrefix(importPath, room) && !found {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// placeOf is where an object is declared. Export data has no columns, so that the name stands beside the line.
func placeOf(files *token.FileSet, object types.Object) string {
	if object == nil {
		return ""
	}
	switch generic := object.(type) {
	case *types.Func:
		object = generic.Origin()
	case *types.Var:
		object = generic.Origin()
	}
	at := files.Position(object.Pos())
	return at.Filename + ":" + strconv.Itoa(at.Line) + ":" + object.Name()
}

// setBy returns the fields that a node sets: keys of literals, the left side of assignments, and what a pointer is taken of.
func setBy(node ast.Node) (names []*ast.Ident) {
	switch node := node.(type) {
	case *ast.KeyValueExpr:
		if name, is := node.Key.(*ast.Ident); is {
			names = append(names, name)
		}
	case *ast.AssignStmt:
		for _, left := range node.Lhs {
			if selected, is := left.(*ast.SelectorExpr); is {
				names = append(names, selected.Sel)
			}
		}
	case *ast.UnaryExpr:
		if selected, is := node.X.(*ast.SelectorExpr); is && node.Op == token.AND {
			names = append(names, selected.Sel)
		}
	}
	return names
}
