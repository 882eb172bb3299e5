package archtest

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// unit is one package as go list sees it.
type unit struct {
	ImportPath                         string
	Dir, Doc                           string
	Imports                            []string
	GoFiles, TestGoFiles, XTestGoFiles []string
}

// room is the path inside the module; "." is the root package.
func (u unit) room() string { return roomOf(u.ImportPath) }

func roomOf(importPath string) string {
	if importPath == Module {
		return "."
	}
	return strings.TrimPrefix(importPath, Module+"/")
}

func ours(importPath string) bool {
	return importPath == Module || strings.HasPrefix(importPath, Module+"/")
}

var list = sync.OnceValues(func() ([]unit, error) {
	command := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,Imports,GoFiles,TestGoFiles,XTestGoFiles", "./...")
	command.Dir = filepath.Join("..", "..")
	var complaint strings.Builder
	command.Stderr = &complaint
	out, err := command.Output()
	if err != nil {
		return nil, errors.New("go list: " + err.Error() + "\n" + complaint.String())
	}
	var units []unit
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var u unit
		switch err := decoder.Decode(&u); {
		case errors.Is(err, io.EOF):
			return units, nil
		case err != nil:
			return nil, err
		}
		units = append(units, u)
	}
})

func packages(t *testing.T) []unit {
	t.Helper()
	units, err := list()
	if err != nil {
		t.Fatal(err)
	}
	if len(units) < 10 {
		t.Fatalf("go list found %d packages only", len(units))
	}
	return units
}

// matches reports whether a room is meant by a pattern; "x/..." means everything below x, "..." everything.
func matches(pattern, room string) bool {
	if above, ok := strings.CutSuffix(pattern, "..."); ok {
		return strings.HasPrefix(room, above)
	}
	return pattern == room
}

func anyMatches(patterns []string, room string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, room) })
}

// suite reports whether the room is a conformance suite: x/…test beside the room x that it checks.
func suite(room string) bool {
	_, placed := levels[room]
	_, parentPlaced := levels[path.Dir(room)]
	return !placed && parentPlaced && strings.HasSuffix(room, "test")
}

// level returns the level of a room. A suite stands just above the room that it checks.
func level(room string) (float64, bool) {
	if exact, ok := levels[room]; ok {
		return float64(exact), true
	}
	if suite(room) {
		return float64(levels[path.Dir(room)]) + 0.5, true
	}
	for pattern, value := range levels {
		if strings.HasSuffix(pattern, "...") && matches(pattern, room) {
			return float64(value), true
		}
	}
	return 0, false
}

func TestArrowsPointDown(t *testing.T) {
	for _, u := range packages(t) {
		own, placed := level(u.room())
		if !placed {
			t.Errorf("%s is not placed: add it to the level table in internal/archtest/levels.go, with a decision record", u.room())
			continue
		}
		for _, imported := range u.Imports {
			if !ours(imported) {
				continue
			}
			if below, ok := level(roomOf(imported)); ok && below >= own {
				t.Errorf("%s (level %g) imports %s (level %g): a package imports only lower levels. "+
					"Declare the one or two methods that it needs as an interface of its own; the root package ties them together",
					u.room(), own, roomOf(imported), below)
			}
		}
	}
}

func TestEntrances(t *testing.T) {
	for _, u := range packages(t) {
		for _, imported := range u.Imports {
			if !ours(imported) || suite(u.room()) || suite(roomOf(imported)) {
				continue
			}

			decides := -1
			for i, entrance := range entrances {
				if matches(entrance.room, roomOf(imported)) && (decides < 0 || len(entrance.room) > len(entrances[decides].room)) {
					decides = i
				}
			}
			if decides >= 0 && !anyMatches(entrances[decides].importers, u.room()) {
				t.Errorf("%s imports %s: %s", u.room(), roomOf(imported), entrances[decides].reason)
			}
		}
	}
}

func TestSuitesStayInTests(t *testing.T) {
	for _, u := range packages(t) {
		for _, imported := range append(slices.Clone(u.Imports), u.ImportPath) {
			if imported == "testing" && !suite(u.room()) && !matches("e2e/...", u.room()) && u.room() != "bench" {
				t.Errorf("%s imports testing outside of its test files: move it to a package %s/%stest", u.room(), u.room(), path.Base(u.room()))
			}
			if ours(imported) && imported != u.ImportPath && suite(roomOf(imported)) && !suite(u.room()) {
				t.Errorf("%s imports the conformance suite %s outside of its test files", u.room(), roomOf(imported))
			}
		}
	}
}

func TestThirdPartiesStayInTheirRoom(t *testing.T) {
	for _, u := range packages(t) {
		if suite(u.room()) || matches("e2e/...", u.room()) || u.room() == "e2e" || u.room() == "bench" {
			continue
		}
		for _, imported := range u.Imports {
			checkThirdParty(t, u.room(), imported)
		}
	}
}

func checkThirdParty(t *testing.T, room, imported string) {
	t.Helper()
	for _, party := range thirdParties {
		if !strings.HasPrefix(imported+"/", strings.TrimSuffix(party.prefix, "/")+"/") {
			continue
		}
		if !anyMatches(party.rooms, room) {
			t.Errorf("%s imports %s: %s", room, imported, party.reason)
		}
		return
	}
	first, _, _ := strings.Cut(imported, "/")
	if strings.Contains(first, ".") {
		t.Errorf("%s imports %s, which has no room: place it in internal/archtest/levels.go", room, imported)
	}
}

// The contract is read by people who write agents in other languages: it must not need our plumbing.
func TestContractIsStandardLibrary(t *testing.T) {
	// fault is how a broken rule names its field; it is the standard library only, too.
	allowed := []string{Module + "/identity", Module + "/policypart", Module + "/internal/fault"}
	for _, u := range packages(t) {
		if u.room() != "normalized" {
			continue
		}
		for _, imported := range u.Imports {
			first, _, _ := strings.Cut(imported, "/")
			if !slices.Contains(allowed, imported) && (ours(imported) || strings.Contains(first, ".")) {
				t.Errorf("normalized imports %s: the contract is the standard library, identity, policypart and fault only", imported)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, u := range packages(t) {
		if u.Doc == "" && (len(u.GoFiles) > 0 || !documentedInTests(t, u)) {
			t.Errorf("%s has no package comment: say its purpose and what it does not do", u.room())
		}
	}
}

// documentedInTests serves packages that have test files only.
func documentedInTests(t *testing.T, u unit) bool {
	t.Helper()
	for _, name := range append(slices.Clone(u.TestGoFiles), u.XTestGoFiles...) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(u.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if file.Doc != nil {
			return true
		}
	}
	return false
}
