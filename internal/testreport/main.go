// Command testreport reads what go test -json writes and prints what a developer needs of it: one line for each package, the output
// of what failed, and at the end the slowest tests, how many recorded cases passed, and every test that was skipped. It exits with 1
// when something failed.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// shown is how many of the slowest tests are named.
const shown = 10

func main() {
	failed, err := report(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

// event is one line of go test -json (go doc test2json).
type event struct {
	Action     string  `json:"Action"`
	Package    string  `json:"Package"`
	ImportPath string  `json:"ImportPath"` // of a build, in the place of Package
	Test       string  `json:"Test"`
	Output     string  `json:"Output"`
	Elapsed    float64 `json:"Elapsed"` // seconds
}

// name is a test, or a package where the test is empty.
type name struct{ pkg, test string }

// timed is a test that ran.
type timed struct {
	name
	seconds float64
}

// cases is the line in which a test of recorded cases says how many of them passed; go test hides it where everything is well.
var cases = regexp.MustCompile(`^ *[a-z_]*_test\.go:[0-9]*: (.* passed, .*)`)

func recorded(e event) string {
	if !strings.Contains(e.Test, "Recorded") && !strings.Contains(e.Test, "Fixtures") {
		return ""
	}
	if found := cases.FindStringSubmatch(e.Output); found != nil {
		return found[1]
	}
	return ""
}

func report(events io.Reader, out io.Writer) (failed bool, err error) {
	output := map[name]*strings.Builder{} // of what still runs, and of builds
	var slowest []timed
	var skipped []name
	var counts []string // of recorded cases

	lines := bufio.NewScanner(events)
	lines.Buffer(make([]byte, 64<<10), 64<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(out, lines.Text()) // not from a test: the go command itself
			continue
		}

		key := name{cmp.Or(e.Package, e.ImportPath), e.Test}
		switch e.Action {
		case "output", "build-output":
			if output[key] == nil {
				output[key] = &strings.Builder{}
			}
			output[key].WriteString(e.Output)
			if count := recorded(e); count != "" {
				counts = append(counts, count)
			}
		case "build-fail":
			failed = true
			fmt.Fprint(out, output[key])
		case "pass", "fail", "skip":
			if e.Action == "fail" {
				failed = true
				fmt.Fprint(out, cmp.Or(output[key], &strings.Builder{}))
			}
			delete(output, key)
			switch {
			case e.Test == "":
				fmt.Fprintf(out, "%-4s  %-50s %7.1f s\n", map[string]string{"pass": "ok", "fail": "FAIL", "skip": "-"}[e.Action], e.Package, e.Elapsed)
			case e.Action == "skip":
				skipped = append(skipped, key)
			case !strings.Contains(e.Test, "/"):
				slowest = append(slowest, timed{key, e.Elapsed})
			}
		}
	}

	slices.SortFunc(slowest, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	fmt.Fprintf(out, "\n%d tests; the slowest:\n", len(slowest))
	for _, one := range slowest[:min(shown, len(slowest))] {
		fmt.Fprintf(out, "%7.1f s  %s %s\n", one.seconds, one.pkg, one.test)
	}
	for _, count := range counts {
		fmt.Fprintln(out, "recorded cases:", count)
	}
	for _, one := range skipped {
		fmt.Fprintln(out, "skipped:", one.pkg, one.test)
	}
	return failed, lines.Err()
}
