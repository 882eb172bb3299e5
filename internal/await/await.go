// Package await waits in tests: every wait has a bound and says what it waited for. A bare receive that waits for something
// that has passed, or never comes, would stop all tests of its package until the time of go test is over.
//
// Bounds are for what hangs, not for what is slow: a test that demands speed measures it itself.
package await

import (
	"runtime"
	"time"
)

// Patience is how long each function waits: longer than anything takes on a slow machine under the race detector.
const Patience = time.Minute

// TB is the part of testing.TB that is needed here. It is declared anew so that no program is linked with package testing.
type TB interface {
	Helper()
	Fatalf(format string, arguments ...any)
}

// Receive takes the next value of a channel, or the zero value at once when the channel is closed. When nothing has come within
// Patience it fails the test, with the stacks of all goroutines; like FailNow it belongs in the goroutine of the test.
// What completes the sentence "waited for …".
func Receive[T any](t TB, from <-chan T, what string) (value T) {
	t.Helper()
	late := time.NewTimer(Patience)
	defer late.Stop()
	select {
	case value = <-from:
	case <-late.C:
		t.Fatalf("waited %s for %s\n\n%s", Patience, what, stacks())
	}
	return value
}

// Done waits until wait returns, for example the Wait of a sync.WaitGroup, as [Receive] waits for a value.
func Done(t TB, wait func(), what string) {
	t.Helper()
	Receive(t, begin(func() struct{} { wait(); return struct{}{} }), what)
}

// Result is [Done] for a wait that has a result, for example the Wait of an errgroup.Group or an exec.Cmd.
func Result[T any](t TB, wait func() T, what string) T {
	t.Helper()
	return Receive(t, begin(wait), what)
}

func begin[T any](wait func() T) <-chan T {
	done := make(chan T, 1)
	go func() { done <- wait() }()
	return done
}

// Until asks every few milliseconds until the condition holds, and fails the test when it does not within Patience.
// What completes the sentence "waited until …".
func Until(t TB, what string, condition func() bool) {
	t.Helper()
	late := time.NewTimer(Patience)
	defer late.Stop()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-late.C:
			t.Fatalf("waited %s until %s", Patience, what)
			return
		}
	}
}

// stacks returns where all goroutines are: the one that should have ended the wait is among them.
func stacks() []byte {
	text := make([]byte, 128<<10)
	return text[:runtime.Stack(text, true)]
}
