package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/internal/await"
	"inbox/internal/children"
)

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
