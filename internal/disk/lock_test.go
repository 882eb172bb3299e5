package disk

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"inbox/internal/await"
	"inbox/internal/children"
)

func TestSeatIsForOne(t *testing.T) {
	directory := t.TempDir()
	lock, err := Take(directory)
	if err != nil || !lock.Sole() {
		t.Fatalf("%+v, %v", lock, err)
	}
	if _, err := Take(directory); !errors.Is(err, ErrTaken) {
		t.Errorf("a second one: %v", err)
	}
	if err := errors.Join(lock.Leave(), lock.Leave()); err != nil {
		t.Error(err)
	}
	again, err := Take(directory)
	if err != nil || !again.Sole() {
		t.Errorf("after the first: %+v, %v", again, err)
	}
	if err := again.Leave(); err != nil {
		t.Error(err)
	}
	if _, err := Take(directory + "/none"); err == nil || errors.Is(err, ErrTaken) {
		t.Errorf("no directory: %v", err)
	}
}

// TestSeatOfTheDead starts this test again as a process that takes the lock and is killed.
func TestSeatOfTheDead(t *testing.T) {
	if directory := os.Getenv("SEAT_DIRECTORY"); directory != "" {
		if _, err := Take(directory); err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("taken")
		select {}
	}
	directory := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	other := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestSeatOfTheDead$")
	other.Env = append(os.Environ(), "SEAT_DIRECTORY="+directory)
	said, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := children.Start(other); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill() }()
	word := make([]byte, len("taken"))
	if _, err := said.Read(word); err != nil || string(word) != "taken" {
		t.Fatalf("%q, %v", word, err)
	}
	if _, err := Take(directory); !errors.Is(err, ErrTaken) {
		t.Errorf("beside the living: %v", err)
	}
	_ = other.Process.Kill()
	_ = other.Wait()
	lock, err := Take(directory)
	if err != nil || !lock.Sole() {
		t.Fatalf("after its death: %+v, %v", lock, err)
	}
	if err := lock.Leave(); err != nil {
		t.Error(err)
	}
}
