package config

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew")

const documentation = "../../docs/configuration.md"

// TestDocumentation keeps docs/configuration.md current; go generate writes it.
func TestDocumentation(t *testing.T) {
	want := document(t)
	if *update {
		if err := os.WriteFile(documentation, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(documentation)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("docs/configuration.md is not current, run: go generate ./internal/config\n%s", diff)
	}
}

func document(t *testing.T) string {
	t.Helper()
	head, err := os.ReadFile("testdata/configuration.head.md")
	if err != nil {
		t.Fatal(err)
	}
	d := &documenter{comments: structComments(t), written: map[reflect.Type]string{}}
	d.out.Write(head)
	d.section("Top of the file", "", reflect.ValueOf(Default()).Elem(), "")
	return d.out.String()
}

// structComments reads the comments of the structures and their fields: "HTTP" and "HTTP.Listen".
func structComments(t *testing.T) map[string]string {
	t.Helper()
	comments := map[string]string{}
	names, err := filepath.Glob("config*.go")
	if err != nil || len(names) == 0 {
		t.Fatalf("no file of settings: %v", err)
	}
	for _, name := range names {
		addComments(t, name, comments)
	}
	return comments
}

func addComments(t *testing.T, name string, comments map[string]string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(node ast.Node) bool {
		declaration, ok := node.(*ast.GenDecl)
		if !ok || declaration.Tok != token.TYPE {
			return true
		}
		spec := declaration.Specs[0].(*ast.TypeSpec)
		comments[spec.Name.Name] = oneLine(declaration.Doc)
		for _, field := range spec.Type.(*ast.StructType).Fields.List {
			comments[spec.Name.Name+"."+field.Names[0].Name] = oneLine(field.Doc)
		}
		return true
	})
}

func oneLine(comment *ast.CommentGroup) string {
	return strings.Join(strings.Fields(comment.Text()), " ")
}

type documenter struct {
	comments map[string]string
	written  map[reflect.Type]string // tables that have a section already, by the path of the first
	out      strings.Builder
}

// section writes the keys of one table, then the tables inside of it.
func (d *documenter) section(title, intro string, table reflect.Value, path string) {
	d.out.WriteString("\n## " + title + "\n\n")
	if intro != "" {
		d.out.WriteString(intro + "\n\n")
	}
	if first, is := d.written[table.Type()]; is { // a table that two others have is described once
		d.out.WriteString("The keys of `" + first + "`.\n")
		return
	}
	d.written[table.Type()] = path
	d.out.WriteString("| key | default | meaning |\n|---|---|---|\n")
	var inner []func()
	for i := range table.NumField() {
		field := table.Type().Field(i)
		key, value := keyOf(field), table.Field(i)
		comment := d.comments[table.Type().Name()+"."+field.Name]
		switch {
		case key == "":
		case isTable(field.Type):
			inner = append(inner, func() { d.section("`["+join(path, key)+"]`", d.intro(field.Type, comment), value, join(path, key)) })
		case isTableList(field.Type):
			fresh := reflect.New(field.Type.Elem()).Elem()
			setDefaults(fresh)
			inner = append(inner, func() {
				d.section("`[["+join(path, key)+"]]`", d.intro(field.Type.Elem(), comment), fresh, join(path, key))
			})
		default:
			d.row(join(path, key), defaultText(field, value), comment)
		}
	}
	for _, write := range inner {
		write()
	}
}

func (d *documenter) row(key, standard, comment string) {
	if standard == `""` || standard == "[]" {
		standard = "–"
	} else {
		standard = "`" + standard + "`"
	}
	d.out.WriteString("| `" + key + "` | " + standard + " | " + strings.ReplaceAll(comment, "|", `\|`) + " |\n")
}

// intro takes the sentence about a table from its structure, without the name that Go comments begin with.
func (d *documenter) intro(kind reflect.Type, comment string) string {
	text := strings.TrimPrefix(d.comments[kind.Name()], kind.Name()+" ")
	text = strings.TrimPrefix(strings.TrimPrefix(text, "is "), "are ")
	text = strings.ToUpper(text[:1]) + text[1:]
	if comment != "" {
		text += " " + comment
	}
	return text
}

// TestEveryKeyIsDocumented: each key has a comment; one that is a table has that of its structure.
func TestEveryKeyIsDocumented(t *testing.T) {
	comments := structComments(t)
	var look func(table reflect.Type)
	look = func(table reflect.Type) {
		if comments[table.Name()] == "" {
			t.Errorf("%s has no comment", table.Name())
		}
		for field := range table.Fields() {
			switch kind := field.Type; {
			case keyOf(field) == "":
			case isTable(kind):
				look(kind)
			case isTableList(kind):
				look(kind.Elem())
			case comments[table.Name()+"."+field.Name] == "":
				t.Errorf("%s.%s has no comment", table.Name(), field.Name)
			}
		}
	}
	look(reflect.TypeFor[Config]())
}

// TestNoKeyIsDocumentedTwice: each key has one row, and a table that two others share has one section.
func TestNoKeyIsDocumentedTwice(t *testing.T) {
	seen := map[string]int{}
	for line := range strings.SplitSeq(document(t), "\n") {
		key, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		if strings.HasPrefix(line, "| `") {
			if seen[key]++; seen[key] == 2 {
				t.Errorf("%s has two rows", key)
			}
		}
	}

	shared := struct {
		First  Log `toml:"first"`
		Second Log `toml:"second"`
	}{}
	d := &documenter{comments: structComments(t), written: map[reflect.Type]string{}}
	d.section("x", "", reflect.ValueOf(shared), "")
	if text := d.out.String(); strings.Count(text, "| key |") != 2 || !strings.Contains(text, "The keys of `first`.") {
		t.Errorf("a shared table is written as\n%s", text)
	}
}
