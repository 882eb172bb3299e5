// Package children starts programs that do not outlive the test that started them, also when it is killed.
package children

import (
	"os/exec"
	"runtime"
	"sync"
)

// Starter is the function of the goroutine that starts children. It never ends: tests that look for goroutines that were
// left behind pass over it with goleak.IgnoreAnyFunction(children.Starter).
const Starter = "inbox/internal/children.starter"

// starts takes what the one thread starts.
var starts = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go starter(work)
	return work
})

func starter(work <-chan func()) {
	// The kernel counts the thread that started a child as its parent (prctl(2), PR_SET_PDEATHSIG): it must live as long
	// as the process.
	runtime.LockOSThread()
	for do := range work {
		do()
	}
}

// Start is command.Start for a child that is killed when this process ends in whatever way; on other systems than Linux only
// when the caller kills it.
func Start(command *exec.Cmd) error {
	bind(command)
	done := make(chan error, 1)
	starts() <- func() { done <- command.Start() }
	return <-done // a start does not block
}
