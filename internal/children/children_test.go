package children_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"inbox/internal/children"
)

// TestMain plays the test that is cut off, too: it starts a child, whose standard output is the pipe of the real test.
func TestMain(m *testing.M) {
	if os.Getenv("CHILDREN_TEST") == "" {
		os.Exit(m.Run())
	}
	child := exec.Command("sleep", "1000")
	child.Stdout = os.Stdout
	if err := children.Start(child); err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("started\n")
	<-time.After(time.Hour)
}

// TestChildrenDieWithTheirTest: after a run that was cut off, a server under test stayed behind for an hour.
func TestChildrenDieWithTheirTest(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells children of their parent's end")
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	cut := exec.CommandContext(t.Context(), os.Args[0])
	cut.Env, cut.Stdout = append(os.Environ(), "CHILDREN_TEST=cut"), writer
	if err := children.Start(cut); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	if err := reader.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(reader)
	if line, err := lines.ReadString('\n'); err != nil || line != "started\n" {
		t.Fatalf("the test that is cut off said %q, %v", line, err)
	}
	if err := cut.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cut.Wait() // its error is the kill
	if _, err := lines.ReadString('\n'); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the child of a test that was killed holds its output for 30 s")
	}
}
