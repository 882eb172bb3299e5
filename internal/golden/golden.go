// Package golden compares what a test got with a file in testdata, and writes the file anew when the test runs with -update. It is
// for tests only.
package golden

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"

	"github.com/google/go-cmp/cmp"
)

// Update is set by -update: golden files are written anew.
var Update = flag.Bool("update", false, "write the golden files again")

// TB is the part of testing.TB that is needed here. It is declared anew so that no program is linked with package testing.
type TB interface {
	Helper()
	Errorf(format string, arguments ...any)
	Fatal(arguments ...any)
}

// Compare compares with the file of that name below testdata.
func Compare(t TB, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *Update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; -update writes it again):\n%s", path, diff)
	}
}

// Indented returns a JSON text with one member a line.
func Indented(t TB, body []byte) []byte {
	t.Helper()
	var indented bytes.Buffer
	if err := json.Indent(&indented, body, "", "  "); err != nil {
		t.Fatal(err)
	}
	return indented.Bytes()
}
