package inbox

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
