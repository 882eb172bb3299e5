package reference_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"inbox/internal/reference"
)

const root = "../.."

var update = flag.Bool("update-reference", false, "write the pages of docs/reference anew")

// source is what the code of the program declares: no tests, no peers, no examples.
type source struct {
	files     map[string]*ast.File // by path from the root
	constants map[string]string    // "exchange.StateHeld" → "held"
}

var besides = []string{"e2e", "bench", "docs", "testdata", "node_modules", "internal/peer", "internal/demo", "internal/reference", "internal/archtest"}

func read(t *testing.T) source {
	t.Helper()
	s := source{files: map[string]*ast.File{}, constants: map[string]string{}}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		if entry.IsDir() {
			if slices.Contains(besides, name) || slices.Contains(besides, entry.Name()) || strings.HasSuffix(name, "test") || strings.HasPrefix(entry.Name(), ".") && path != root {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_templ.go") { // templates name no codes
			return nil
		}
		s.files[name], err = parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	for _, file := range s.files {
		ast.Inspect(file, func(node ast.Node) bool {
			if spec, is := node.(*ast.ValueSpec); is {
				for i, name := range spec.Names {
					if i < len(spec.Values) {
						if text, is := literal(spec.Values[i]); is {
							s.constants[file.Name.Name+"."+name.Name] = text
						}
					}
				}
			}
			return true
		})
	}
	return s
}

func literal(value ast.Expr) (string, bool) {
	if basic, is := value.(*ast.BasicLit); is && basic.Kind == token.STRING {
		text, err := strconv.Unquote(basic.Value)
		return text, err == nil
	}
	return "", false
}

// constant returns the text of an expression: a literal, or a constant of the program.
func (s source) constant(file *ast.File, value ast.Expr) (string, bool) {
	switch value := value.(type) {
	case *ast.BasicLit:
		return literal(value)
	case *ast.Ident:
		text, is := s.constants[file.Name.Name+"."+value.Name]
		return text, is
	case *ast.SelectorExpr:
		if room, is := value.X.(*ast.Ident); is {
			text, is := s.constants[room.Name+"."+value.Sel.Name]
			return text, is
		}
	case *ast.CallExpr: // string(x)
		if name, is := value.Fun.(*ast.Ident); is && name.Name == "string" {
			return s.constant(file, value.Args[0])
		}
	}
	return "", false
}

var (
	nameOfCode = regexp.MustCompile(`^([Cc]ode|[Aa]udit)[A-Z]`)
	formOfCode = regexp.MustCompile(`^[a-z]+(_[a-z]+)*(:[a-z_]*)?$`)
	formOfOpen = regexp.MustCompile(`^[a-z]+:$`)
)

// codes of errors and audit records: constants with the name of one, the kinds of faults, what is written into a member Code, and every text
// that begins as one of those with a colon.
func (s source) codes() map[string]bool {
	found := map[string]bool{}
	add := func(text string) {
		if formOfOpen.MatchString(text) {
			text += "…"
		}
		found[text] = true
	}
	spaces := map[string]bool{}
	for _, page := range reference.All() {
		for _, group := range page.Groups {
			for _, entry := range group.Entries {
				if start, _, is := strings.Cut(entry.Name, ":"); is && page.Name == reference.Errors {
					spaces[start] = true
				}
			}
		}
	}

	for kind := range s.block("policypart", "The seven known kinds") {
		add(kind)
	}
	for path, file := range s.files {
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.ValueSpec:
				kind, typed := node.Type.(*ast.Ident)
				for i, name := range node.Names {
					if name.Name == "openAICodes" {
						ast.Inspect(node.Values[i], func(inner ast.Node) bool {
							if words, is := inner.(*ast.CompositeLit); is && words.Type == nil && len(words.Elts) == 2 {
								text, _ := literal(words.Elts[1])
								add(text)
							}
							return true
						})
					}
					if i >= len(node.Values) {
						continue
					}
					isKind := path == "internal/fault/fault.go" && typed && kind.Name == "Kind"
					if text, is := literal(node.Values[i]); is && (isKind || nameOfCode.MatchString(name.Name)) && formOfCode.MatchString(text) {
						add(text)
					}
				}
			case *ast.KeyValueExpr:
				key, is := node.Key.(*ast.Ident)
				word, quoted := literal(node.Key)
				if text, plain := literal(node.Value); plain && (is && key.Name == "Code" || quoted && word == "code") && formOfCode.MatchString(text) {
					add(text)
				}
			case *ast.BinaryExpr: // "block:" + kind
				text, is := literal(node.X)
				if is && path != "agents/remote/remote.go" && formOfOpen.MatchString(text) && spaces[strings.TrimSuffix(text, ":")] { // there turn:… is a key of what it keeps
					add(text)
				}
			case *ast.BasicLit:
				text, is := literal(node)
				start, word, _ := strings.Cut(text, ":")
				if is && word != "" && word != "integer" && spaces[start] && formOfCode.MatchString(text) { // limit:integer is a parameter of the API
					add(text)
				}
			}
			return true
		})
	}
	return found
}

// events are the constants of exchange, a row for each state of a turn, and what the loop of a model tells.
func (s source) events(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for name, text := range s.constants {
		if strings.HasPrefix(name, "exchange.Event") {
			found[text] = true
		}
	}
	for state := range s.states()["turn"] {
		found["turn."+state] = true
	}

	tells := []string{"emit", "record", "observe", "tellEvent"}
	for path, file := range s.files {
		room := filepath.ToSlash(filepath.Dir(path))
		if room != "agents/runtime/loop" && room != "agents/llm" {
			continue
		}
		ast.Inspect(file, func(node ast.Node) bool {
			call, is := node.(*ast.CallExpr)
			if !is || len(call.Args) == 0 {
				return true
			}
			name := ""
			switch function := call.Fun.(type) {
			case *ast.Ident:
				name = function.Name
			case *ast.SelectorExpr:
				name = function.Sel.Name
			}
			if !slices.Contains(tells, name) {
				return true
			}
			for _, argument := range call.Args[:min(2, len(call.Args))] {
				if text, is := s.constant(file, argument); is {
					found[text] = true
					break
				}
			}
			return true
		})
	}
	return found
}

// places of states: the constants of one block each, which its comment names.
var places = map[string]struct{ room, comment string }{
	"turn":     {"exchange", "States of a turn"},
	"approval": {"exchange", "States of an Approval"},
	"delivery": {"engine/delivery", "States of a delivery"},
	"demand":   {"policypart", "Statuses of an Issuance"},
	"task":     {"agents/runtime/task", "Statuses of a task run"},
	"run":      {"agents/runtime/envelope", "How a run ended"},
	"tool":     {"agents/runtime/tool/request", "Status"},
	"item":     {"adapters/bridge/contract", "The statuses"},
}

func (s source) states() map[string]map[string]bool {
	found := map[string]map[string]bool{}
	for group, place := range places {
		found[group] = s.block(place.room, place.comment)
	}
	return found
}

// block returns the texts of the constants of a package whose comment begins so.
func (s source) block(room, comment string) map[string]bool {
	found := map[string]bool{}
	for path, file := range s.files {
		if filepath.ToSlash(filepath.Dir(path)) != room {
			continue
		}
		for _, declaration := range file.Decls {
			block, is := declaration.(*ast.GenDecl)
			if !is || block.Tok != token.CONST || !strings.HasPrefix(block.Doc.Text(), comment) {
				continue
			}
			for _, spec := range block.Specs {
				if text, is := literal(spec.(*ast.ValueSpec).Values[0]); is {
					found[text] = true
				}
			}
		}
	}
	return found
}

// methods are all texts that are whole methods of proof.
func (s source) methods() map[string]bool {
	form := regexp.MustCompile(`^urn:mentionable:auth:[a-z0-9-]+:v0\.1$`)
	found := map[string]bool{}
	for _, file := range s.files {
		ast.Inspect(file, func(node ast.Node) bool {
			if basic, is := node.(*ast.BasicLit); is {
				if text, _ := literal(basic); form.MatchString(text) {
					found[text] = true
				}
			}
			return true
		})
	}
	return found
}

func namesOf(t *testing.T, page string, only func(reference.Group) bool) map[string]bool {
	t.Helper()
	known, is := reference.Get(page)
	if !is {
		t.Fatal("there is no page " + page)
	}
	names := map[string]bool{}
	for _, group := range known.Groups {
		for _, entry := range group.Entries {
			if !only(group) {
				continue
			}
			if names[entry.Name] {
				t.Errorf("%s: %s has two rows", page, entry.Name)
			}
			names[entry.Name] = true
		}
	}
	return names
}

func same(t *testing.T, what string, declared, told map[string]bool) {
	t.Helper()
	if len(declared) == 0 {
		t.Errorf("the code has no %s: what reads it is wrong", what)
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if !told[name] {
			t.Errorf("the code has the %s %q and internal/reference does not say what it means", what, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(told)) {
		if !declared[name] {
			t.Errorf("internal/reference has the %s %q and the code does not", what, name)
		}
	}
}

// TestTablesAreThoseOfTheCode: each code, event, state and method of the code has one row, and no row is about anything else.
func TestTablesAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	code := read(t)
	same(t, "code", code.codes(), namesOf(t, reference.Errors, func(group reference.Group) bool { return group.Title != "A2A" })) // its test is in adapters/a2a
	same(t, "event", code.events(t), namesOf(t, reference.Events, func(reference.Group) bool { return true }))
	same(t, "method", code.methods(), namesOf(t, reference.Evidence, func(reference.Group) bool { return true }))
	for name, declared := range code.states() {
		same(t, "state of "+name, declared, namesOf(t, reference.States, func(group reference.Group) bool { return group.Name == name }))
	}
}

//go:generate go test -run ^TestPages$ . -update-reference

// TestPages keeps docs/reference current; go generate writes it.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, page := range reference.All() {
		path := filepath.Join(root, "docs", "reference", page.Name+".md")
		text := document(page)
		if *update {
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if committed, err := os.ReadFile(path); err != nil || !bytes.Equal(committed, text) {
			t.Errorf("%s is not that of internal/reference (%v); run: go generate ./internal/reference", path, err)
		}
	}
}

func document(page reference.Page) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "# %s\n\nWritten by `go generate ./internal/reference`; do not edit it. A server has this page at `%s%s`.\n\n%s\n", page.Title, reference.Path, page.Name, page.Intro)
	for _, group := range page.Groups {
		fmt.Fprintf(&out, "\n## %s\n\n", group.Title)
		if group.Intro != "" {
			out.WriteString(group.Intro + "\n\n")
		}
		fmt.Fprintf(&out, "| %s | meaning | what to do |\n|---|---|---|\n", page.Column)
		for _, entry := range group.Entries {
			fmt.Fprintf(&out, "| <a id=\"%s\"></a>`%s` | %s | %s |\n", group.Anchor(entry), entry.Name, cell(entry.Meaning), cell(entry.Do))
		}
	}
	return out.Bytes()
}

func cell(text string) string {
	if text == "" {
		return "–"
	}
	return strings.ReplaceAll(text, "|", `\|`)
}

func TestFind(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"not_found": "/docs/reference/errors#not_found", "evidence:expired": "/docs/reference/errors#evidence-expired", "block:host": "/docs/reference/errors#block",
		"held": "/docs/reference/states#turn-held", "turn.held": "/docs/reference/events#turn-held", "of another program": "",
	} {
		found := reference.Find(name)
		if want == "" && len(found) > 0 || want != "" && (len(found) != 1 || found[0].Address != want) {
			t.Errorf("%s: %+v", name, found)
		}
	}
	if found := reference.Find("failed"); len(found) < 3 {
		t.Errorf("failed is an event and the state of several things: %+v", found)
	}
	for code, want := range map[string]string{"not_found": "/docs/reference/errors#not_found", "run:stalled": "/docs/reference/errors#run", "no-such-order": "", "shop:closed": ""} {
		if got := reference.OfCode(code); got != want {
			t.Errorf("%s: %q, want %q", code, got, want)
		}
	}
}

func TestSpans(t *testing.T) {
	t.Parallel()
	got := reference.Spans("Say `x`, see [`[limits]`](../a.md#b) or [c](d.md). A ` and a [.")
	want := []reference.Span{
		{Text: "Say "}, {Text: "x", Code: true}, {Text: ", see "}, {Text: "["}, {Text: "[limits]", Code: true}, {Text: "](../a.md#b) or "}, {Text: "c", Href: "d.md"},
		{Text: ". A "}, {Text: "`"}, {Text: " and a "}, {Text: "["}, {Text: "."},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
