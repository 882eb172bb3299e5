// Package fixturetest runs recorded cases of the agent runtime against our rooms: it reads
// agents/testdata/agents-api/<kind>.json (or the same file in the directory that AGENTS_API_FIXTURES names), calls the
// room once per case and compares by the rules in the README beside the files. Cases with a quirk are counted apart and
// fail nothing. It is for tests only and knows nothing about the kinds themselves.
package fixturetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"inbox/agents/runtime/value"
)

// Case is one recorded case. Values are of the types that envelope.Decode returns.
type Case struct {
	Name     string
	Op       string // "" where the kind has only one operation
	Input    any
	Text     []byte         // the input as it was written, for rooms where the order of members matters
	Expected map[string]any // {ok} or {error}, for some kinds with or instead of other members
	Quirk    string         // not empty: an artefact of the recorded language, reported apart
}

// Object returns the input as an object, and an empty one if it is none.
func (c Case) Object() map[string]any { return value.Assoc(c.Input) }

// recorded are the limits of the records, which are ours to trust.
var recorded = value.Limits{Bytes: 64 << 20, Depth: 1000}

// Coded is what an error needs to be compared with a recorded one. Without it the code is "invalid_argument".
type Coded interface {
	error
	ErrorCode() string
}

// ErrorValue writes an error in the form of the records: {code, message, path?, fields?}. Rooms whose records hold
// errors inside of values use it themselves.
func ErrorValue(err error) map[string]any {
	value := map[string]any{"code": "invalid_argument", "message": err.Error()}
	coded, is := errors.AsType[Coded](err)
	if !is {
		return value
	}

	value["code"] = coded.ErrorCode()
	if path, has := member(coded, "Path").(string); has && path != "" {
		value["path"] = path
	}
	if fields, has := member(coded, "Fields").([]string); has && len(fields) > 0 {
		value["fields"] = fields
	}
	return value
}

// member reads a field of an error of the contract: those that name a member have Path, those that list several have Fields.
func member(err error, name string) any {
	record := reflect.Indirect(reflect.ValueOf(err))
	if record.Kind() != reflect.Struct {
		return nil
	}
	field := record.FieldByName(name)
	if !field.IsValid() {
		return nil
	}
	return field.Interface()
}

// Outcome writes what an operation gave in the form of the records: {ok: value} or {error: …}.
func Outcome(value any, err error) map[string]any {
	if err != nil {
		return map[string]any{"error": ErrorValue(err)}
	}
	return map[string]any{"ok": value}
}

// Run calls run for every case of the kind and compares. Where a record is {ok} or {error} alone, run returns the value
// or the error; where it has other members, run returns the whole object (made with Outcome, for example) and no error.
func Run(t *testing.T, kind string, run func(Case) (any, error)) {
	t.Helper()
	cases := Load(t, kind)
	var passed, failed, quirksPassed, quirks, texts int
	for _, c := range cases {
		differences, sameText := check(c, run)
		switch {
		case c.Quirk != "":
			quirks++
			if len(differences) == 0 {
				quirksPassed++
				continue
			}
			t.Logf("%s: quirk %q (%s) differs: %s", kind, c.Name, c.Quirk, strings.Join(differences, "; "))
		case len(differences) > 0:
			failed++
			t.Errorf("%s: %s (op %q):\n\t%s", kind, c.Name, c.Op, strings.Join(differences, "\n\t"))
		default:
			passed++
			if !sameText {
				texts++
			}
		}
	}

	t.Logf("%s: %d passed, %d failed, %d of %d quirks passed; %d error texts differ", kind, passed, failed, quirksPassed, quirks, texts)
}

// check runs one case. A panic is a difference, so that one defect hides no other.
func check(c Case, run func(Case) (any, error)) (differences []string, sameText bool) {
	defer func() {
		if reason := recover(); reason != nil {
			differences = []string{fmt.Sprintf("panic: %v", reason)}
		}
	}()

	given, err := run(Case{Name: c.Name, Op: c.Op, Input: value.Clone(c.Input), Text: c.Text, Expected: c.Expected, Quirk: c.Quirk})
	var actual any
	switch {
	case !alone(c.Expected) && err == nil:
		actual = given
	default:
		actual = Outcome(given, err)
	}

	want, is := failure(c.Expected)
	return Compare(c.Expected, actual), !is || err == nil || want["message"] == ErrorValue(err)["message"]
}

func alone(expected map[string]any) bool {
	_, ok := expected["ok"]
	_, failed := expected["error"]
	return len(expected) == 1 && (ok || failed)
}

// Load reads the cases of one kind. It fails the test if they are missing or empty.
func Load(t *testing.T, kind string) []Case {
	t.Helper()
	path := filepath.Join(directory(t), kind+".json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("recorded cases of kind %s are missing: %v", kind, err)
	}

	var document struct {
		Count *int              `json:"count"`
		Cases []json.RawMessage `json:"cases"`
	}

	if err := json.Unmarshal(data, &document); err != nil || len(document.Cases) == 0 {
		t.Fatalf("%s holds no cases: %v", path, err)
	}

	if document.Count != nil && *document.Count != len(document.Cases) {
		t.Errorf("%s: count says %d, the file has %d cases", path, *document.Count, len(document.Cases))
	}

	cases := make([]Case, 0, len(document.Cases))
	for i, text := range document.Cases {
		c, err := read(text)
		if err != nil {
			t.Fatalf("%s: case %d: %v", path, i, err)
		}
		cases = append(cases, c)
	}

	return cases
}

func read(text json.RawMessage) (Case, error) {
	given, err := value.Decode(text, recorded)
	if err != nil {
		return Case{}, err
	}

	var raw struct {
		Input json.RawMessage `json:"input"`
	}

	if err := json.Unmarshal(text, &raw); err != nil {
		return Case{}, err
	}

	row := value.Assoc(given)
	return Case{
		Name: value.Text(row["name"]), Op: value.Text(row["op"]), Input: row["input"], Text: raw.Input,
		Expected: value.Assoc(row["expected"]), Quirk: value.Text(row["quirk"]),
	}, nil
}

// directory finds the records: the variable, else the folder below the module's root.
func directory(t *testing.T) string {
	t.Helper()
	if named := os.Getenv("AGENTS_API_FIXTURES"); named != "" {
		return named
	}

	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}

	for folder := here; ; folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return filepath.Join(folder, "agents", "testdata", "agents-api")
		}
		if folder == filepath.Dir(folder) {
			t.Fatalf("no go.mod above %s: set AGENTS_API_FIXTURES to the directory of the recorded cases", here)
		}
	}
}
