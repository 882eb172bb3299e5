package doctor

import "syscall"

const clockUnsynchronised = 5 // TIME_ERROR of adjtimex(2)

// clockSynchronised asks the kernel whether a time service keeps the clock.
func clockSynchronised() (synchronised, known bool) {
	var state syscall.Timex
	result, err := syscall.Adjtimex(&state)
	return result != clockUnsynchronised, err == nil
}
