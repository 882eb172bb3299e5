package main

import (
	"os"
	"strconv"
	"syscall"
)

// lowered is the nice value of a command that runs beside the server for minutes: it gets a tenth of a processor that the server wants too.
const lowered = 10

// giveWay lowers the priority of this process. On Linux each thread has its own (setpriority(2)), and a new one takes that of the thread that
// made it: so all threads are looked at until none is new. A priority that is
// lower already stays.
func giveWay() {
	done := map[int]bool{}
	for found := true; found; {
		found = false
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return
		}
		for _, task := range tasks {
			id, err := strconv.Atoi(task.Name())
			if err != nil || done[id] {
				continue
			}
			done[id], found = true, true
			// The system call returns 20 minus the value.
			if now, err := syscall.Getpriority(syscall.PRIO_PROCESS, id); err == nil && 20-now < lowered {
				_ = syscall.Setpriority(syscall.PRIO_PROCESS, id, lowered) // a thread that ended meanwhile
			}
		}
	}
}
