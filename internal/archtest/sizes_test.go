package archtest

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sizes are what a reader of a package meets.
type sizes struct {
	room                string
	files, lines        int
	functions, exported int
	inside, blank       int // lines inside functions; of them blank ones
	open                int // map[string]any
	widest              string
	methods             int // of the widest type
}

// TestSizes prints how large the rooms are. It is a thermometer and demands nothing but that it can read: a split that lowers a number
// and lengthens the way of a message is worse than none. See it with: go test -count=1 -v -run TestSizes ./internal/archtest
func TestSizes(t *testing.T) {
	var all []sizes
	total := sizes{room: "all"}
	for _, u := range packages(t) {
		if suite(u.room()) || len(u.GoFiles) == 0 {
			continue
		}
		one := measure(t, u)
		all = append(all, one)
		total.files, total.lines, total.functions, total.open = total.files+one.files, total.lines+one.lines, total.functions+one.functions, total.open+one.open
		total.inside, total.blank = total.inside+one.inside, total.blank+one.blank
	}

	slices.SortFunc(all, func(a, b sizes) int { return cmp.Compare(b.lines, a.lines) })
	t.Logf("%-32s %5s %6s %5s %5s %6s %5s  %s", "package", "files", "lines", "funcs", "expo", "blank", "open", "widest type")
	for _, one := range append([]sizes{total}, all...) {
		t.Logf("%-32s %5d %6d %5d %5d %5.1f%% %5d  %s (%d)", one.room, one.files, one.lines, one.functions, one.exported,
			100*float64(one.blank)/float64(max(1, one.inside)), one.open, one.widest, one.methods)
	}
}

func measure(t *testing.T, u unit) sizes {
	t.Helper()
	one := sizes{room: u.room(), files: len(u.GoFiles)}
	methods := map[string]int{}
	for _, name := range u.GoFiles {
		text, err := os.ReadFile(filepath.Join(u.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		one.lines += len(lines) - 1
		one.open += strings.Count(string(text), "map[string]any")

		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			function, is := declaration.(*ast.FuncDecl)
			if !is || function.Body == nil {
				one.exported += exportedNames(declaration)
				continue
			}
			one.functions++
			if function.Name.IsExported() && function.Recv == nil {
				one.exported++
			}
			if function.Recv != nil {
				methods[receiver(function.Recv.List[0].Type)]++
			}
			for i := positions.Position(function.Body.Lbrace).Line; i < positions.Position(function.Body.Rbrace).Line-1; i++ {
				one.inside++
				if strings.TrimSpace(lines[i]) == "" {
					one.blank++
				}
			}
		}
	}

	for _, name := range slices.Sorted(maps.Keys(methods)) {
		if methods[name] > one.methods {
			one.widest, one.methods = name, methods[name]
		}
	}
	return one
}

func exportedNames(declaration ast.Decl) (count int) {
	general, is := declaration.(*ast.GenDecl)
	if !is {
		return 0
	}
	for _, spec := range general.Specs {
		switch one := spec.(type) {
		case *ast.TypeSpec:
			if one.Name.IsExported() {
				count++
			}
		case *ast.ValueSpec:
			for _, name := range one.Names {
				if name.IsExported() {
					count++
				}
			}
		}
	}
	return count
}

func receiver(expression ast.Expr) string {
	switch one := expression.(type) {
	case *ast.StarExpr:
		return receiver(one.X)
	case *ast.IndexExpr:
		return receiver(one.X)
	case *ast.IndexListExpr:
		return receiver(one.X)
	case *ast.Ident:
		return one.Name
	}
	return fmt.Sprintf("%T", expression)
}
