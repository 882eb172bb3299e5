package main

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// TestGiveWay: all threads of the process have the lower priority, those that there were and those that come later. It is asked in a process of
// its own, because nothing raises a priority again.
func TestGiveWay(t *testing.T) {
	const asked = "INBOX_TEST_GIVES_WAY"
	if os.Getenv(asked) == "" {
		command := exec.Command(os.Args[0], "-test.run=^TestGiveWay$", "-test.v")
		command.Env = append(os.Environ(), asked+"=1")
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, output)
		}
		return
	}

	holdThreads(t, func() { giveWay() })
	holdThreads(t, func() {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		if len(tasks) < heldThreads {
			t.Fatalf("%d threads, want %d or more", len(tasks), heldThreads)
		}
		for _, task := range tasks {
			id, err := strconv.Atoi(task.Name())
			if err != nil {
				t.Fatal(err)
			}
			value, err := syscall.Getpriority(syscall.PRIO_PROCESS, id)
			if err != nil {
				continue // it ended
			}
			if value = 20 - value; value < lowered {
				t.Errorf("thread %d has the nice value %d, want %d", id, value, lowered)
			}
		}
	})
}

const heldThreads = 12

// holdThreads calls work while there are many threads, which end behind it: a goroutine that ends locked takes its thread with it.
func holdThreads(t *testing.T, work func()) {
	t.Helper()
	var held, ended sync.WaitGroup
	held.Add(heldThreads)
	end := make(chan struct{})
	for range heldThreads {
		ended.Go(func() {
			runtime.LockOSThread()
			held.Done()
			<-end
		})
	}
	held.Wait()
	work()
	close(end)
	ended.Wait()
}
