package attacks

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// length is how long honest peers are watched before an attack, and during it at least. ATTACK_SECONDS makes it longer: then there
// are enough honest messages for a 99th percentile, and it is judged.
var length, judged = func() (time.Duration, bool) {
	seconds, err := strconv.Atoi(os.Getenv("ATTACK_SECONDS"))
	if err != nil || seconds < 1 {
		return 1500 * time.Millisecond, false
	}
	return time.Duration(seconds) * time.Second, true
}()

const warmUp = time.Second // in which connections are made and keys fetched

// answers counts what an attacker heard.
type answers struct {
	mu     sync.Mutex
	counts map[string]int
}

func (a *answers) add(answer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counts == nil {
		a.counts = map[string]int{}
	}
	a.counts[answer]++
}

func (a *answers) get(answer string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts[answer]
}

func (a *answers) total() (total int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, count := range a.counts {
		total += count
	}
	return total
}

func (a *answers) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var texts []string
	for _, answer := range slices.Sorted(maps.Keys(a.counts)) {
		texts = append(texts, fmt.Sprintf("%d× %s", a.counts[answer], answer))
	}
	return strings.Join(texts, ", ")
}

// row is what one attack did: a row of the table.
type row struct {
	point, name    string
	before, during seen
	lasted         time.Duration
	processor      time.Duration // of the server, beyond what honest peers cost it before
	memory         int64         // by which the resident memory grew at most
	disk           int64         // by which the data grew until the end
	answers        *answers
}

// each is the processor time that one request of the attacker cost.
func (r row) each() time.Duration { return r.processor / time.Duration(max(1, r.answers.total())) }

// measure lets an attack run beside honest peers. The attack does its work and ends; it may be repeated while the time lasts.
func (w *world) measure(point, name string, attack func(ctx context.Context, heard *answers)) row {
	t := w.t
	t.Helper()
	h := newHonest(w, warmUp+3*length+10*time.Second)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	h.write(ctx)
	pause(t, warmUp)

	result := row{point: point, name: name, answers: &answers{}}
	began, usedBefore := time.Now(), w.processor()
	pause(t, length)
	usual := float64(w.processor()-usedBefore) / float64(time.Since(began)) // of a processor

	memory, disk := w.resetPeak(), w.used()
	attacked, usedBefore := time.Now(), w.processor()
	attack(ctx, result.answers)
	if rest := length - time.Since(attacked); rest > 0 {
		pause(t, rest)
	}
	ended := time.Now()
	result.lasted = ended.Sub(attacked)
	result.processor = max(0, w.processor()-usedBefore-time.Duration(usual*float64(result.lasted)))
	result.memory, result.disk = w.peak()-memory, w.used()-disk
	stop()
	h.finish()

	result.before, result.during = h.between(began, attacked), h.between(attacked, ended)
	result.before.judge(t, "before")
	result.during.judge(t, "during")
	if normal, now := result.before.quantile(.99), result.during.quantile(.99); judged && now > 2*normal {
		t.Errorf("the 99th percentile of honest peers is %s, and %s while they are alone", now, normal)
	}
	record(result)
	t.Log(result)
	return result
}

func pause(t *testing.T, length time.Duration) {
	t.Helper()
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatal("the test was stopped")
	}
}

// atMost demands that a cost stays below a bound.
func atMost[N int64 | time.Duration](t *testing.T, what string, got, most N) {
	t.Helper()
	if got > most {
		t.Errorf("%s: %v, want at most %v", what, got, most)
	}
}
