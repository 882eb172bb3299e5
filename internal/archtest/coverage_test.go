package archtest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

const (
	requirementsPage = "docs/contract/requirements.toml"
	coveragePage     = "docs/contract/coverage.md"
	deviationsPage   = "docs/contract/deviations.md"
)

var updateCoverage = flag.Bool("update-coverage", false, "write docs/contract/coverage.md anew")

// requirementList is docs/contract/requirements.toml.
type requirementList struct {
	Texts []requirementText `toml:"text"`
}

// requirementText is one of the texts that the contracts follow.
type requirementText struct {
	Name         string
	Title        string
	Requirements []requirement `toml:"requirement"`
}

// requirement is one statement that a test can judge. Its id is the name of its text and its number in it.
type requirement struct {
	Number    int
	Says      string
	Section   string // "runtime 3.5": contract and number of a heading
	Reached   string // routes, settings or parts
	Deviation string // how the row of deviations.md begins, where the server differs
}

// covered is a requirement with everything that is known of it.
type covered struct {
	requirement

	id    string
	tests []string // "adapters/chat.TestChatRepeats/run of a guest"
}

func (c covered) state() string {
	if c.Deviation != "" {
		return "deviation"
	}
	return "whole"
}

//go:generate go test -run ^TestCoverage$ . -update-coverage

// TestCoverage holds the list of requirements, the marks of the tests and the written table to each other.
func TestCoverage(t *testing.T) {
	list := readRequirements(t)
	found, faults := readMarks(filepath.Join("..", ".."))
	for _, fault := range append(faults, judgeMarks(list, found)...) {
		t.Error(fault)
	}

	known := newEvidence(t)
	for _, fault := range judgeRequirements(list, found, known) {
		t.Error(fault)
	}
	for _, fault := range known.unknownTests(readPage(t, deviationsPage) + readPage(t, requirementsPage)) {
		t.Errorf("%s or %s: %s", deviationsPage, requirementsPage, fault)
	}

	page := coverageTable(list, found)
	if *updateCoverage && !t.Failed() {
		if err := os.WriteFile(filepath.Join(root, coveragePage), page, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	if committed, err := os.ReadFile(filepath.Join(root, coveragePage)); err != nil || !bytes.Equal(committed, page) {
		t.Errorf("%s is not that of the marks (%v); run: go generate ./internal/archtest", coveragePage, err)
	}
}

func readRequirements(t *testing.T) (list requirementList) {
	t.Helper()
	undecoded, err := toml.Decode(readPage(t, requirementsPage), &list)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range undecoded.Undecoded() {
		t.Errorf("%s: the member %s means nothing", requirementsPage, key)
	}

	return list
}

// join returns every requirement in the order of the list, with the tests that show it.
func join(text requirementText, found []mark) (all []covered) {
	for _, one := range text.Requirements {
		c := covered{requirement: one, id: text.Name + "-" + strconv.Itoa(one.Number)}
		for _, mark := range found {
			if slices.Contains(mark.ids, c.id) && !slices.Contains(c.tests, mark.name()) {
				c.tests = append(c.tests, mark.name())
			}
		}
		slices.Sort(c.tests)
		all = append(all, c)
	}
	return all
}

// judgeMarks wants every mark to name requirements of the list, each once.
func judgeMarks(list requirementList, found []mark) (faults []string) {
	known := map[string]bool{}
	for _, text := range list.Texts {
		for _, one := range join(text, nil) {
			known[one.id] = true
		}
	}

	for _, mark := range found {
		for _, id := range mark.ids {
			if !known[id] {
				faults = append(faults, fmt.Sprintf("%s: the mark names %q, which %s does not have", mark.place, id, requirementsPage))
			}
		}
		if len(slices.Compact(slices.Sorted(slices.Values(mark.ids)))) != len(mark.ids) {
			faults = append(faults, mark.place+": the mark names a requirement twice")
		}
	}
	return faults
}

// evidence is what a requirement may refer to.
type evidence struct {
	sections   map[string]string // "runtime 3.5" → its anchor
	deviations []string          // first cells of the rows
	routes     map[string]bool   // "POST /v1/chat"
	settings   string            // docs/configuration.md
	keys       map[string]bool   // "show_tools": the last words of the keys of the settings
	documents  string            // the documents in which words that are no settings stand
	tests      map[string]bool   // "TestA": functions of tests, of the whole tree
}

func newEvidence(t *testing.T) evidence {
	t.Helper()
	known := evidence{sections: map[string]string{}, routes: map[string]bool{}, settings: readPage(t, "docs/configuration.md")}
	for name, cited := range contracts {
		text := readPage(t, cited.page)
		for section := range sectionsOf(t, cited.page) {
			known.sections[name+" "+section] = anchorOf(text, section)
		}
	}

	for line := range strings.SplitSeq(readPage(t, deviationsPage), "\n") {
		if cell, _, row := strings.Cut(strings.TrimPrefix(line, "| "), " | "); row && strings.HasPrefix(line, "| ") {
			known.deviations = append(known.deviations, cell)
		}
	}

	var described struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal([]byte(readPage(t, "docs/openapi.json")), &described); err != nil {
		t.Fatal(err)
	}
	for path, operations := range described.Paths {
		for method := range operations {
			known.routes[strings.ToUpper(method)+" "+path] = true
		}
	}

	known.keys, known.tests = map[string]bool{}, map[string]bool{}
	for _, match := range settingKey.FindAllStringSubmatch(known.settings, -1) {
		known.keys[match[1]] = true
	}
	var documents strings.Builder
	for _, name := range sources(t, ".md") {
		if strings.HasPrefix(name, "docs/") && name != coveragePage && !strings.HasPrefix(name, "docs/decisions/") {
			documents.WriteString(readPage(t, name))
		}
	}
	known.documents = documents.String() + readPage(t, "docs/openapi.json")
	for _, name := range sources(t, ".go") {
		if strings.HasSuffix(name, "_test.go") {
			for _, match := range testFunction.FindAllStringSubmatch(readPage(t, name), -1) {
				known.tests[match[1]] = true
			}
		}
	}

	return known
}

// anchorOf returns the name that a page gives to its numbered heading.
func anchorOf(text, section string) string {
	for _, match := range titles.FindAllStringSubmatch(text, -1) {
		if number, _, _ := strings.Cut(match[1], " "); strings.TrimSuffix(number, ".") == section {
			return anchors("# " + match[1])[0]
		}
	}
	return ""
}

var (
	quoted  = regexp.MustCompile("`([^`]+)`")
	route   = regexp.MustCompile(`^(?:GET|POST|PUT|DELETE|PATCH) /(?:v1|api)/`)
	setting = regexp.MustCompile(`^\[+[a-z_.]+\]+`)

	settingKey   = regexp.MustCompile("(?m)^\\| `(?:[a-z0-9_.]+\\.)?([a-z0-9_]+)` \\|")
	settingNames = regexp.MustCompile("settings? ((?:`[a-z0-9_]+`(?:, | and )?)+)")
	testFunction = regexp.MustCompile(`(?m)^func (Test\w+|Fuzz\w+)\(`)
	testName     = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
)

// unknownTests returns the names of tests in a text that no test has.
func (known evidence) unknownTests(text string) (faults []string) {
	for _, name := range testName.FindAllString(text, -1) {
		if !known.tests[name] {
			faults = append(faults, "there is no test "+name)
		}
	}
	return faults
}

// unknownNames returns what a sentence names that does not exist: settings, tests, and other words that no document has.
func (known evidence) unknownNames(sentence string) (faults []string) {
	for _, match := range settingNames.FindAllStringSubmatch(sentence, -1) {
		for _, name := range quoted.FindAllStringSubmatch(match[1], -1) {
			if !known.keys[name[1]] {
				faults = append(faults, "docs/configuration.md has no setting "+name[1])
			}
		}
	}
	faults = append(faults, known.unknownTests(sentence)...)
	for _, match := range quoted.FindAllStringSubmatch(sentence, -1) {
		if !route.MatchString(match[1]) && setting.FindString(match[1]) == "" && !strings.Contains(known.documents, match[1]) {
			faults = append(faults, "no document has "+match[1])
		}
	}
	return faults
}

// judgeRequirements wants every requirement to be stated, reached, and shown by a test or told as a deviation.
func judgeRequirements(list requirementList, found []mark, known evidence) (faults []string) {
	count := 0
	for _, text := range list.Texts {
		for i, one := range join(text, found) {
			complain := func(format string, args ...any) {
				faults = append(faults, requirementsPage+": "+one.id+": "+fmt.Sprintf(format, args...))
			}

			count++
			if one.Number != i+1 {
				complain("is the %d. of its text; numbers have no gaps and no order of their own", i+1)
			}
			if one.Says == "" || one.Reached == "" {
				complain("says what is required, and by what it is reached")
			}
			if _, there := known.sections[one.Section]; !there {
				complain("section %q is no heading of a contract", one.Section)
			}
			if one.Deviation != "" && !rowBegins(known.deviations, one.Deviation) {
				complain("%s has not one row that begins with %q", deviationsPage, one.Deviation)
			}
			for _, match := range quoted.FindAllStringSubmatch(one.Reached, -1) {
				if route.MatchString(match[1]) && !known.routes[match[1]] {
					complain("docs/openapi.json has no %s", match[1])
				}
				if name := setting.FindString(match[1]); name != "" && !strings.Contains(known.settings, strings.Trim(name, "[]")) {
					complain("docs/configuration.md has no %s", name)
				}
			}

			for _, fault := range known.unknownNames(one.Reached) {
				complain("%s", fault)
			}
			for _, test := range one.tests {
				for _, fault := range known.unknownNames(test) {
					complain("%s", fault)
				}
			}

			if len(one.tests) == 0 && one.Deviation == "" {
				complain("no test shows it over the network, and no row of %s tells that the server differs", deviationsPage)
			}
		}
	}

	if count < 150 {
		faults = append(faults, fmt.Sprintf("%s has %d requirements only", requirementsPage, count))
	}
	return faults
}

func rowBegins(rows []string, with string) bool {
	count := 0
	for _, row := range rows {
		if strings.HasPrefix(row, with) {
			count++
		}
	}
	return count == 1
}

// coverageTable writes the page.
func coverageTable(list requirementList, found []mark) []byte {
	var page bytes.Buffer
	page.WriteString(`<!-- Written by go generate ./internal/archtest from requirements.toml and the marks of the tests. Do not edit. -->

# What shows the contracts

The [message contract](message.md) and the [agent runtime contract](runtime.md) follow five texts. This page lists what those texts
require, one statement a row: the section that states it here, the route, setting or part that reaches it, and the tests that show it
over the network. **Whole** means that the server does what is required. **Deviation** means that it differs on purpose, as a row of
[deviations](deviations.md) tells; a test beside it shows what the server does instead. How a test is marked stands in
[contributing](../contributing.md#a-requirement-and-its-test).

| text | requirements | whole | deviation |
|---|---|---|---|
`)

	var sum struct{ all, whole, deviation int }
	var body bytes.Buffer
	for _, text := range list.Texts {
		states := map[string]int{}
		fmt.Fprintf(&body, "\n## %s\n\n| id | requirement | section | reached by | state | shown by |\n|---|---|---|---|---|---|\n", text.Title)
		all := join(text, found)
		for _, one := range all {
			states[one.state()]++
			contract, number, _ := strings.Cut(one.Section, " ")
			fmt.Fprintf(&body, "| %s | %s | [%s](%s.md#%s) | %s | %s | %s |\n",
				one.id, one.Says, one.Section, contract, anchorOfPage(contract, number), one.Reached, stateCell(one), testCell(one.tests))
		}

		fmt.Fprintf(&page, "| [%s](#%s) | %d | %d | %d |\n", text.Title, anchors("# " + text.Title)[0], len(all), states["whole"], states["deviation"])
		sum.all += len(all)
		sum.whole += states["whole"]
		sum.deviation += states["deviation"]
	}

	fmt.Fprintf(&page, "| together | %d | %d | %d |\n", sum.all, sum.whole, sum.deviation)
	page.Write(body.Bytes())

	return page.Bytes()
}

// anchorOfPage is anchorOf for a contract by its name.
func anchorOfPage(contract, section string) string {
	text, err := os.ReadFile(filepath.Join(root, contracts[contract].page))
	if err != nil {
		return ""
	}
	return anchorOf(string(text), section)
}

func stateCell(one covered) string {
	if one.Deviation != "" {
		return "[deviation](deviations.md): " + one.Deviation
	}
	return one.state()
}

func testCell(tests []string) string {
	if len(tests) == 0 {
		return "–"
	}
	cells := make([]string, len(tests))
	for i, test := range tests {
		cells[i] = "`" + test + "`"
	}
	return strings.Join(cells, ", ")
}

// TestCoverageNotices: every way in which list and marks can differ is told.
func TestCoverageNotices(t *testing.T) {
	t.Parallel()
	good := requirement{Number: 1, Says: "s", Section: "runtime 1", Reached: "`POST /v1/chat`, `[agents.llm]`"}
	shown := mark{folder: "a", test: "TestA", place: "a_test.go:1", ids: []string{"x-1"}}
	known := evidence{
		sections: map[string]string{"runtime 1": "1"}, deviations: []string{"one way", "two ways", "two words"},
		routes: map[string]bool{"POST /v1/chat": true}, settings: "agents.llm", keys: map[string]bool{"show_tools": true},
		tests: map[string]bool{"TestA": true}, documents: "`show_tools` and `inbox show`",
	}
	with := func(change func(*requirement)) requirement {
		changed := good
		change(&changed)
		return changed
	}

	for name, c := range map[string]struct {
		one   requirement
		marks []mark
		want  string
	}{
		"whole":                 {good, []mark{shown}, ""},
		"a deviation":           {with(func(r *requirement) { r.Deviation = "one" }), nil, ""},
		"no test":               {good, nil, "no test shows it"},
		"a gap":                 {with(func(r *requirement) { r.Number = 2 }), []mark{{ids: []string{"x-2"}}}, "is the 1. of its text"},
		"says nothing":          {with(func(r *requirement) { r.Says = "" }), []mark{shown}, "says what is required"},
		"no section":            {with(func(r *requirement) { r.Section = "runtime 77" }), []mark{shown}, "no heading"},
		"no such deviation":     {with(func(r *requirement) { r.Deviation = "three" }), nil, "not one row"},
		"an unclear deviation":  {with(func(r *requirement) { r.Deviation = "two" }), nil, "not one row"},
		"no such route":         {with(func(r *requirement) { r.Reached = "`POST /v1/chats`" }), []mark{shown}, "has no POST /v1/chats"},
		"no such setting":       {with(func(r *requirement) { r.Reached = "`[[agentz]]`" }), []mark{shown}, "has no [[agentz]]"},
		"a setting":             {with(func(r *requirement) { r.Reached = "setting `show_tools`, `inbox show`" }), []mark{shown}, ""},
		"no such key":           {with(func(r *requirement) { r.Reached = "settings `show_tools`, `expose_tools`" }), []mark{shown}, "has no setting expose_tools"},
		"no such word":          {with(func(r *requirement) { r.Reached = "`inbox shown`" }), []mark{shown}, "no document has inbox shown"},
		"no such test":          {good, []mark{{folder: "a", test: "TestB", place: "a_test.go:1", ids: []string{"x-1"}}}, "there is no test TestB"},
		"the mark knows it not": {good, []mark{shown, {place: "b_test.go:1", ids: []string{"x-9"}}}, `names "x-9"`},
		"the mark names twice":  {good, []mark{{place: "b_test.go:1", ids: []string{"x-1", "x-1"}}}, "twice"},
	} {
		list := requirementList{Texts: []requirementText{{Name: "x", Requirements: []requirement{c.one}}}}
		faults := append(judgeMarks(list, c.marks), judgeRequirements(list, c.marks, known)...)
		faults = slices.DeleteFunc(faults, func(fault string) bool { return strings.HasSuffix(fault, "requirements only") })
		if c.want == "" && len(faults) > 0 || c.want != "" && !strings.Contains(strings.Join(faults, "\n"), c.want) {
			t.Errorf("%s: %q, want %q", name, faults, c.want)
		}
	}
}
