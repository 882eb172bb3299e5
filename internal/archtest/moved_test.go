package archtest

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// storeRoom has the conditional changes of rows: methods that return whether they changed one, and an error.
const storeRoom = Module + "/engine/store"

// mayIgnore are the calls of conditional changes whose callers do not need to know whether a row changed, by package, function and method, each with
// the reason.
var mayIgnore = map[string]string{
	"adapters/bridge.callback Attempted":       "an item that the client has acknowledged meanwhile needs no status",
	"adapters/email.alive Unsuppress":          "an address that is not suppressed is what is wanted",
	"..Suppressed Unsuppress":                  "another node may have lifted it: the address is free either way",
	"engine/store.EndSuppressions Unsuppress":  "another node may have lifted it: the address is free either way",
	"engine/delivery.endReturned MoveDelivery": "a delivery that was retried meanwhile is not over",
	"engine/delivery.markSending MoveDelivery": "it is only for operators who look; the end of the attempt is conditional itself",
	"engine/backup.hold MoveDelivery":          "a delivery that has ended needs no hold, and nothing else runs on a copy that is restored",
	"engine/pipeline.obey RemoveListEntry":     "a sender who is not on the list wrote start: the answer is the same",
	"engine/pipeline.overtaken PutDraft":       "a conversation that was handed back meanwhile has a new job, whose run answers",
	"engine/pipeline.HandBack EndTakeover":     "HoldTakeover holds the open takeover until the commit",
	"engine/store.PutDraft insertReply":        "the turn is held and has no draft: it was deleted just before",
	"engine/store.EmptyErased endOriginal":     "a message without a native form has nothing to end",
	"engine/store.endMessage endOriginal":      "a message without a native form has nothing to end",
	"engine/store.endRecord endMessage":        "the words may have gone before their row does",
	"operator.changePin RemoveDocument":        "a pin of an answer that is gone needs only to be gone",
	"operator.Work Swap":                       "a lease that another node has taken meanwhile stays theirs",
	"internal/acme.Unlock Swap":                "a lock that another node has taken meanwhile stays theirs",
}

// ignored is a call of a method whose bool result no one reads.
type ignored struct{ place, method string }

// TestConditionalChangesAreHeeded: whoever changes a row on a condition reads whether it changed. What goes on as if it had is a task that is given
// up and completes, or a run that begins although its turn was cancelled.
func TestConditionalChangesAreHeeded(t *testing.T) {
	program := programOf(t)
	if len(program.changes) < 50 {
		t.Fatalf("only %d conditional changes were found in %s: does the search still read them?", len(program.changes), storeRoom)
	}

	listed := maps.Clone(mayIgnore)
	for _, one := range program.ignored {
		if !program.changes[one.method] {
			continue
		}
		call := one.place + " " + one.method
		if _, may := mayIgnore[call]; may {
			delete(listed, call)
			continue
		}
		t.Errorf("%s does not read whether %s changed a row: handle the row that did not change, or add the call to mayIgnore with the reason", one.place, one.method)
	}
	for call, reason := range listed {
		t.Errorf("%q is on the list (%s), but there is no such call: take it off", call, reason)
	}
}

// readIgnored notes conditional changes that a file of the store declares, and calls in a file whose bool result no one reads.
func (p *program) readIgnored(room string, file *ast.File, info *types.Info) {
	read := readVariables(file, info)
	for _, declaration := range file.Decls {
		function, is := declaration.(*ast.FuncDecl)
		if !is {
			continue
		}
		if method, is := info.Defs[function.Name].(*types.Func); is && Module+"/"+room == storeRoom && changesOnCondition(method) {
			p.changes[method.Name()] = true
		}
		ast.Inspect(function, func(node ast.Node) bool {
			if method := ignoredChange(node, info, read); method != "" {
				p.ignored = append(p.ignored, ignored{room + "." + function.Name.Name, method})
			}
			return true
		})
	}
}

// ignoredChange returns the name of the method that a statement calls and whose bool result is dropped; empty = it is no such statement.
func ignoredChange(node ast.Node, info *types.Info, read map[types.Object]bool) string {
	var value ast.Expr
	var to []ast.Expr
	switch statement := node.(type) {
	case *ast.ExprStmt:
		value = statement.X
	case *ast.AssignStmt:
		if len(statement.Rhs) != 1 || len(statement.Lhs) != 2 {
			return ""
		}
		value, to = statement.Rhs[0], statement.Lhs
	}
	call, is := value.(*ast.CallExpr)
	if !is {
		return ""
	}
	selector, is := call.Fun.(*ast.SelectorExpr)
	if !is {
		return ""
	}
	method, is := info.Uses[selector.Sel].(*types.Func)
	if !is || !changesOnCondition(method) {
		return ""
	}

	if len(to) > 0 {
		name, is := to[0].(*ast.Ident)
		if !is { // a field, which others read
			return ""
		}
		object := info.Defs[name]
		if object == nil {
			object = info.Uses[name]
		}
		if name.Name != "_" && read[object] {
			return ""
		}
	}
	return method.Name()
}

// changesOnCondition reports whether a function has the form of a conditional change: a method of ours with a context that returns a bool and an error.
func changesOnCondition(method *types.Func) bool {
	signature := method.Signature()
	if signature.Recv() == nil || method.Pkg() == nil || !ours(method.Pkg().Path()) || signature.Results().Len() != 2 || signature.Params().Len() == 0 {
		return false
	}
	first, second := signature.Results().At(0).Type(), signature.Results().At(1).Type()
	return types.Identical(first, types.Typ[types.Bool]) && second.String() == "error" && strings.HasSuffix(signature.Params().At(0).Type().String(), "context.Context")
}

// readVariables are the variables of a file that something reads: all uses of them that are not the left side of an assignment. Results that have
// names are read by their callers.
func readVariables(file *ast.File, info *types.Info) map[types.Object]bool {
	written := map[*ast.Ident]bool{}
	read := map[types.Object]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		switch one := node.(type) {
		case *ast.AssignStmt:
			for _, to := range one.Lhs {
				if name, is := to.(*ast.Ident); is {
					written[name] = true
				}
			}
		case *ast.FuncType:
			if one.Results != nil {
				for _, field := range one.Results.List {
					for _, name := range field.Names {
						read[info.Defs[name]] = true
					}
				}
			}
		}
		return true
	})

	for name, object := range info.Uses {
		if !written[name] {
			read[object] = true
		}
	}
	return read
}

// TestIgnoredChangesAreFound shows the search to statements that it must find and to others.
func TestIgnoredChangesAreFound(t *testing.T) {
	const source = `package sample
import "context"
type tx struct{}
func (tx) Move(ctx context.Context) (bool, error) { return false, nil }
func blank(ctx context.Context, t tx) error { _, err := t.Move(ctx); return err }
func dropped(ctx context.Context, t tx) { t.Move(ctx) }
var moved bool
func unread(ctx context.Context, t tx) (err error) { moved, err = t.Move(ctx); return err }
func heeded(ctx context.Context, t tx) error { moved, err := t.Move(ctx); if !moved { return nil }; return err }
func named(ctx context.Context, t tx) (moved bool, err error) { moved, err = t.Move(ctx); return }
func passed(ctx context.Context, t tx) (bool, error) { return t.Move(ctx) }
`
	p := &program{changes: map[string]bool{}}
	file, info := checkSource(t, Module+"/engine/store", source)
	p.readIgnored("engine/store", file, info)

	var found []string
	for _, one := range p.ignored {
		found = append(found, strings.TrimPrefix(one.place, "engine/store."))
	}
	if want := []string{"blank", "dropped", "unread"}; !slices.Equal(found, want) || !p.changes["Move"] {
		t.Errorf("found %v, want %v; changes %v", found, want, p.changes)
	}
}

// checkSource checks the types of one file that imports only the context.
func checkSource(t *testing.T, path, source string) (*ast.File, *types.Info) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "sample.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	if _, err := (&types.Config{Importer: importer.ForCompiler(files, "source", nil)}).Check(path, files, []*ast.File{file}, info); err != nil {
		t.Fatal(err)
	}
	return file, info
}
