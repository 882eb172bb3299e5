package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"inbox/internal/config"
	"inbox/internal/reference"
)

const documents = "../../docs"

// The kinds of names, and the page of each below docs.
const (
	kindSetting  = "setting"
	kindCommand  = "command"
	kindMetric   = "metric"
	kindCode     = "code"
	kindEvent    = "event"
	kindState    = "state"
	kindEvidence = "method"
)

var pageOf = map[string]string{
	kindSetting: "configuration.md", kindCommand: "reference/commands.md", kindMetric: "metrics.md", kindCode: "reference/errors.md",
	kindEvent: "reference/events.md", kindState: "reference/states.md", kindEvidence: "reference/evidence.md",
}

// kindOfColumn are the titles of the first column of tables whose rows explain names of a kind.
var kindOfColumn = map[string]string{
	"key": kindSetting, "setting": kindSetting, "command": kindCommand, "metric": kindMetric, "code": kindCode, "error": kindCode,
	"event": kindEvent, "row": kindEvent, "state": kindState, "status": kindState, "method": kindEvidence,
}

// name is what the program reads or says. States are unique in their group alone.
type name struct{ kind, group, text string }

// namesOfTheProgram are taken from what the program itself uses: the structure of the settings, the commands, the registry of metrics and the
// tables of internal/reference, which a test there compares with the constants of the code.
func namesOfTheProgram(t *testing.T) map[name]bool {
	t.Helper()
	names := map[name]bool{}
	settings(reflect.TypeFor[config.Config](), "", map[reflect.Type]bool{}, func(key string) { names[name{kindSetting, "", key}] = true })

	var walk func(*cobra.Command)
	walk = func(command *cobra.Command) {
		for _, inner := range command.Commands() {
			if inner.Hidden || inner.Name() == "help" || inner.Name() == "completion" {
				continue
			}
			names[name{kindCommand, "", inner.CommandPath()}] = true
			walk(inner)
		}
	}
	walk(newRoot())

	descriptions := make(chan *prometheus.Desc, 1<<12)
	prometheus.DefaultRegisterer.(*prometheus.Registry).Describe(descriptions)
	close(descriptions)
	for description := range descriptions {
		if match := regexp.MustCompile(`fqName: "(inbox_[a-z0-9_]+)"`).FindStringSubmatch(description.String()); match != nil {
			names[name{kindMetric, "", match[1]}] = true
		}
	}

	kinds := map[string]string{reference.Errors: kindCode, reference.Events: kindEvent, reference.States: kindState, reference.Evidence: kindEvidence}
	for _, page := range reference.All() {
		for _, group := range page.Groups {
			for _, entry := range group.Entries {
				one := name{kinds[page.Name], "", entry.Name}
				if one.kind == kindState {
					one.group = group.Title
				}
				if names[one] {
					t.Errorf("internal/reference has %v twice", one)
				}
				names[one] = true
			}
		}
	}

	found := map[string]int{}
	for one := range names {
		found[one.kind]++
	}
	for kind := range pageOf {
		if found[kind] < 10 {
			t.Errorf("the program has only %d names of the kind %s: what reads them is wrong", found[kind], kind)
		}
	}
	return names
}

// settings calls visit with every key below a table. A table that two others share is explained where it comes first.
func settings(table reflect.Type, path string, seen map[reflect.Type]bool, visit func(string)) {
	if seen[table] {
		return
	}
	seen[table] = true
	var inner []func()
	for field := range table.Fields() {
		key, kind := field.Tag.Get("toml"), field.Type
		if key == "" || key == "-" {
			continue
		}
		if path != "" {
			key = path + "." + key
		}
		if kind.Kind() == reflect.Slice {
			kind = kind.Elem()
		}
		if kind.Kind() == reflect.Struct && kind.PkgPath() == table.PkgPath() {
			inner = append(inner, func() { settings(kind, key, seen, visit) })
		} else {
			visit(key)
		}
	}
	for _, visitTable := range inner {
		visitTable()
	}
}

// row is an entry of a document: a heading or the first cell of a row of a table.
type row struct {
	name

	page    string
	heading bool
}

var (
	firstCell = regexp.MustCompile("^\\| *(?:<a id=\"[^\"]*\"></a>)?((?:`[^`]+`(?:, | or )?)+) *\\|")
	codeWord  = regexp.MustCompile("`([^`]+)`")
)

// rowsOf are the entries of a document in which names of the program may be explained.
func rowsOf(page, text string) (found []row) {
	fence, column, section := false, "", ""
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fence = !fence
		}
		if fence {
			continue
		}
		if title, is := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); is && strings.HasPrefix(line, "#") {
			section, column = strings.TrimSpace(title), ""
			if word := codeWord.FindStringSubmatch(section); word != nil && word[0] == section {
				found = append(found, row{name{"", "", word[1]}, page, true})
			}
		}
		if i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|--") {
			column = strings.ToLower(strings.TrimSpace(strings.Split(line+"||", "|")[1]))
			continue
		}
		if match := firstCell.FindStringSubmatch(line); match != nil {
			for _, word := range codeWord.FindAllStringSubmatch(match[1], -1) {
				one := name{kindOfColumn[column], "", word[1]}
				if one.kind == kindState {
					one.group = section
				}
				found = append(found, row{one, page, false})
			}
		}
	}
	return found
}

// explains reports whether a row of another page than that of the reference is an entry of the name. There a key may be without its table, a
// method without its frame, a command with its arguments, and a table of any title may have a metric, a method or an event with a dot.
func (r row) explains(one name) bool {
	text := r.text
	switch {
	case r.kind != "" && r.kind != one.kind, one.kind == kindCode && r.kind == "":
		return false
	case one.kind == kindSetting:
		return (r.kind == kindSetting || r.heading) && (text == one.text || r.kind == kindSetting && strings.HasSuffix(one.text, "."+text))
	case one.kind == kindCommand:
		return text == one.text || strings.HasPrefix(text, one.text+" ") && regexp.MustCompile(`^[A-Z\[-]`).MatchString(strings.TrimPrefix(text, one.text+" "))
	case one.kind == kindEvidence:
		return text == one.text || r.kind == kindEvidence && one.text == "urn:mentionable:auth:"+text+":v0.1"
	case one.kind == kindState:
		return r.kind == kindState && text == one.text
	case one.kind == kindEvent:
		return text == one.text && (r.kind == kindEvent || strings.Contains(text, "."))
	}
	return text == one.text
}

// misplaced returns what is wrong with where names are explained: each is on the page of its kind once, and on no other page.
func misplaced(names map[name]bool, rows []row) (wrong []string) {
	entries := map[name]int{}
	for _, one := range rows {
		for kind, page := range pageOf {
			fits := one.kind == kind || kind == kindCommand && one.heading
			if one.page != page || !fits {
				continue
			}
			written := one.name
			written.kind = kind
			if entries[written]++; entries[written] > 1 {
				wrong = append(wrong, page+" has two entries of "+written.text)
			}
			if !names[written] {
				wrong = append(wrong, page+" has an entry of the "+kind+" "+written.text+", which the program does not have")
			}
		}
	}
	for one := range names {
		page := pageOf[one.kind]
		if entries[one] == 0 {
			wrong = append(wrong, page+" has no entry of the "+one.kind+" "+one.text)
		}
		for _, elsewhere := range rows {
			if elsewhere.page != page && elsewhere.explains(one) {
				wrong = append(wrong, elsewhere.page+": "+elsewhere.text+" is explained there and in "+page)
			}
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong)
}

// TestEveryNameIsOnOnePage: each setting, command, metric, event, state, method of proof and code of an error has one entry, on the page of the
// reference that is for its kind. The contracts define names for implementations elsewhere, and decisions are records.
func TestEveryNameIsOnOnePage(t *testing.T) {
	t.Parallel()
	var rows []row
	err := filepath.WalkDir(documents, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		page, err := filepath.Rel(documents, path)
		if err != nil {
			return err
		}
		switch page = filepath.ToSlash(page); {
		case page == "contract", page == "decisions":
			return fs.SkipDir
		case filepath.Ext(page) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		rows = append(rows, rowsOf(page, string(text))...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range misplaced(namesOfTheProgram(t), rows) {
		t.Error(wrong)
	}
}

// TestMisplacedNamesAreFound: a missing entry, a doubled one and one of another page are found.
func TestMisplacedNamesAreFound(t *testing.T) {
	t.Parallel()
	names := map[name]bool{{kindSetting, "", "http.listen"}: true, {kindMetric, "", "inbox_a_total"}: true, {kindState, "Turns", "held"}: true, {kindCommand, "", "inbox show"}: true}
	pages := map[string]string{
		"configuration.md": "| key | default |\n|---|---|\n| `http.listen` | – |\n", "metrics.md": "| metric | type |\n|---|---|\n| `inbox_a_total` | counter |\n",
		"reference/states.md": "## Turns\n\n| state | meaning |\n|---|---|\n| <a id=\"x\"></a>`held` | It waits. |\n", "reference/commands.md": "## `inbox show`\n",
	}
	for what, change := range map[string]struct{ page, more string }{
		"": {"trust.md", "`held` and `inbox show`\n\n| you see | do |\n|---|---|\n| `held` | wait |\n```text\n| `inbox_a_total` |\n```\n"},
		"configuration.md has two entries of http.listen":                                     {"configuration.md", "| `http.listen` | – |\n"},
		"metrics.md has an entry of the metric inbox_b, which the program does not have":      {"metrics.md", "| `inbox_b` | gauge |\n"},
		"tasks.md: listen is explained there and in configuration.md":                         {"tasks.md", "| key | meaning |\n|---|---|\n| `other`, `listen` | – |\n"},
		"tasks.md: inbox_a_total is explained there and in metrics.md":                        {"tasks.md", "| what | meaning |\n|---|---|\n| `inbox_a_total` | – |\n"},
		"tasks.md: inbox show ID is explained there and in reference/commands.md":             {"tasks.md", "### `inbox show ID`\n"},
		"tasks.md: held is explained there and in reference/states.md":                        {"tasks.md", "| status | meaning |\n|---|---|\n| `held` | – |\n"},
		"reference/states.md has an entry of the state gone, which the program does not have": {"reference/states.md", "| `gone` | – |\n"},
	} {
		var rows []row
		for page, text := range pages {
			if page == change.page {
				text += change.more
			}
			rows = append(rows, rowsOf(page, text)...)
		}
		if pages[change.page] == "" {
			rows = append(rows, rowsOf(change.page, change.more)...)
		}
		if wrong := strings.Join(misplaced(names, rows), "\n"); wrong != what {
			t.Errorf("got %q, want %q", wrong, what)
		}
	}
	delete(pages, "metrics.md")
	if wrong := misplaced(names, rowsOf("configuration.md", pages["configuration.md"])); len(wrong) != 3 || wrong[0] != "metrics.md has no entry of the metric inbox_a_total" {
		t.Errorf("without three pages: %q", wrong)
	}
}
