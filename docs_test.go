package inbox_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/BurntSushi/toml"
)

// documents calls visit with every document in Markdown.
func documents(t *testing.T, visit func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git" || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			visit(filepath.ToSlash(path), string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingForm  = regexp.MustCompile(`(?m)^#{1,6} +(.+?)\s*$`)
	anchorForm   = regexp.MustCompile(`<a id="([^"]+)"></a>`)
	linkWords    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	inlineCode   = regexp.MustCompile("`[^`\n]*`")
)

// anchors are the ids that a document has where it is shown: those of its headings, as GitHub makes them, and those that it writes.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, match := range anchorForm.FindAllStringSubmatch(text, -1) {
		found[match[1]] = true
	}
	for _, match := range headingForm.FindAllStringSubmatch(withoutBlocks(text), -1) {
		words := strings.ToLower(linkWords.ReplaceAllString(match[1], "$1"))
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return r
			}
			return -1
		}, words)
		for number, name := 0, slug; ; number++ {
			if number > 0 {
				name = fmt.Sprintf("%s-%d", slug, number)
			}
			if !found[name] {
				found[name] = true
				break
			}
		}
	}
	return found
}

// TestDocumentationLinksLeadSomewhere follows every relative link of every document, to the heading that it names.
func TestDocumentationLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	texts := map[string]string{}
	documents(t, func(path, text string) { texts[path] = text })
	for document, text := range texts {
		for _, link := range markdownLink.FindAllStringSubmatch(inlineCode.ReplaceAllString(withoutBlocks(text), ""), -1) {
			file, anchor, _ := strings.Cut(link[1], "#")
			if strings.Contains(file, ":") {
				continue
			}
			target := document
			if file != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(document), file))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", document, link[1])
				continue
			}
			if shown, is := texts[target]; is && anchor != "" && !anchors(shown)[anchor] {
				t.Errorf("%s links to %s, and %s has no such heading", document, link[1], target)
			}
		}
	}
}

// snippet is a fenced block of a document.
type snippet struct {
	place    string // document:line of its first line
	language string
	text     string
}

var fenceForm = regexp.MustCompile("^\\s*```\\s*([a-zA-Z]*)")

func snippets(document, text string) (found []snippet) {
	var open *snippet
	for number, line := range strings.Split(text, "\n") {
		match := fenceForm.FindStringSubmatch(line)
		switch {
		case match != nil && open == nil:
			open = &snippet{place: fmt.Sprintf("%s:%d", document, number+2), language: match[1]}
		case match != nil:
			found = append(found, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return found
}

func withoutBlocks(text string) string {
	var out strings.Builder
	inside := false
	for line := range strings.Lines(text) {
		if fenceForm.MatchString(line) {
			inside = !inside
		} else if !inside {
			out.WriteString(line)
		}
	}
	return out.String()
}

// TestSnippetsAreWhole reads every block of every document as its language wants it. That settings are those of the server, and what
// commands do, is shown by TestGuides of e2e.
func TestSnippetsAreWhole(t *testing.T) {
	t.Parallel()
	known := map[string]func(string) error{
		"": nil, "text": nil, "html": nil, "ini": nil, "python": nil, // Python is read in one process, below
		"json": func(text string) error {
			decoder := json.NewDecoder(strings.NewReader(text))
			for { // a program that pulls sends several documents
				var value any
				if err := decoder.Decode(&value); err != nil {
					if errors.Is(err, io.EOF) {
						return nil
					}
					return err
				}
			}
		},
		"toml": func(text string) error {
			var value map[string]any
			return toml.Unmarshal([]byte(text), &value)
		},
		"go": goSnippet, "sh": shellSnippet, "console": func(text string) error {
			var commands strings.Builder
			for line := range strings.Lines(text) {
				if command, is := strings.CutPrefix(line, "$ "); is {
					commands.WriteString(command)
				}
			}
			return shellSnippet(commands.String())
		},
	}
	count := map[string]int{}
	var python []snippet
	documents(t, func(path, text string) {
		for _, one := range snippets(path, text) {
			read, is := known[one.language]
			if count[one.language]++; !is {
				t.Errorf("%s: nothing here reads %s; use text, or add it", one.place, one.language)
			}
			if one.language == "python" {
				python = append(python, one)
			}
			if read == nil {
				continue
			}
			if err := read(one.text); err != nil {
				t.Errorf("%s: %v\n%s", one.place, err, one.text)
			}
		}
	})
	for _, language := range []string{"sh", "toml", "json", "go", "python"} {
		if count[language] == 0 {
			t.Errorf("no document has a block of %s: what reads them is wrong", language)
		}
	}
	readPython(t, python)
}

// goSnippet takes declarations or statements. Whole programs are in docs/examples, which is built.
func goSnippet(text string) error {
	if strings.HasPrefix(text, "package ") {
		return errors.New("a whole program belongs into docs/examples, where it is built")
	}
	_, err := parser.ParseFile(token.NewFileSet(), "declarations.go", "package x\n"+text, 0)
	if err == nil {
		return nil
	}
	_, err = parser.ParseFile(token.NewFileSet(), "statements.go", "package x\nfunc _() {\n"+text+"}\n", 0)
	return err
}

func shellSnippet(text string) error {
	run := exec.Command("sh", "-n")
	run.Stdin = strings.NewReader(text)
	if output, err := run.CombinedOutput(); err != nil {
		return fmt.Errorf("sh -n: %w: %s", err, output)
	}
	return nil
}

const pythonReader = `import ast, json, sys
for place, text in json.load(sys.stdin):
    try:
        ast.parse(text)
    except SyntaxError as wrong:
        print(f"{place}: {wrong}")
`

func readPython(t *testing.T, blocks []snippet) {
	t.Helper()
	given := make([][2]string, 0, len(blocks))
	for _, one := range blocks {
		given = append(given, [2]string{one.place, one.text})
	}
	written, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), "python3", "-c", pythonReader)
	run.Stdin = bytes.NewReader(written)
	if output, err := run.CombinedOutput(); err != nil || len(output) > 0 {
		t.Errorf("python3: %v\n%s", err, output)
	}
}

// TestWrongSnippetsAndAnchorsAreFound: the checks find what they are for.
func TestWrongSnippetsAndAnchorsAreFound(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"func (", "package main\n", "x :="} {
		if goSnippet(wrong) == nil {
			t.Errorf("%q is Go", wrong)
		}
	}
	if shellSnippet("if true; then\n") == nil || shellSnippet("echo 'a\nb'\n") != nil {
		t.Error("sh -n does not tell commands from others")
	}
	found := anchors("# One `[two]`, [three](x.md)!\n\n## Same\n\n## Same\n\n<a id=\"own\"></a>\n```sh\n# no heading\n```\n")
	if len(found) != 4 || !found["one-two-three"] || !found["same"] || !found["same-1"] || !found["own"] {
		t.Errorf("%v", found)
	}
}

// TestSymptomsEndInAProof: each section of the page by symptom ends with a command that shows the cause.
func TestSymptomsEndInAProof(t *testing.T) {
	t.Parallel()
	const page = "docs/troubleshooting.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(text), "\n## ")
	if len(sections) < 12 {
		t.Errorf("%s has only %d sections", page, len(sections))
	}
	for _, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		lines := strings.Split(strings.TrimSpace(section), "\n")
		last := lines[max(0, len(lines)-2)]
		if lines[len(lines)-1] != "```" || !strings.HasPrefix(last, "inbox doctor") && !strings.HasPrefix(last, "inbox show") {
			t.Errorf("%s: %s does not end with inbox doctor or inbox show", page, title)
		}
	}
}

var updateInterop = flag.Bool("update-interop", false, "write the table of docs/interop.md anew, from docs/interop.jsonl")

//go:generate go test -run ^TestInteropTable$ . -update-interop

// ranLine is what a test of e2e noted of a run with software of others.
type ranLine struct {
	Peer    string `json:"peer"`
	Version string `json:"version"`
	Test    string `json:"test"`
	Result  string `json:"result"`
	At      string `json:"at"`
}

const (
	interopBegin = "<!-- what ran: make interop writes it -->\n"
	interopEnd   = "<!-- until here -->\n"
)

// TestInteropTable: docs/interop.md has what the tests noted in docs/interop.jsonl, of each test with each peer the newest run. One that failed
// in a part failed.
func TestInteropTable(t *testing.T) {
	t.Parallel()
	const file, page = "docs/interop.jsonl", "docs/interop.md"
	noted, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	newest := map[string]ranLine{}
	for line := range strings.Lines(string(noted)) {
		var one ranLine
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		key := one.Peer + " " + one.Test
		if known, is := newest[key]; !is || known.At < one.At || known.At == one.At && known.Result == "passed" {
			newest[key] = one
		}
	}
	says := sentencesOfTests(t)
	var kept, table bytes.Buffer
	table.WriteString("| software | version | test of `e2e` | what | last run | result |\n|---|---|---|---|---|---|\n")
	for _, key := range slices.Sorted(maps.Keys(newest)) {
		one := newest[key]
		line, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		if says[one.Test] == "" && *updateInterop { // it is about something else, and swaks or dkimpy is only its sender
			continue
		}
		if says[one.Test] == "" {
			t.Errorf("%s names %s, which is not there or has no comment", file, one.Test)
		}
		kept.Write(append(line, '\n'))
		fmt.Fprintf(&table, "| %s | %s | `%s` | %s | %s | %s |\n", one.Peer, one.Version, one.Test, says[one.Test], one.At[:len("2026-01-02")], one.Result)
	}

	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), interopBegin)
	_, after, marked := strings.Cut(rest, interopEnd)
	if !marked {
		t.Fatalf("%s has no place for the table", page)
	}
	want := before + interopBegin + "\n" + table.String() + "\n" + interopEnd + after
	if *updateInterop {
		if err := errors.Join(os.WriteFile(page, []byte(want), 0o644), os.WriteFile(file, kept.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want || !bytes.Equal(noted, kept.Bytes()) {
		t.Errorf("%s is not that of %s; run: go generate .", page, file)
	}
}

// sentencesOfTests are the first sentences of the comments of the tests of e2e, without the name.
func sentencesOfTests(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	names, err := filepath.Glob("e2e/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			function, is := declaration.(*ast.FuncDecl)
			if !is || function.Doc == nil {
				continue
			}
			sentence := new(doc.Package).Synopsis(function.Doc.Text())
			sentence = strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(sentence, function.Name.Name), ":"))
			found[function.Name.Name] = strings.ReplaceAll(strings.TrimSuffix(sentence, "."), "|", "\\|")
		}
	}
	return found
}

var (
	testNamed   = regexp.MustCompile("`(Test[A-Z]\\w*)(…?)`")
	testWritten = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// TestNamedTestsAreThere: what a document says that a test shows is shown by a test that is there.
func TestNamedTestsAreThere(t *testing.T) {
	t.Parallel()
	written := []string{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range testWritten.FindAllStringSubmatch(string(source), -1) {
			written = append(written, match[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	documents(t, func(path, text string) {
		if path == "CHANGELOG.md" || strings.HasPrefix(path, "docs/decisions/") { // they tell what was
			return
		}
		for _, match := range testNamed.FindAllStringSubmatch(text, -1) {
			if !slices.ContainsFunc(written, func(name string) bool {
				return name == match[1] || match[2] != "" && strings.HasPrefix(name, match[1])
			}) {
				t.Errorf("%s names %s, which is not there", path, match[1])
			}
		}
	})
}

var proposal = regexp.MustCompile(`\bFEP-[0-9a-f]{4}\b`)

// TestFederationNamesEveryProposal: FEDERATION.md names the proposals (FEP) that the code names, and no others but its own.
func TestFederationNamesEveryProposal(t *testing.T) {
	text, err := os.ReadFile("FEDERATION.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, name := range proposal.FindAllString(string(text), -1) {
		told[name] = true
	}
	delete(told, "FEP-67ff")

	named := map[string]bool{}
	err = filepath.WalkDir("adapters", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, name := range proposal.FindAllString(string(source), -1) {
			if named[name] = true; !told[name] {
				t.Errorf("%s names %s and FEDERATION.md does not", path, name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range told {
		if !named[name] {
			t.Errorf("FEDERATION.md names %s and no code does", name)
		}
	}
	if len(named) == 0 {
		t.Error("no code names a proposal")
	}
}

// TestBenchmarksAreNewest refuses figures that are older than a claim of the changelog about speed.
func TestBenchmarksAreNewest(t *testing.T) {
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	benchmarks, err := os.ReadFile("docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	measured := regexp.MustCompile(`Measured on (\d{4}-\d\d-\d\d) `).FindSubmatch(benchmarks)
	if measured == nil || !regexp.MustCompile(`commit [0-9a-f]{7,40}\.`).Match(benchmarks) {
		t.Fatal("docs/benchmarks.md does not say when and of which commit it was measured: make bench")
	}

	for section := range strings.SplitSeq(string(changelog), "\n### ") {
		entries, speed := strings.CutPrefix(section, "Speed\n")
		if !speed {
			continue
		}
		claims := regexp.MustCompile(`(?m)^- (\d{4}-\d\d-\d\d): `).FindAllStringSubmatch(entries, -1)
		if bullets := strings.Count(entries, "\n- "); bullets != len(claims) {
			t.Errorf("%d of %d entries under Speed in CHANGELOG.md begin with a date", len(claims), bullets)
		}
		for _, claim := range claims {
			if claim[1] > string(measured[1]) {
				t.Errorf("CHANGELOG.md claims a change of speed on %s, and docs/benchmarks.md is of %s: make bench", claim[1], measured[1])
			}
		}
	}
}
