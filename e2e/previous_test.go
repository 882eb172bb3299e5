package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"inbox/e2e/instance"
)

// previousRelease builds the program of the commit in testdata/previous-release. That takes about a minute on two idle cores, so the program is kept
// in the user's cache directory.
func previousRelease(t *testing.T) (binary string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "previous-release"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	commit := lines[len(lines)-1]
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatalf("there is no directory for the program of the previous release; set HOME or XDG_CACHE_HOME: %v", err)
	}
	binary = filepath.Join(cache, "inbox-previous-release", commit)
	if _, err := os.Stat(binary); err == nil {
		return binary
	}

	root, err := instance.Root()
	if err != nil {
		t.Fatal(err)
	}
	git := func(arguments ...string) error {
		command := exec.CommandContext(t.Context(), "git", arguments...)
		command.Dir = root
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w\n%s", strings.Join(arguments, " "), err, output)
		}
		return nil
	}
	if missing := git("cat-file", "-e", commit+"^{commit}"); missing != nil { // a shallow clone has only the newest commits
		if err := git("fetch", "--depth=1", "origin", commit); err != nil {
			t.Fatalf("the previous release is not in this clone; get it with: git fetch --depth=1 origin %s\n%v\n%v", commit, missing, err)
		}
	}

	directory := t.TempDir()
	sources := filepath.Join(directory, "sources")
	if err := os.Mkdir(sources, 0o700); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(directory, "sources.tar")
	if err := git("archive", "--output", archive, commit); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), "tar", "-xf", archive, "-C", sources).CombinedOutput(); err != nil {
		t.Fatalf("unpack the previous release: %v\n%s", err, output)
	}

	if err := os.MkdirAll(filepath.Dir(binary), 0o700); err != nil {
		t.Fatal(err)
	}
	unfinished := fmt.Sprintf("%s.%d", binary, os.Getpid())
	// At low priority and one package at a time: other tests run beside it.
	build := exec.CommandContext(t.Context(), "nice", "-n", "19", "go", "build", "-p", "1", "-o", unfinished, "./cmd/inbox")
	build.Dir, build.Env = sources, append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the previous release: %v\n%s", err, output)
	}
	if err := os.Rename(unfinished, binary); err != nil {
		t.Fatal(err)
	}
	return binary
}

// missingInSchema are words of PostgreSQL about tables and columns that a program expects and that are not there, or no longer.
var missingInSchema = regexp.MustCompile(`SQLSTATE (42\w{3}|23502)|does not exist|no such (table|column)`)

// TestPreviousReleaseRunsBesideThisOne: two nodes of the previous release are upgraded one after the other under load on mail, fediverse and A2A
// at both. The first one migrates the database while the other still runs the previous release, and both work side by side. Each message
// has one answer, no agent is asked twice, and neither release misses anything in the schema.
func TestPreviousReleaseRunsBesideThisOne(t *testing.T) {
	previous := previousRelease(t)
	var nodes []*server
	w := newStormAt(t, emptyPostgres(t), "", "", func(settings instance.Settings) []*server {
		for range 2 {
			node := newServer(t, settings)
			node.Binary = previous
			node.start()
			t.Cleanup(func() {
				if node.Alive() {
					node.stop()
				}
				if t.Failed() {
					t.Logf("log of a node:\n%s", tail(node.Log(), 16<<10))
				}
			})
			nodes = append(nodes, node)
			settings.Public, settings.HTTP, settings.SMTP = node.Settings.HTTP, "", ""
		}
		return nodes
	})
	this, err := built()
	if err != nil {
		t.Fatal(err)
	}

	w.begin(30)
	w.progress()
	for _, node := range []*server{nodes[1], nodes[0]} {
		node.stop()
		node.Binary = this
		node.start()
		for range 3 { // after the first: side by side with the previous release
			w.progress()
		}
	}
	w.finish()
	w.judge()

	for number, node := range nodes {
		for line := range strings.Lines(node.Log()) {
			if missingInSchema.MatchString(line) {
				t.Errorf("node %d misses something in the schema: %s", number, line)
			}
		}
	}
	for what, query := range map[string]string{
		"turns that ran more than once":            `SELECT id FROM turns WHERE attempt > 1`,
		"turns without an answer":                  `SELECT id FROM turns WHERE state <> 'answered'`,
		"deliveries that are not made":             `SELECT id FROM deliveries WHERE state <> 'delivered'`,
		"messages that began again (the timeline)": `SELECT turn_id FROM events WHERE kind = 'turn.restarted'`,
	} {
		found, err := w.s.Column(context.WithoutCancel(t.Context()), query)
		if err != nil || len(found) > 0 {
			t.Errorf("%s: %d, such as %v, %v", what, len(found), found[:min(3, len(found))], err)
		}
	}
}
