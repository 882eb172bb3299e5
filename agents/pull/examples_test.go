package pull

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/internal/await"
	"inbox/internal/children"
	"inbox/normalized"
)

// TestExamples runs the programs that the documentation shows against a server.
func TestExamples(t *testing.T) {
	for name, example := range map[string]struct {
		program func(*testing.T) []string
		answer  string
	}{
		"Go":     {goExample, "Hello *@alice@peer.example* from Go!"},
		"Python": {pythonExample, "Hello *@alice@peer.example* from Python!"},
	} {
		t.Run(name, func(t *testing.T) {
			command := example.program(t)
			start := func(t *testing.T) agents.Agent {
				n := newNode(t, nil, quick)
				startExample(t, n.listen(t), command)
				return n.agent
			}
			t.Run("says what the guide says", func(t *testing.T) {
				got := collect(t.Context(), start(t), question())
				if got.err != nil {
					t.Fatal(got.err)
				}
				if want := normalized.Markdown(example.answer); !got.response.Parts[0].Equal(want) {
					t.Errorf("answer = %+v", got.response.Parts)
				}
			})
			agenttest.Suite{New: start}.Run(t)
		})
	}
}

func goExample(t *testing.T) []string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "pullagent")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "inbox/docs/examples/pullagent")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the Go example: %v\n%s", err, output)
	}
	return []string{binary}
}

func pythonExample(t *testing.T) []string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("python3 is missing: install the package python3 (apt-get install python3)")
	}
	return []string{python, "../../docs/examples/pullagent/agent.py"}
}

// startExample runs the program until the end of the test.
func startExample(t *testing.T, url string, command []string) {
	t.Helper()
	program := exec.Command(command[0], command[1:]...)
	program.Env = append(os.Environ(), "INBOX_URL="+url, "INBOX_AGENT=helper", "INBOX_TOKEN="+testToken)
	var complaints bytes.Buffer
	program.Stdout, program.Stderr = &complaints, &complaints
	if err := children.Start(program); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = program.Process.Kill()
		_ = await.Result(t, program.Wait, "the end of the example") // its error is the kill
		if t.Failed() {
			t.Logf("the example said: %s", complaints.String())
		}
	})
}

// TestGuide sends what the guide shows.
func TestGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/agents/pull.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(guide), "```")
	shown := map[string]int{}
	for i := 1; i < len(blocks); i += 2 {
		language, body, _ := strings.Cut(blocks[i], "\n")
		action, _, _ := strings.Cut(strings.TrimPrefix(language, "json "), " ")
		if !strings.HasPrefix(language, "json ") {
			continue
		}
		shown[action]++
		bubble(t, Settings{}, func(t *testing.T, n *node) {
			done := n.run(t.Context(), question())
			turn := n.take(t)
			n.want(t, 200, turn.path(action), body)
			if action == "deltas" {
				n.want(t, 200, turn.path("answer"), "")
			}
			if got := await.Receive(t, done, "the end of the turn"); (got.err != nil) != (action == "fail") {
				t.Errorf("%v after\n%s", got.err, body)
			}
		})
	}
	if shown["answer"] != 2 || shown["deltas"] != 1 || shown["fail"] != 2 {
		t.Errorf("the guide shows %v", shown)
	}
}
