package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDescriptionOfTheAPI validates the OpenAPI document with somebody else's validator, compiles a typed client of it, and
// holds all that the client and the server say to each other to the document.
func TestDescriptionOfTheAPI(t *testing.T) {
	const secret = "a secret that only the tests know"
	settings := startChatModel(t).agents()
	settings.More = "[[connectors]]\nname = \"slack\"\nsecret = \"" + secret + "\"\nagents = [\"echo\"]\n"
	s := start(t, settings)
	operator, err := os.ReadFile(filepath.Join(s.Directory, "data", "admin-token"))
	if err != nil {
		t.Fatal(err)
	}
	_, output := node(t, "openapi/check.mjs", s.URL(), lastLine(s.inbox("tokens", "create", "typed")), lastLine(s.inbox("tokens", "create", "--bridge", "relay")),
		strings.TrimSpace(string(operator)), secret, filepath.Join(t.TempDir(), "client"))
	var seen struct {
		Problems                      string
		Version, Reply, Code          string
		State, Completed, Registered  string
		Status, Answered, Relayed     string
		Paths, Held, Called, Sessions int
		Acked                         int
		Created, Deleted              bool
		Said, Models, Events          []string
		Lines, Wrong                  []string
	}
	readJSON(t, output, &seen)
	if seen.Problems != "" {
		t.Fatalf("the document is not right: %s", seen.Problems)
	}
	for _, wrong := range seen.Wrong {
		t.Error(wrong)
	}
	if seen.Version != "3.1" || seen.Paths < 40 || seen.Called < 20 {
		t.Errorf("version %s, %d paths, %d operations called", seen.Version, seen.Paths, seen.Called)
	}
	if seen.Reply != "typed hello" || strings.Join(seen.Said, "|") != "user: typed hello|assistant: typed hello" || seen.State != "completed" || seen.Code != "not_found" || seen.Held != 0 {
		t.Errorf("the client saw %+v", seen)
	}
	if seen.Completed != "typed completion" || !slices.Contains(seen.Models, "echo") {
		t.Errorf("completion %q of %q", seen.Completed, seen.Models)
	}
	if seen.Registered != "matrix" || seen.Acked != 1 || seen.Status != "completed" || !slices.Contains(seen.Events, "run_finished") || seen.Relayed != "typed connector" {
		t.Errorf("bridge and connector: %+v", seen)
	}
	if seen.Answered != "typed session" || !seen.Created || !seen.Deleted || seen.Sessions < 2 || strings.Join(seen.Lines, "|") != "user: typed session|assistant: typed session" {
		t.Errorf("sessions: %+v", seen)
	}
}
