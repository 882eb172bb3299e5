package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// examples are those of docs/contributing.md: under which heading the list stands, what is written wherever the example is touched, and
// where that does not count.
var examples = []struct {
	heading string
	written *regexp.Regexp
	within  []string // folders and files that count; none = all
	own     []string // folders that are the example's own
	tests   bool     // test files count
}{
	{heading: "A new channel", written: regexp.MustCompile(`\bbridge\.(ChannelName|New)\b`), own: []string{"adapters/bridge/"}},
	{heading: "A new kind of agent", written: regexp.MustCompile(`"webhook"`), own: []string{"agents/webhook/"}},
	{heading: "A new setting", written: regexp.MustCompile(`GuestMaxBytes`)},
	{
		heading: "A new operator command", written: regexp.MustCompile(`(?i)listSuppressed|Suppressions +Suppressions|type Suppressions|Suppressions\.(List|Lift)`),
		within: []string{"operator/", "cmd/", "console/"},
	},
	{heading: "A new table", written: regexp.MustCompile(`\bback_ends\b`), tests: true},
}

var listed = regexp.MustCompile("(?m)^- `([^`]+)`:")

// TestContributingNamesWhatIsTouched holds the lists of docs/contributing.md to the tree.
func TestContributingNamesWhatIsTouched(t *testing.T) {
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, "docs/contributing.md"))
	if err != nil {
		t.Fatal(err)
	}

	touched := make([][]string, len(examples))
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		switch {
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "node_modules" || entry.Name() == "testdata" || name == "internal/archtest" || name == "e2e"):
			return filepath.SkipDir
		case entry.IsDir(), filepath.Ext(name) != ".go" && filepath.Ext(name) != ".sql":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, example := range examples {
			under := func(folder string) bool { return strings.HasPrefix(name, folder) }
			if strings.HasSuffix(name, "_test.go") && !example.tests || slices.ContainsFunc(example.own, under) ||
				len(example.within) > 0 && !slices.ContainsFunc(example.within, under) || !example.written.Match(text) {
				continue
			}
			touched[i] = append(touched[i], name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	for i, example := range examples {
		_, section, found := strings.Cut(string(page), "\n## "+example.heading+"\n")
		if !found {
			t.Errorf("docs/contributing.md has no section %q", example.heading)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		var named []string
		for _, match := range listed.FindAllStringSubmatch(section, -1) {
			named = append(named, match[1])
		}
		slices.Sort(named)
		slices.Sort(touched[i])
		if !slices.Equal(named, touched[i]) {
			t.Errorf("%s: docs/contributing.md names %q; touched are %q", example.heading, named, touched[i])
		}
	}
}
