package attacks

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// usedProcessor is what the server has used of processors since it started.
func (w *world) usedProcessor() time.Duration {
	w.t.Helper()
	return must(w.server.ProcessorTime())(w.t)
}

// resetPeak forgets the largest memory and returns the present one (proc(5), clear_refs).
func (w *world) resetPeak() int64 {
	w.t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", w.pid()), []byte("5"), 0); err != nil {
		w.t.Fatal(err)
	}
	return w.status("VmRSS:")
}

// peak is the largest resident memory since resetPeak.
func (w *world) peak() int64 {
	w.t.Helper()
	return w.status("VmHWM:")
}

func (w *world) status(field string) int64 {
	w.t.Helper()
	text := must(os.ReadFile(fmt.Sprintf("/proc/%d/status", w.pid())))(w.t)
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, field); found {
			return must(strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64))(w.t) << 10
		}
	}
	w.t.Fatalf("the server has no %s", field)
	return 0
}

func (w *world) pid() int {
	w.t.Helper()
	return must(w.server.Process())(w.t)
}
