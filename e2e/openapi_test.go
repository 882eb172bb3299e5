package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDescriptionOfTheAPI validates the OpenAPI document with somebody else's validator and compiles a typed client of it.
func TestDescriptionOfTheAPI(t *testing.T) {
	s := start(t, startChatModel(t).agents())
	operator, err := os.ReadFile(filepath.Join(s.Directory, "data", "admin-token"))
	if err != nil {
		t.Fatal(err)
	}
	_, output := node(t, "openapi/check.mjs", s.URL(), lastLine(s.inbox("tokens", "create", "typed")), strings.TrimSpace(string(operator)), filepath.Join(t.TempDir(), "client"))
	var seen struct {
		Problems             string
		Version, Reply, Code string
		State                string
		Paths, Held          int
		Said                 []string
	}
	readJSON(t, output, &seen)
	if seen.Problems != "" {
		t.Fatalf("the document is not right: %s", seen.Problems)
	}
	if seen.Version != "3.1" || seen.Paths < 40 {
		t.Errorf("version %s, %d paths", seen.Version, seen.Paths)
	}
	if seen.Reply != "typed hello" || strings.Join(seen.Said, "|") != "user: typed hello|assistant: typed hello" || seen.State != "completed" || seen.Code != "not_found" || seen.Held != 0 {
		t.Errorf("the client saw %+v", seen)
	}
}
