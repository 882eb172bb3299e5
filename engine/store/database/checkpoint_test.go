package database

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestCheckpointPasses: passes go on beside the writer until little is written meanwhile, and the writer moves that.
func TestCheckpointPasses(t *testing.T) {
	for name, row := range map[string]struct {
		meanwhile []int64 // written during each pass
		finished  int
	}{
		"nothing written":     {[]int64{0}, 0},
		"little written":      {[]int64{5400, 1200, 120}, 1},
		"more than the bound": {[]int64{5400, 5400, 5400, 5400}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var c checkpointer
			passes, finished := 0, 0
			c.beside = func(context.Context) error {
				c.writes.Add(row.meanwhile[passes])
				passes++
				return nil
			}

			c.finish = func(context.Context) error { finished++; return nil }
			if err := c.empty(t.Context()); err != nil {
				t.Fatal(err)
			}
			if passes != len(row.meanwhile) || finished != row.finished {
				t.Errorf("%d passes and %d finished, want %d and %d", passes, finished, len(row.meanwhile), row.finished)
			}
		})
	}
}

func TestFailedPassEndsTheCheckpoint(t *testing.T) {
	failure := errors.New("no space")
	c := checkpointer{beside: func(context.Context) error { return failure }}
	if err := c.empty(t.Context()); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
}

// TestLogBeginsAnew: the writer's own pass leaves nothing behind, so that the log does not grow with what was written.
func TestLogBeginsAnew(t *testing.T) {
	directory := t.TempDir()
	s, err := openSQLite(t.Context(), testOptions(directory))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()

	var first int64
	for round := range 8 {
		for i := range 100 {
			err := s.Transact(t.Context(), func(running Session) error {
				return running.Do(t.Context(), insertMark, "n", fmt.Sprintf("%d-%d", round, i), "value")
			})
			if err != nil {
				t.Fatal(err)
			}
		}

		if err := s.(*sqliteEngine).checkpointer.finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		log, err := os.Stat(filepath.Join(directory, File+"-wal"))
		if err != nil {
			t.Fatal(err)
		}

		if round == 0 {
			first = log.Size()
		}
		if log.Size() > 3*first {
			t.Fatalf("the log has %d bytes after round %d, %d after the first", log.Size(), round, first)
		}
	}
}
