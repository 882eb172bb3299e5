package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/internal/await"
	"inbox/internal/children"
)

// answered sends one task and returns what came back.
func answered(t *testing.T, peer load.A2APeer, text string) string {
	t.Helper()
	task, err := peer.Send(t.Context(), load.SendBody("message-"+text, text, false))
	if err != nil {
		t.Fatal(err)
	}
	return texts(awaitTask(t, peer, task.ID, completed))
}

func TestCommandAnswers(t *testing.T) {
	s := start(t, instance.Settings{Agents: fmt.Sprintf("[[agents]]\nname = \"counter\"\nkind = \"command\"\n[agents.command]\nprogram = %q\n",
		filepath.Join(examplesDirectory(t), "command", "agent.py"))})
	if text := answered(t, s.a2aPeer("counter", "ann"), "three words here"); !strings.Contains(text, "you wrote 3 words") {
		t.Errorf("the program answered %q", text)
	}
}

func TestPullingProgramAnswers(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		s := start(t, instance.Settings{Database: database, Agents: "[[agents]]\nname = \"hidden\"\nkind = \"pull\"\n"})
		token := strings.TrimSpace(lastLine(s.inbox("tokens", "create", "--agent", "hidden", "--pull", "puller")))
		program := exec.Command("/usr/bin/python3", filepath.Join(examplesDirectory(t), "pullagent", "agent.py"))
		program.Env = append(os.Environ(), "INBOX_URL="+s.URL(), "INBOX_AGENT=hidden", "INBOX_TOKEN="+token)
		if err := children.Start(program); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = program.Process.Signal(syscall.SIGTERM)
			_ = await.Result(t, program.Wait, "the end of the program")
		})
		if text := answered(t, s.a2aPeer("hidden", "ann"), "are you there"); !strings.Contains(text, "from Python!") {
			t.Errorf("the program answered %q", text)
		}
	})
}

func lastLine(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return lines[len(lines)-1]
}

func TestRemoteAgentIsReachedFromTheFediverse(t *testing.T) {
	upstream := start(t, instance.Settings{})
	community := startFediverse(t, 1)
	s := start(t, instance.Settings{Agents: fmt.Sprintf("[[agents]]\nname = \"far\"\nkind = \"remote\"\n[agents.remote]\ncard_url = %q\ntoken = %q\n",
		upstream.URL()+"/a2a/echo/.well-known/agent-card.json", upstream.peerToken("downstream"))})
	if _, reply := community.ask(s, "far", 0, "hello over there"); !strings.Contains(reply, "hello over there") {
		t.Errorf("the reply is %s", reply)
	}
}

// model is a scripted model provider that speaks chat completions, streamed.
type model struct {
	URL    string
	answer func(request modelRequest) string // the data lines of the stream, without "data: "

	mu    sync.Mutex
	asked []modelRequest
}

type modelRequest struct {
	Model    string            `json:"model"`
	Messages []json.RawMessage `json:"messages"`
	Tools    []json.RawMessage `json:"tools"`
}

func startModel(t *testing.T, answer func(modelRequest) string) *model {
	t.Helper()
	m := &model{answer: answer}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	m.URL = server.URL + "/v1"
	return m
}

func (m *model) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	var body modelRequest
	if err := json.NewDecoder(request.Body).Decode(&body); err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	m.asked = append(m.asked, body)
	m.mu.Unlock()
	writer.Header().Set("Content-Type", "text/event-stream")
	for line := range strings.SplitSeq(m.answer(body), "\n") {
		_, _ = io.WriteString(writer, "data: "+line+"\n\n")
	}
	_, _ = io.WriteString(writer, "data: [DONE]\n\n")
}

const saidHello = `{"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello "}}]}
{"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"from the model."}}]}
{"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}`

func TestModelAnswersMail(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		provider := startModel(t, func(modelRequest) string { return saidHello })
		p := startPostWith(t, database, fmt.Sprintf(
			"[[agents]]\nname = \"memory\"\nkind = \"llm\"\n[agents.llm]\nbase_url = %q\nmodel = \"scripted\"\nsystem = \"You are kind.\"\n", provider.URL))
		reply := p.ask("to-the-model@sender.test", "Good morning!")
		if text := plain(reply.Raw); !strings.Contains(text, "Hello from the model.") {
			t.Errorf("the reply is %s", text)
		}
		provider.mu.Lock()
		defer provider.mu.Unlock()
		if len(provider.asked) != 1 || provider.asked[0].Model != "scripted" {
			t.Fatalf("the model was asked %d times", len(provider.asked))
		}
		var prompt strings.Builder
		for _, message := range provider.asked[0].Messages {
			prompt.Write(message)
		}
		for _, want := range []string{"You are kind.", "Good morning!", "@ann@sender.test"} {
			if !strings.Contains(prompt.String(), want) {
				t.Errorf("the model was not told %q:\n%s", want, prompt.String())
			}
		}
	})
}
