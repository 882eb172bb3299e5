package main

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"inbox/internal/await"
)

// TestServerOutlivesTheReaderOfItsLog: the first line after the reader was gone ended the process with SIGPIPE.
func TestServerOutlivesTheReaderOfItsLog(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "inbox.toml")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := free.Addr().String()
	_ = free.Close()
	if err := os.WriteFile(file, []byte("domain = \"localhost\"\n[federation]\nallow_private = true\n[http]\nlisten = \""+listen+"\"\n[smtp]\nlisten = \"\"\n[log]\naccess = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}

	serve := exec.CommandContext(t.Context(), "inbox", "serve", "--config", file)
	serve.Dir, serve.Stdout, serve.Stderr = dir, writer, writer
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	ended := make(chan error, 1)
	go func() { ended <- serve.Wait() }()

	answers := func() bool {
		response, err := http.Get("http://" + listen + "/healthz")
		if err == nil {
			_ = response.Body.Close()
		}
		return err == nil
	}
	await.Until(t, "the server answers", answers)
	_ = reader.Close()
	for range 3 { // each request is a line of the log
		if !answers() {
			t.Fatalf("the server ended with its log: %v", await.Receive(t, ended, "the end of the server"))
		}
	}
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := await.Receive(t, ended, "the end of the server"); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// TestListEndsQuietlyWithItsReader: a command whose reader has read enough, as head does, says nothing about that.
func TestListEndsQuietlyWithItsReader(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = reader.Close()
	defer func() { _ = writer.Close() }()

	var said strings.Builder
	list := exec.CommandContext(t.Context(), "inbox", "agents", "list")
	list.Dir = t.TempDir()
	list.Stdout, list.Stderr = writer, &said
	err = list.Run()
	if state, is := list.ProcessState.Sys().(syscall.WaitStatus); !is || !state.Signaled() || state.Signal() != syscall.SIGPIPE || said.Len() > 0 {
		t.Errorf("it ended with %v and says %q", err, said.String())
	}
}
