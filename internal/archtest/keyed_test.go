package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// keyed are packages and functions that make keyed hashes, and with them tokens.
var keyed = map[string][]string{
	"crypto/hmac":                 {"New"},
	"crypto/hkdf":                 nil, // nil = any of them
	"crypto/pbkdf2":               nil,
	"golang.org/x/crypto/blake2b": nil,
	"golang.org/x/crypto/blake2s": nil,
	"golang.org/x/crypto/hkdf":    nil,
}

// mayKey are the files that make keyed hashes themselves: none of these is a token that opens something here.
var mayKey = map[string]string{
	"internal/capability/capability.go":             "it is the function that mints all tokens",
	"internal/webhooksignature/webhooksignature.go": "signs bodies of requests in the form that receivers of webhooks check",
	"engine/moderation/networks.go":                 "names networks in counters, so that rows have no addresses of people",
	"operator/erasure.go":                           "names persons who were erased in receipts",
}

// TestOnlyCapabilityMintsTokens keeps one function that says for whom and about what a token is. A package with a keyed hash of its own
// would have its own idea of both.
func TestOnlyCapabilityMintsTokens(t *testing.T) {
	unused := maps.Clone(mayKey)
	for _, u := range packages(t) {
		if matches("docs/examples/...", u.room()) || matches("e2e/...", u.room()) {
			continue // programs of others, and tests
		}
		for _, name := range u.GoFiles {
			positions := token.NewFileSet()
			file, err := parser.ParseFile(positions, filepath.Join(u.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			place, found := u.room()+"/"+name, keyedHashes(file)
			if len(found) > 0 {
				delete(unused, place)
			}
			if mayKey[place] != "" {
				continue
			}
			for _, at := range found {
				t.Errorf("%s:%d makes a keyed hash: mint tokens with internal/capability, which asks who has them and what they are about", place, positions.Position(at).Line)
			}
		}
	}
	for place := range unused {
		t.Errorf("%s is on the list and makes no keyed hash", place)
	}
}

// keyedHashes finds the uses of what makes keyed hashes.
func keyedHashes(file *ast.File) []token.Pos {
	names := map[string][]string{}
	var found []token.Pos
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		functions, is := keyed[imported]
		if err != nil || !is {
			continue
		}
		if functions == nil {
			found = append(found, spec.Pos())
			continue
		}
		name := imported[strings.LastIndexByte(imported, '/')+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = functions
	}

	ast.Inspect(file, func(node ast.Node) bool {
		if used, is := node.(*ast.SelectorExpr); is {
			of, plain := used.X.(*ast.Ident)
			if plain && slices.Contains(names[of.Name], used.Sel.Name) {
				found = append(found, used.Pos())
			}
		}
		return true
	})
	return found
}

func TestKeyedHashesAreFound(t *testing.T) {
	const code = `package p
import (
	mac "crypto/hmac"
	"crypto/hkdf"
	"crypto/sha256"
)
func f() {
	mac.New(sha256.New, key)
	mac.Equal(a, b)
	make := mac.New
	sha256.New()
	x.New()
}`
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, "p.go", code, 0)
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, at := range keyedHashes(file) {
		lines = append(lines, positions.Position(at).Line)
	}
	if want := []int{4, 8, 10}; !slices.Equal(lines, want) {
		t.Errorf("found lines %v, want %v", lines, want)
	}
}
