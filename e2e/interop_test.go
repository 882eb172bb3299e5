package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/e2e/instance"
)

// interopFile names in the environment the file to which tests add what they ran with software of others: make interop sets it, and the
// table of docs/interop.md is written from it.
const interopFile = "INBOX_TEST_INTEROP_FILE"

// interopRun is one line of that file.
type interopRun struct {
	Peer    string `json:"peer"`
	Version string `json:"version"`
	Test    string `json:"test"`
	Result  string `json:"result"` // passed or failed
	At      string `json:"at"`     // when these tests began
}

var interop struct {
	sync.Mutex

	begun string
	told  map[interopRun]bool
}

// ranWith notes that the test runs with software of others, and how the test ends. It costs nothing without the file.
func ranWith(t *testing.T, peer string, version func(*testing.T) string) {
	t.Helper()
	file := os.Getenv(interopFile)
	if file == "" {
		return
	}
	run := interopRun{Peer: peer, Version: version(t)}
	run.Test, _, _ = strings.Cut(t.Name(), "/")
	t.Cleanup(func() {
		run.Result = "passed"
		if t.Failed() {
			run.Result = "failed"
		}
		interop.Lock()
		defer interop.Unlock()
		if interop.told == nil {
			interop.begun, interop.told = time.Now().UTC().Format(time.RFC3339), map[interopRun]bool{}
		}
		if run.At = interop.begun; interop.told[run] {
			return
		}
		interop.told[run] = true
		line, err := json.Marshal(run)
		if err != nil {
			t.Error(err)
			return
		}
		out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = out.Write(append(line, '\n'))
			_ = out.Close()
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// npmPackage returns the version of a package that is installed in a directory below e2e/peers.
func npmPackage(directory, name string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		root, err := instance.Root()
		if err != nil {
			t.Fatal(err)
		}
		var said struct{ Version string }
		content, err := os.ReadFile(filepath.Join(root, "e2e", "peers", directory, "node_modules", name, "package.json"))
		if err == nil {
			err = json.Unmarshal(content, &said)
		}
		if err != nil {
			t.Fatal(err)
		}
		return said.Version
	}
}

// debianPackage returns the version of an installed package, without that of its packaging.
func debianPackage(name string) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		output, err := exec.CommandContext(t.Context(), "dpkg-query", "-W", "-f", "${Version}", name).Output()
		if err != nil {
			return "unknown" // installed by other means
		}
		version := string(output)
		if _, behind, is := strings.Cut(version, ":"); is {
			version = behind
		}
		if cut := strings.LastIndex(version, "-"); cut > 0 {
			version = version[:cut]
		}
		return version
	}
}

// scripts of e2e/peers are written with these packages. Packages that want others of their own have a directory of their own.
var scripts = map[string]struct{ peer, npm, installed string }{
	"activitypubbot": {"activitypub.bot", "@evanp/activitypub-bot", "activitypubbot"},
	"fedify":         {"Fedify", "@fedify/fedify", ""},
	"a2a":            {"A2A SDK for JavaScript", "@a2a-js/sdk", ""},
	"openai":         {"OpenAI SDK for JavaScript", "openai", ""},
	"openapi":        {"openapi-fetch", "openapi-fetch", ""},
	"streams":        {"eventsource-parser", "eventsource-parser", ""},
}
