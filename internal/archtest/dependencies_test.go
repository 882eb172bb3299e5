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
// So it is with packages below internal/, where tests are named that there are.
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

	explainPackages(t, string(text))
}

// explainPackages holds the table of our own packages to those that are there. A suite of tests is explained with its package.
func explainPackages(t *testing.T, text string) {
	t.Helper()
	tests := testNames(t)
	_, table, _ := strings.Cut(text, "## What is ours below internal/")
	rows := map[string]int{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(cells[1], " `internal/") {
			continue
		}

		rows[strings.Trim(cells[1], " `")]++
		for _, cell := range cells[2:4] {
			if strings.TrimSpace(cell) == "" {
				t.Errorf("docs/dependencies.md has no reason for %s", cells[1])
			}
		}
		for _, quoted := range quotedModule.FindAllStringSubmatch(cells[3], -1) {
			if strings.HasPrefix(quoted[1], "Test") && !tests[quoted[1]] {
				t.Errorf("docs/dependencies.md names %s for %s, and there is no such test", quoted[1], cells[1])
			}
		}
	}

	for _, u := range packages(t) {
		if room := u.room(); strings.HasPrefix(room, "internal/") && !suite(room) {
			if rows[room] != 1 {
				t.Errorf("docs/dependencies.md has %d rows of %s: say what it does and why no library does", rows[room], room)
			}
			delete(rows, room)
		}
	}
	for room := range rows {
		t.Errorf("docs/dependencies.md explains %s, which is not there", room)
	}
}

var declaredTest = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

func testNames(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, u := range packages(t) {
		for _, name := range append(slices.Clone(u.TestGoFiles), u.XTestGoFiles...) {
			text, err := os.ReadFile(filepath.Join(u.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			for _, test := range declaredTest.FindAllStringSubmatch(string(text), -1) {
				found[test[1]] = true
			}
		}
	}
	return found
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
