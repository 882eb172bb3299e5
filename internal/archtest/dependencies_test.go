package archtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDependenciesAreExplained: each module that go.mod requires directly has one row in docs/dependencies.md, and no other module has one.
func TestDependenciesAreExplained(t *testing.T) {
	command := exec.Command("go", "mod", "edit", "-json")
	command.Dir = filepath.Join("..", "..")
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	var module struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}

	explained := explainedModules(string(text))
	used := map[string]bool{}
	for _, required := range module.Require {
		if required.Indirect {
			continue
		}
		rows := slices.DeleteFunc(slices.Clone(explained), func(row string) bool { return !names(row, required.Path) })
		if len(rows) != 1 {
			t.Errorf("docs/dependencies.md has %d rows of %s", len(rows), required.Path)
		}
		for _, row := range rows {
			used[row] = true
		}
	}
	for _, row := range explained {
		if !used[row] {
			t.Errorf("docs/dependencies.md explains %s, which go.mod does not require", row)
		}
	}
}

var quotedModule = regexp.MustCompile("`([^`]+)`")

// explainedModules returns the modules in the first cells of the tables. The last table is about own code.
func explainedModules(text string) (modules []string) {
	text, _, _ = strings.Cut(text, "## Own code")
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, found := range quotedModule.FindAllStringSubmatch(cells[1], -1) {
			modules = append(modules, found[1])
		}
	}
	return modules
}

// names reports whether a row is about a module. A row that ends in /* is about all below.
func names(row, module string) bool {
	all, wild := strings.CutSuffix(row, "*")
	return row == module || wild && strings.HasPrefix(module, all)
}
