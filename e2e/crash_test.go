package e2e

import (
	"math/rand/v2"
	"testing"
	"time"
)

const (
	crashSenders = 200
	crashes      = 10
)

// TestNothingIsLostWhenKilled kills the server again and again under load. Afterwards every message that it
// acknowledged has exactly one reply.
func TestNothingIsLostWhenKilled(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		w := newStorm(t, database)
		w.begin(crashSenders)
		for range crashes {
			w.progress()
			if err := w.s.Kill(); err != nil {
				t.Fatal(err)
			}
			w.s.start()
		}
		w.progress()
		w.finish()
		w.judge()
		w.s.stop()
	})
}

// progress lets the storm go on for a random while in which the server takes at least some messages.
func (w *storm) progress() {
	w.t.Helper()
	before := w.acknowledged.Load()
	<-time.After(500*time.Millisecond + rand.N(2*time.Second))
	eventually(w.t, "the server takes messages", func() bool { return w.acknowledged.Load() > before+50 })
}

// TestGracefulStopUnderLoad stops the server as an operator does, twice, while everybody writes.
func TestGracefulStopUnderLoad(t *testing.T) {
	w := newStorm(t, "")
	w.begin(60)
	for range 2 {
		w.progress()
		w.s.stop() // demands exit code 0
		w.s.start()
	}
	w.progress()
	w.finish()
	w.judge()
}
