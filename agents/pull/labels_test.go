package pull

import (
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/internal/fault"
)

func TestReadLabels(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil, "gpu": {"gpu"}, "linux,gpu,linux": {"gpu", "linux"}, "os:linux/amd64,c++": {"c++", "os:linux/amd64"},
	} {
		if got, err := readLabels(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"a b", ",", "-x", "a,", strings.Repeat("x", 64), "x" + strings.Repeat(",x", 32), "ü"} {
		if got, err := readLabels(text); !fault.Is(err, fault.Malformed) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestPresenceCountsByLabels: a turn may run where a program waits that has all of its labels, or has just been there.
func TestPresenceCountsByLabels(t *testing.T) {
	var p presence
	now := time.Now()
	gpu, both := labels{"gpu"}, labels{"gpu", "linux"}
	add(&p.waiting, "", 2)
	add(&p.waiting, both.key(), 1)
	add(&p.working, gpu.key(), 1)
	for key, want := range map[string]int{"": 3, "gpu": 2, "gpu linux": 1, "moon": 0} {
		if got := p.limit(labelsOf(key), now); got != want {
			t.Errorf("%q: %d, want %d", key, got, want)
		}
	}

	add(&p.waiting, "", -2)
	add(&p.waiting, both.key(), -1)
	p.left(both, now)
	if len(p.waiting) != 0 {
		t.Errorf("counts of nobody are kept: %v", p.waiting)
	}
	for key, want := range map[string]int{"": 1, "gpu": 2, "gpu linux": 1, "moon": 0} {
		if got := p.limit(labelsOf(key), now.Add(Linger-time.Second)); got != want {
			t.Errorf("a moment later %q: %d, want %d", key, got, want)
		}
	}
	if got := p.limit(both, now.Add(Linger)); got != 0 {
		t.Errorf("long after: %d", got)
	}
	p.left(gpu, now.Add(Linger))
	if len(p.empty) != 1 {
		t.Errorf("programs that are gone are kept: %v", p.empty)
	}
}
