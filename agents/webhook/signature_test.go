package webhook

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/internal/fault"
	"inbox/internal/webhooksignature"
)

// program is a webhook that knows secrets and answers 204 to whom it believes.
func program(secrets ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !webhooksignature.VerifyRotating(secrets, body, r.Header.Get(SignatureHeader), webhooksignature.Form{}) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// TestRotation goes through the guide's steps: server and program never lose sight of each other.
func TestRotation(t *testing.T) {
	before := func(o *Options) { o.Secret = "old" }
	during := func(o *Options) { o.Secret, o.PreviousSecret = "new", "old" }
	after := func(o *Options) { o.Secret = "new" }
	for name, step := range map[string]struct {
		server  func(*Options)
		program http.HandlerFunc
	}{
		"before": {before, program("old")}, "server changed": {during, program("old")}, "program changed": {during, program("new")},
		"done": {after, program("new")}, "a program with both first": {before, program("new", "old")},
	} {
		if _, err := run(t.Context(), startAgent(t, step.program, step.server), question()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, step := range map[string]struct {
		server    func(*Options)
		permanent bool
	}{"while the secret changes": {during, false}, "otherwise": {after, true}} {
		_, err := run(t.Context(), startAgent(t, program("mistyped"), step.server), question())
		got := fault.Of(err)
		if got.Permanent != step.permanent || !step.permanent && got.RetryAfter != 7*time.Second {
			t.Errorf("a refusal %s: %+v", name, got)
		}
	}
}

// TestSignatureWithoutRotation keeps programs alive that compare the whole header.
func TestSignatureWithoutRotation(t *testing.T) {
	body := []byte("body")
	if got := (Options{Secret: "s"}).signatures(body); got != webhooksignature.Sign("s", body) {
		t.Errorf("header %q", got)
	}
	want := webhooksignature.Sign("s", body) + ", " + webhooksignature.Sign("r", body)
	if got := (Options{Secret: "s", PreviousSecret: "r"}).signatures(body); got != want {
		t.Errorf("header %q, want %q", got, want)
	}
}

// signed is a line for the programs of the guide.
type signed struct {
	Secret  string `json:"secret"`
	Body    string `json:"body"`
	Header  string `json:"header"`
	verdict bool
}

func signedLines() []signed {
	body := `{"text":"olá"}`
	during := Options{Secret: "new", PreviousSecret: "old"}.signatures([]byte(body))
	return []signed{
		{"old", body, Options{Secret: "old"}.signatures([]byte(body)), true}, {"old", body, during, true}, {"new", body, during, true},
		{"other", body, during, false}, {"new", body + " ", during, false}, {"new", body, "", false},
		{"", body, webhooksignature.Sign("", []byte(body)), false}, {"new", body, "sha256=é, ,", false},
	}
}

// TestVerificationOfTheGuide runs the functions that docs/agents/webhook.md shows.
func TestVerificationOfTheGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/agents/webhook.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Python", func(t *testing.T) {
		python, err := exec.LookPath("python3")
		if err != nil {
			t.Fatal("python3 is missing: install the package python3 (apt-get install python3)")
		}
		judges(t, exec.Command(python, "-c", block(t, guide, "python")+`
import json, sys
for line in sys.stdin:
    given = json.loads(line)
    print(str(verified(given["secret"].encode(), given["body"].encode(), given["header"])).lower())
`))
	})
	t.Run("Go", func(t *testing.T) {
		directory := t.TempDir()
		source, binary := filepath.Join(directory, "main.go"), filepath.Join(directory, "verify")
		content := `package main

import ("bufio"; "crypto/hmac"; "crypto/sha256"; "encoding/hex"; "encoding/json"; "fmt"; "os"; "strings")

` + block(t, guide, "go") + `
func main() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var given struct{ Secret, Body, Header string }
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil { panic(err) }
		fmt.Println(verified([]byte(given.Secret), []byte(given.Body), given.Header))
	}
}
`
		if err := os.WriteFile(source, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, source).CombinedOutput(); err != nil {
			t.Fatalf("build the function of the guide: %v\n%s", err, output)
		}
		judges(t, exec.Command(binary))
	})
}

// block returns the one code block of the language in the section about signatures.
func block(t *testing.T, guide []byte, language string) string {
	t.Helper()
	_, section, _ := strings.Cut(string(guide), "\n## The signature\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, code, found := strings.Cut(section, "```"+language+"\n")
	code, _, ended := strings.Cut(code, "```")
	if !found || !ended {
		t.Fatalf("the guide shows no verification in %s", language)
	}
	return code
}

// judges returns the program all lines and compares its verdicts.
func judges(t *testing.T, command *exec.Cmd) {
	t.Helper()
	var input, want bytes.Buffer
	for _, line := range signedLines() {
		_ = json.NewEncoder(&input).Encode(line)
		_ = json.NewEncoder(&want).Encode(line.verdict)
	}
	command.Stdin = &input
	output, err := command.Output()
	if err != nil || string(output) != want.String() {
		t.Errorf("%v: verdicts\n%s, want\n%s", err, output, want.String())
	}
}
