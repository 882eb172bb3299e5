package systemd

import (
	"syscall"
	"unsafe"
)

// monotonicMicros is CLOCK_MONOTONIC (clock_gettime(2)), which Go does not show.
func monotonicMicros() int64 {
	const monotonic = 1
	var now syscall.Timespec
	if _, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&now)), 0); failed != 0 { //nolint:gosec // G103: the kernel writes a Timespec there
		return 0
	}
	return now.Nano() / 1000
}
