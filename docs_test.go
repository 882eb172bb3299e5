package inbox_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)

// TestDocumentationLinksLeadSomewhere follows every relative link of every document.
func TestDocumentationLinksLeadSomewhere(t *testing.T) {
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git" || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			checkLinks(t, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
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

func checkLinks(t *testing.T, document string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Error(err)
		return
	}
	for _, link := range markdownLink.FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(link[1], ":") {
			continue
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(document), link[1])); err != nil {
			t.Errorf("%s links to %s, which is not there", document, link[1])
		}
	}
}
