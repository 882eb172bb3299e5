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
	seat, err := Sit(directory)
	if err != nil || !seat.Sole() {
		t.Fatalf("%+v, %v", seat, err)
	}
	if _, err := Sit(directory); !errors.Is(err, ErrTaken) {
		t.Errorf("a second one: %v", err)
	}
	if err := errors.Join(seat.Leave(), seat.Leave()); err != nil {
		t.Error(err)
	}
	again, err := Sit(directory)
	if err != nil || !again.Sole() {
		t.Errorf("after the first: %+v, %v", again, err)
	}
	if err := again.Leave(); err != nil {
		t.Error(err)
	}
	if _, err := Sit(directory + "/none"); err == nil || errors.Is(err, ErrTaken) {
		t.Errorf("no directory: %v", err)
	}
}

// TestSeatOfTheDead starts this test again as a process that takes the seat and is killed.
func TestSeatOfTheDead(t *testing.T) {
	if directory := os.Getenv("SEAT_DIRECTORY"); directory != "" {
		if _, err := Sit(directory); err != nil {
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
	if _, err := Sit(directory); !errors.Is(err, ErrTaken) {
		t.Errorf("beside the living: %v", err)
	}
	_ = other.Process.Kill()
	_ = other.Wait()
	seat, err := Sit(directory)
	if err != nil || !seat.Sole() {
		t.Fatalf("after its death: %+v, %v", seat, err)
	}
	if err := seat.Leave(); err != nil {
		t.Error(err)
	}
}
