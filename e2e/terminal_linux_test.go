package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// newTerminal opens a pseudo-terminal (pts(4)) and returns the side of the program, and the side of the person at it.
func newTerminal(t *testing.T) (program, person *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = person.Close() })
	var number, unlocked int32
	for _, call := range []struct {
		request uintptr
		value   *int32
	}{{syscall.TIOCSPTLCK, &unlocked}, {syscall.TIOCGPTN, &number}} {
		if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, person.Fd(), call.request, uintptr(unsafe.Pointer(call.value))); failed != 0 {
			t.Fatal(failed)
		}
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return program, person
}

// readTo reads what a program wrote to a terminal until a text comes, or its end.
func readTo(person *os.File, text string) string {
	var got strings.Builder
	buffer := make([]byte, 4096)
	for !strings.Contains(got.String(), text) {
		count, err := person.Read(buffer)
		got.Write(buffer[:count])
		if err != nil {
			break
		}
	}
	return strings.ReplaceAll(got.String(), "\r\n", "\n")
}
