package await

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// recorder is a test that fails without ending its goroutine.
type recorder struct{ said string }

func (*recorder) Helper() {}

func (r *recorder) Fatalf(format string, arguments ...any) {
	r.said = fmt.Sprintf(format, arguments...)
}

func TestWaitsGiveWhatCame(t *testing.T) {
	values := make(chan int, 1)
	values <- 7
	if got := Receive(t, values, "a number"); got != 7 {
		t.Errorf("received %d", got)
	}
	close(values)
	if got := Receive(t, values, "the end"); got != 0 {
		t.Errorf("received %d of a closed channel", got)
	}
	called := false
	Done(t, func() { called = true }, "the call")
	broken := errors.New("broken")
	if err := Result(t, func() error { return broken }, "the result"); !called || !errors.Is(err, broken) {
		t.Errorf("called %v, %v", called, err)
	}
	asked := 0
	Until(t, "it was asked three times", func() bool { asked++; return asked == 3 })
}

// TestWaitsHaveABound: each wait for what never comes ends after Patience and says what it waited for.
func TestWaitsHaveABound(t *testing.T) {
	never := make(chan struct{})
	for want, wait := range map[string]func(TB){
		"for an answer":             func(t TB) { Receive(t, never, "an answer") },
		"for the senders to end":    func(t TB) { Done(t, func() { <-never }, "the senders to end") },
		"for the end of the server": func(t TB) { _ = Result(t, func() error { <-never; return nil }, "the end of the server") },
		"until the queue is empty":  func(t TB) { Until(t, "the queue is empty", func() bool { return false }) },
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				never = make(chan struct{})
				failed := &recorder{}
				began := time.Now()
				bounded(t, failed, wait)
				if waited := time.Since(began); waited != Patience {
					t.Errorf("waited %s", waited)
				}
				if !strings.HasPrefix(failed.said, "waited 1m0s "+want) {
					t.Errorf("said %q", failed.said)
				}
				if stacks := strings.Contains(failed.said, "goroutine "); stacks != strings.HasPrefix(want, "for") {
					t.Errorf("stacks: %v", stacks)
				}
				close(never) // lets the goroutine of the wait go
			})
		})
	}
}

// bounded ends the test when the wait goes on after twice its time.
func bounded(t *testing.T, failed *recorder, wait func(TB)) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wait(failed)
	}()
	select {
	case <-ended:
	case <-time.After(2 * Patience):
		t.Fatal("the wait goes on")
	}
}
