package e2e

import (
	"bufio"
	"bytes"
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
	"time"

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
	t.Parallel()
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
	t.Parallel()
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

const webhookSecret = "a secret that only the tests know"

// example starts an example agent and returns its URL. It ends with the test.
func example(t *testing.T, program string, arguments ...string) string {
	t.Helper()
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), "INBOX_SECRET="+webhookSecret, "LISTEN=127.0.0.1:0")
	var problems bytes.Buffer
	command.Stderr = &problems
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := children.Start(command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = await.Result(t, command.Wait, "the end of the example")
		if t.Failed() {
			t.Logf("%s %v:\n%s", program, arguments, problems.String())
		}
	})
	line := firstLine(t, output, "the example to listen")
	if line == "" {
		t.Fatalf("the example %s %v did not start\n%s", program, arguments, problems.String())
	}
	return "http://" + strings.TrimPrefix(line, "listening on ")
}

// firstLine returns the first line that a program prints; empty when it ends without one.
func firstLine(t *testing.T, output io.Reader, what string) string {
	t.Helper()
	return await.Result(t, func() string {
		line, _ := bufio.NewReader(output).ReadString('\n')
		return strings.TrimSpace(line)
	}, what)
}

func examplesDirectory(t *testing.T) string {
	t.Helper()
	root, err := instance.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "docs", "examples")
}

func goExample(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "goagent")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = filepath.Join(examplesDirectory(t), "goagent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, output)
	}
	return example(t, binary)
}

func webhookAgent(name, url, secret string) string {
	return fmt.Sprintf("[[agents]]\nname = %q\nkind = \"webhook\"\n[agents.webhook]\nurl = %q\nsecret = %q\n", name, url, secret)
}

func TestExampleAgentsAnswerBehindTheServer(t *testing.T) {
	t.Parallel()
	goAgent := goExample(t)
	pythonAgent := example(t, "/usr/bin/python3", filepath.Join(examplesDirectory(t), "pythonagent", "agent.py"))
	s := start(t, instance.Settings{Agents: webhookAgent("go", goAgent, webhookSecret) +
		webhookAgent("python", pythonAgent, webhookSecret) + webhookAgent("stranger", goAgent, "another secret of the operator")})
	token, err := s.Token(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(t *testing.T, agent string) load.Task {
		t.Helper()
		peer := load.A2APeer{URL: s.URL() + "/a2a/" + agent, Token: token, Client: &http.Client{Timeout: patience}}
		task, err := peer.Send(t.Context(), load.SendBody("message-to-"+agent, "hello", false))
		if err != nil {
			t.Fatal(err)
		}
		return task
	}

	for agent, want := range map[string]string{"go": "from Go!", "python": "from Python!"} {
		t.Run(agent, func(t *testing.T) {
			task := ask(t, agent)
			if task.Status.State != completed || !strings.Contains(texts(task), want) || !strings.Contains(texts(task), "ann@") {
				t.Errorf("the task is %s with %q; want %q for ann", task.Status.State, texts(task), want)
			}
		})
	}
	t.Run("an agent that does not know the secret", func(t *testing.T) {
		task := ask(t, "stranger")
		if task.Status.State != "TASK_STATE_FAILED" {
			t.Errorf("the task is %s; want failed", task.Status.State)
		}
		if text := texts(task); text == "" || strings.Contains(text, "127.0.0.1") || strings.Contains(text, "401") {
			t.Errorf("the peer is told %q; want a plain sentence without internals", text)
		}
	})
	t.Run("a mention", func(t *testing.T) {
		arrivals := make(chan load.Arrival, 4)
		community := newCommunity(t, 1, func(a load.Arrival) { arrivals <- a })
		mention := community.Persons[0].Mention(s.Actor("python"), "1", "hello")
		if status := do(t, delivery(t, community.Persons[0], s.Actor("python")+"/inbox", mention, load.Signature{})); status != http.StatusAccepted {
			t.Fatalf("answered %d", status)
		}
		select {
		case arrival := <-arrivals:
			if arrival.InReplyTo != mention.NoteID || !bytes.Contains(arrival.Body, []byte("from Python!")) {
				t.Errorf("the reply is %s", arrival.Body)
			}
		case <-time.After(patience):
			t.Error("no reply")
		}
	})
}
