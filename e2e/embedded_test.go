package e2e

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/internal/await"
	"inbox/internal/children"
)

func TestEmbeddedExampleDemandsConsentAndAnswers(t *testing.T) {
	s := newServer(t, instance.Settings{}) // its configuration and command line serve the example, too
	binary := filepath.Join(t.TempDir(), "embedded")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Dir = filepath.Join(examplesDirectory(t), "embedded")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, output)
	}
	token := s.peerToken("ann")
	program := exec.Command(binary)
	program.Env = append(os.Environ(), "INBOX_CONFIG="+s.ConfigFile())
	var problems bytes.Buffer
	program.Stderr = &problems
	output, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := children.Start(program); err != nil {
		t.Fatal(err)
	}
	if line := firstLine(t, output, "the example to listen"); !strings.HasPrefix(line, "listening on ") {
		t.Fatalf("the example says %q\n%s", line, problems.String())
	}
	peer := load.A2APeer{URL: s.URL() + "/a2a/gardener", Token: token, Client: &http.Client{Timeout: patience}}
	task, err := peer.Send(t.Context(), load.SendBody("message-1", "it is hot today", false))
	if err != nil {
		t.Fatal(err)
	}
	grant(t, findLink(t, texts(task)))
	task = awaitTask(t, peer, task.ID, completed)
	if text := texts(task); !strings.Contains(text, "The plants are watered.") {
		t.Errorf("the task says %q", text)
	}
	if err := program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := await.Result(t, program.Wait, "the end of the example"); err != nil {
		t.Errorf("the example ended with %v\n%s", err, problems.String())
	}
}
