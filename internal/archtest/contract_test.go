package archtest

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

const root = "../.."

// contract is one document that comments and pages cite by section. It must be cited at least so often: a search that finds
// hardly anything does not read the citations as they are written.
type contract struct {
	page  string
	least int
}

var contracts = map[string]contract{
	"message": {page: "docs/contract/message.md", least: 80},
	"runtime": {page: "docs/contract/runtime.md", least: 100},
}

var (
	// citation finds "message contract, section 9, check 7", "agent runtime contract, sections 1.1 to 1.4" and
	// "message contract (sections 8 and 9)".
	citation = regexp.MustCompile(`\b(message|runtime) contract(?:,| \() ?sections? (` + number + `(?:(?:, | and | to )` + number + `)*)`)
	// meant finds whatever looks like a citation, also one that citation cannot read.
	meant = regexp.MustCompile(`(?i)\bcontract\b\W{1,3}sections?\b`)
	// bare finds a section without a document; the rooms of bareRooms cite their own contract so.
	bare = regexp.MustCompile(`(?:(\S+) |\()sections? (` + number + `(?:(?:, | and | to )` + number + `)*)`)
	// absent finds sections of a document that the tree does not hold.
	absent = regexp.MustCompile(`(?i)\bseeds? 0\d\d\b|\breference\b\W{1,3}sections?\b|\bsections? ` + number + ` of the (?:\w+ )?reference\b`)
	// heading is a numbered one, as in "## 9. The model" and "### 3.2 Sequence".
	heading = regexp.MustCompile(`(?m)^#{2,3} (` + number + `)\.? \S`)
)

// bareRooms are the folders whose comments leave the name of a contract out where it is clear.
var bareRooms = map[string]string{"agents/runtime/": "runtime", "history/": "message"}

const number = `\d+(?:\.\d+)?`

// prose is the text of a page, or of a group of comments, with the lines on which its pieces stand.
type prose struct {
	file string
	text strings.Builder
	from []int // offset in text at which each of lines begins
	line []int
}

func (p *prose) add(line int, text string) {
	p.from, p.line = append(p.from, p.text.Len()), append(p.line, line)
	p.text.WriteString(strings.TrimSpace(text) + " ")
}

func (p *prose) place(offset int) string {
	at, found := slices.BinarySearch(p.from, offset)
	if !found {
		at--
	}
	return fmt.Sprintf("%s:%d", p.file, p.line[at])
}

// TestCitationsOfTheContractsResolve holds every section that a comment or a page cites to the headings of the contracts.
func TestCitationsOfTheContractsResolve(t *testing.T) {
	sections, found := map[string]map[string]bool{}, map[string]int{}
	for name, cited := range contracts {
		sections[name] = sectionsOf(t, cited.page)
	}

	for _, p := range append(comments(t), pages(t)...) {
		text := p.text.String()
		read := map[int]bool{}

		check := func(name, cited string, offset int) {
			for _, section := range sectionsIn(cited) {
				found[name]++
				if !sections[name][section] {
					t.Errorf("%s: cites section %s of the %s contract, which %s does not have", p.place(offset), section, name, contracts[name].page)
				}
			}
		}

		for _, match := range citation.FindAllStringSubmatchIndex(text, -1) {
			name := text[match[2]:match[3]]
			read[match[2]+len(name)+1] = true // where the word contract begins
			check(name, text[match[4]:match[5]], match[0])
		}

		for room, name := range bareRooms {
			for _, match := range bare.FindAllStringSubmatchIndex(text, -1) {
				document := match[2] >= 0 && strings.HasSuffix(text[match[2]:match[3]], ",") // RFC 9110, section 5.6.2
				if strings.HasPrefix(p.file, room) && !document {
					check(name, text[match[4]:match[5]], match[4])
				}
			}
		}

		for _, match := range absent.FindAllStringIndex(text, -1) {
			t.Errorf("%s: %q cites a document that the tree does not hold", p.place(match[0]), text[match[0]:match[1]])
		}

		for _, match := range meant.FindAllStringIndex(text, -1) {
			if !read[match[0]] {
				t.Errorf("%s: %q is no citation that can be read; write \"message contract, section 9\" or \"agent runtime contract, sections 6.1 and 6.5\"",
					p.place(match[0]), text[match[0]:min(len(text), match[1]+20)])
			}
		}
	}

	for name, cited := range contracts {
		if found[name] < cited.least {
			t.Errorf("only %d citations of the %s contract were found, want at least %d: does the search still read them?", found[name], name, cited.least)
		}
	}
	t.Logf("citations: %v", found)
}

// sectionsIn returns the sections of "1.1 to 1.4", "6.1 and 6.5" or "1, 2 and 8".
func sectionsIn(text string) (list []string) {
	for _, piece := range regexp.MustCompile(`, | and `).Split(text, -1) {
		first, last, isRange := strings.Cut(piece, " to ")
		list = append(list, first)
		major, minor, _ := strings.Cut(first, ".")
		for n, _ := strconv.Atoi(minor); isRange && n < 1000; {
			n++
			next := major + "." + strconv.Itoa(n)
			list = append(list, next)
			if next == last {
				break
			}
		}
	}
	return list
}

func sectionsOf(t *testing.T, page string) map[string]bool {
	t.Helper()
	sections := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(readPage(t, page), -1) {
		if sections[match[1]] {
			t.Errorf("%s has section %s twice", page, match[1])
		}
		sections[match[1]] = true
	}
	if len(sections) < 10 {
		t.Fatalf("%s has %d numbered headings only", page, len(sections))
	}
	return sections
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sources are the files of the tree with an extension, without those that others wrote.
func sources(t *testing.T, extension string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "node_modules", "testdata", "bin"}, entry.Name()):
			return filepath.SkipDir
		case !entry.IsDir() && filepath.Ext(file) == extension:
			names = append(names, filepath.ToSlash(strings.TrimPrefix(file, root+string(filepath.Separator))))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// comments are the groups of comments of all Go files but this one, whose examples are no citations.
func comments(t *testing.T) (all []*prose) {
	t.Helper()
	for _, name := range sources(t, ".go") {
		if name == "internal/archtest/contract_test.go" {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, filepath.Join(root, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range file.Comments {
			p := &prose{file: name}
			for _, comment := range group.List {
				text := strings.TrimSuffix(strings.TrimLeft(comment.Text, "/*"), "*/")
				for i, line := range strings.Split(text, "\n") {
					p.add(set.Position(comment.Pos()).Line+i, line)
				}
			}
			all = append(all, p)
		}
	}
	return all
}

// pages are all Markdown documents.
func pages(t *testing.T) (all []*prose) {
	t.Helper()
	for _, name := range sources(t, ".md") {
		p := &prose{file: name}
		for i, line := range strings.Split(readPage(t, name), "\n") {
			p.add(i+1, line)
		}
		all = append(all, p)
	}
	return all
}

var (
	link   = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	fence  = regexp.MustCompile("(?ms)^```.*?^```")
	titles = regexp.MustCompile(`(?m)^#{1,6} (.+?)\s*$`)
)

// TestLinksOfPagesResolve follows the relative links of the documentation: the file is there, and so is the heading.
func TestLinksOfPagesResolve(t *testing.T) {
	followed := 0
	for _, name := range sources(t, ".md") {
		if path.Dir(name) != "." && !strings.HasPrefix(name, "docs/") {
			continue
		}
		text := fence.ReplaceAllString(readPage(t, name), "")
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, ":") {
				continue // another site, or mail
			}
			followed++

			at := name
			if target != "" {
				at = path.Join(path.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(root, at)); err != nil {
				t.Errorf("%s links to %s, which is not there", name, match[1])
				continue
			}
			if anchor != "" && path.Ext(at) == ".md" && !slices.Contains(anchors(readPage(t, at)), anchor) {
				t.Errorf("%s links to %s: %s has no such heading", name, match[1], at)
			}
		}
	}
	if followed < 300 {
		t.Errorf("only %d links were found: does the search still read them?", followed)
	}
	t.Logf("%d links", followed)
}

// anchors are the names that GitHub makes of headings: lower case, blanks as hyphens, no other marks; a second one of the
// same name has a number.
func anchors(text string) (names []string) {
	seen := map[string]int{}
	for _, match := range titles.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, match[1])
		if seen[name]++; seen[name] > 1 {
			name += "-" + strconv.Itoa(seen[name]-1)
		}
		names = append(names, name)
	}
	return names
}

// named is a file or folder of the tree in a page, as in `adapters/chat/rpc.go`.
var named = regexp.MustCompile("`((?:adapters|agents|console|engine|exchange|history|identity|internal|normalized|policypart)(?:/[A-Za-z0-9_./-]+)?)`")

// TestFilesOfDeviationsAreThere follows the column that tells where a deviation stands.
func TestFilesOfDeviationsAreThere(t *testing.T) {
	const page = "docs/contract/deviations.md"
	followed := 0
	for _, match := range named.FindAllStringSubmatch(readPage(t, page), -1) {
		followed++
		if _, err := os.Stat(filepath.Join(root, match[1])); err != nil {
			t.Errorf("%s names %s, which is not there", page, match[1])
		}
	}
	if followed < 30 {
		t.Errorf("only %d files were found: does the search still read them?", followed)
	}
}
