package disk

import (
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"inbox/internal/await"
)

// TestGate: two gates of one file stand for two processes, because a lock belongs to the open file.
func TestGate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var gates [2]*Gate
	for i := range gates {
		var err error
		if gates[i], err = OpenGate(path); err != nil {
			t.Fatal(err)
		}
	}
	var inside, alone atomic.Int32
	var workers sync.WaitGroup
	for i := range 8 {
		gate := gates[i%2]
		workers.Go(func() {
			for range 200 {
				_ = gate.Together(func() error {
					inside.Add(1)
					defer inside.Add(-1)
					if n := alone.Load(); n != 0 {
						t.Errorf("%d are alone beside us", n)
					}
					return nil
				})
			}
		})
		workers.Go(func() {
			for range 50 {
				_ = gate.Alone(func() error {
					if n := alone.Add(1); n != 1 {
						t.Errorf("%d are alone together", n)
					}
					defer alone.Add(-1)
					if n := inside.Load(); n != 0 {
						t.Errorf("%d are inside", n)
					}
					return nil
				})
			}
		})
	}
	await.Done(t, workers.Wait, "the end of all workers")
}

// TestGateLetsManyThrough: the one who goes together waits for no one who does too.
func TestGateLetsManyThrough(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	one, err := OpenGate(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := OpenGate(path)
	if err != nil {
		t.Fatal(err)
	}
	want := errors.New("said by the work")
	got := one.Together(func() error { return other.Together(func() error { return want }) })
	if !errors.Is(got, want) {
		t.Errorf("%v", got)
	}
	if _, err := OpenGate(filepath.Join(path, "below a file")); err == nil {
		t.Error("a gate that cannot be")
	}
}
