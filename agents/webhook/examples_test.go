package webhook

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/internal/await"
	"inbox/internal/children"
	"inbox/internal/webhooksignature"
	"inbox/normalized"
)

// TestExamples runs the agents that the documentation shows.
func TestExamples(t *testing.T) {
	for name, example := range map[string]struct {
		command func(*testing.T) *exec.Cmd
		answer  string
	}{
		"Go":     {goExample, "Hello *@alice@peer.example* from Go!"},
		"Python": {pythonExample, "Hello *@alice@peer.example* from Python!"},
	} {
		t.Run(name, func(t *testing.T) {
			url := startExample(t, example.command(t))
			t.Run("answers", func(t *testing.T) {
				deltas, err := run(t.Context(), newAgent(t, url, nil), question())
				if err != nil {
					t.Fatal(err)
				}
				if got := folded(t, deltas).Parts[0]; !got.Equal(normalized.Markdown(example.answer)) {
					t.Errorf("answer = %+v", got)
				}
			})
			t.Run("lets its secret be changed", func(t *testing.T) {
				for _, change := range []func(*Options){
					func(o *Options) { o.Secret, o.PreviousSecret = "the next secret", testSecret },
					func(o *Options) { o.PreviousSecret = "the secret of before" },
				} {
					if _, err := run(t.Context(), newAgent(t, url, change), question()); err != nil {
						t.Error(err)
					}
				}
			})
			t.Run("refuses other senders", func(t *testing.T) { refusesOthers(t, url) })
			t.Run("conforms", func(t *testing.T) {
				agenttest.Suite{New: func(t *testing.T) agents.Agent { return newAgent(t, url, nil) }}.Run(t)
			})
		})
	}
}

func refusesOthers(t *testing.T, url string) {
	body := []byte(`{"version":1,"turn":{"id":"1","attempt":1,"agent":"x"},"message":{"sender":{"address":"@a@b"}}}`)
	for name, header := range map[string]string{
		"none": "", "other key": webhooksignature.Sign("another", body), "other body": webhooksignature.Sign(testSecret, append(body, ' ')), "empty key": webhooksignature.Sign("", body), "not ASCII": "sha256=\u00e9",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set(SignatureHeader, header)
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: status %d, want 401", name, response.StatusCode)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func goExample(t *testing.T) *exec.Cmd {
	binary := filepath.Join(t.TempDir(), "goagent")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "inbox/docs/examples/goagent")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the Go example: %v\n%s", err, output)
	}
	return exec.Command(binary)
}

func pythonExample(t *testing.T) *exec.Cmd {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("python3 is missing: install the package python3 (apt-get install python3)")
	}
	return exec.Command(python, "../../docs/examples/pythonagent/agent.py")
}

// startExample runs the program until the end of the test and returns the address that it prints first.
func startExample(t *testing.T, program *exec.Cmd) (url string) {
	t.Helper()
	program.Env = append(os.Environ(), "INBOX_SECRET="+testSecret, "LISTEN=127.0.0.1:0")
	var complaints bytes.Buffer
	program.Stderr = &complaints
	output, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := children.Start(program); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = program.Process.Kill()
		_ = await.Result(t, func() error {
			_, _ = io.Copy(io.Discard, output)
			return program.Wait()
		}, "the end of the example") // its error is the kill
		if t.Failed() {
			t.Logf("the example said: %s", complaints.String())
		}
	})
	return "http://" + firstAddress(t, output)
}

func firstAddress(t *testing.T, output io.Reader) string {
	t.Helper()
	return await.Result(t, func() string {
		line, _ := bufio.NewReader(output).ReadString('\n')
		return strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
	}, "the example to say where it listens")
}

// TestGuide returns the answers that the guide shows to the agent.
func TestGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/agents/webhook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, answers, _ := strings.Cut(string(guide), "\n## The answer\n")
	answers, _, _ = strings.Cut(answers, "\n## ")
	blocks := strings.Split(answers, "```")
	parts := []int{1, 2, 1, 1, 1, 1} // or questions; the second answer has a text and a file
	shown := 0
	for i := 1; i < len(blocks); i += 2 {
		language, body, _ := strings.Cut(blocks[i], "\n")
		contentType := map[string]string{"json": "application/json", "": "text/event-stream"}[language]
		agent := startAgent(t, answering(http.StatusOK, contentType, body), nil)
		deltas, err := run(t.Context(), agent, question())
		if err != nil {
			t.Errorf("%v\n%s", err, body)
			continue
		}
		if got := folded(t, deltas); shown < len(parts) && len(got.Parts)+len(got.Dispatch) != parts[shown] {
			t.Errorf("want %d parts or questions of\n%s", parts[shown], body)
		}
		shown++
	}
	if shown != len(parts) {
		t.Errorf("%d answers in the guide, want %d", shown, len(parts))
	}
}
