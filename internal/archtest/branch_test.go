package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// transports are what a branch on the transport would mention.
var transports = []string{"ReceivedVia", "ViaActivityPub", "ViaA2A", "ViaEmail"}

// TestNobodyBranchesOnTheTransport keeps rule 4 of the way of a message: only an adapter knows its protocol. What the
// recipient can do is in recipient_capabilities, who speaks is in sender.identities.
func TestNobodyBranchesOnTheTransport(t *testing.T) {
	for _, u := range packages(t) {
		if matches("adapters/...", u.room()) {
			continue
		}
		for _, name := range u.GoFiles {
			positions := token.NewFileSet()
			file, err := parser.ParseFile(positions, filepath.Join(u.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range transportBranches(file) {
				t.Errorf("%s/%s:%d branches on the transport of a message: use recipient_capabilities and sender.identities, or ask the adapter",
					u.room(), name, positions.Position(at).Line)
			}
		}
	}
}

// transportBranches finds if, switch, case and for that ask by which transport a message came. A comparison with the
// empty text only asks whether there is one.
func transportBranches(file *ast.File) []token.Pos {
	var found []token.Pos
	ask := func(conditions ...ast.Expr) {
		for _, condition := range conditions {
			if condition != nil && mentionsTransport(condition) {
				found = append(found, condition.Pos())
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch statement := node.(type) {
		case *ast.IfStmt:
			ask(statement.Cond)
		case *ast.ForStmt:
			ask(statement.Cond)
		case *ast.SwitchStmt:
			ask(statement.Tag)
		case *ast.CaseClause:
			ask(statement.List...)
		}
		return true
	})
	return found
}

func mentionsTransport(condition ast.Expr) bool {
	found := false
	ast.Inspect(condition, func(node ast.Node) bool {
		switch expression := node.(type) {
		case *ast.BinaryExpr:
			if emptyText(expression.X) || emptyText(expression.Y) {
				return false
			}
		case *ast.SelectorExpr:
			found = found || slices.Contains(transports, expression.Sel.Name)
		}
		return true
	})
	return found
}

func emptyText(expression ast.Expr) bool {
	literal, ok := expression.(*ast.BasicLit)
	return ok && literal.Kind == token.STRING && strings.Trim(literal.Value, "\"`") == ""
}

func TestTransportBranchesAreFound(t *testing.T) {
	const code = `package p
func f() {
	if m.ReceivedVia == "email" {}
	if x && (m.Message.ReceivedVia != other) {}
	switch m.ReceivedVia { case "a2a": }
	switch { case m.ReceivedVia == normalized.ViaEmail: }
	switch via { case normalized.ViaA2A: }
	for m.ReceivedVia == "x" {}
	if m.ReceivedVia != "" {}
	channel := channels[m.ReceivedVia]
	log(m.ReceivedVia)
}`
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, "p.go", code, 0)
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, at := range transportBranches(file) {
		lines = append(lines, positions.Position(at).Line)
	}
	if want := []int{3, 4, 5, 6, 7, 8}; !slices.Equal(lines, want) {
		t.Errorf("found lines %v, want %v", lines, want)
	}
}
