package e2e

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/internal/children"
)

// demoLimit is what a newcomer is asked to wait at most.
const demoLimit = 10 * time.Second

func TestDemoShowsThreeVerifiedConversations(t *testing.T) {
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	directory := t.TempDir()
	command := exec.CommandContext(ctx, binary, "demo")
	command.Dir = directory
	started := time.Now()
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("demo: %v\n%s", err, output)
	}
	if elapsed := time.Since(started); elapsed > demoLimit {
		t.Errorf("demo took %s; want less than %s", elapsed, demoLimit)
	}
	for _, want := range []string{"Fediverse", "Email", "A2A", "@echo@"} {
		if !bytes.Contains(output, []byte(want)) {
			t.Errorf("demo does not tell of %q:\n%s", want, output)
		}
	}
	if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
		t.Errorf("demo left %v behind (%v)", left, err)
	}
}

// TestServeWithoutConfiguration is `make run` on a fresh machine, on free ports.
func TestServeWithoutConfiguration(t *testing.T) {
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	address, err := instance.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	command := exec.Command(binary, "serve")
	command.Dir = directory
	command.Env = append(os.Environ(), "INBOX_HTTP_LISTEN="+address, "INBOX_SMTP_LISTEN=127.0.0.1:0")
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := children.Start(command); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	eventually(t, "the server is ready", func() bool { return answersOK("http://" + address + "/readyz") })
	if !answersOK("http://" + address + "/agents/echo") {
		t.Error("there is no agent echo")
	}
	if _, err := os.Stat(filepath.Join(directory, "inbox-data")); err != nil {
		t.Error(err)
	}
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the server ended with %v", err)
		}
	case <-time.After(patience):
		t.Error(errors.Join(errors.New("the server did not end"), command.Process.Kill()))
	}
	for _, want := range []string{"development", "@echo@", address} {
		if !strings.Contains(strings.ToLower(output.String()), want) {
			t.Errorf("the server does not tell of %q:\n%s", want, output.String())
		}
	}
}

func answersOK(url string) bool {
	response, err := (&http.Client{Timeout: 5 * time.Second}).Get(url)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}
