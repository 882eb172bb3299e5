package pages

import (
	"testing"

	"inbox/internal/fault"
)

// TestLiveIsBounded: so many pages are told and no more, a slow one gets the last number, and no one looks when all have left.
func TestLiveIsBounded(t *testing.T) {
	t.Parallel()
	stopped := 0
	l := live{stop: func() { stopped++ }} // as if one looked already
	var leaves []func()
	var slow <-chan string
	for range maxWatchers {
		news, leave, err := l.watch()
		if err != nil {
			t.Fatal(err)
		}
		slow, leaves = news, append(leaves, leave)
	}
	if _, _, err := l.watch(); !fault.Is(err, fault.Unavailable) {
		t.Errorf("one page too many: %v", err)
	}

	l.tell("1")
	l.tell("2")
	if got := <-slow; got != "2" {
		t.Errorf("a slow page hears %s, want the last number", got)
	}

	leaves[0]()
	_, leave, err := l.watch()
	if err != nil {
		t.Errorf("a page left, and no other may take its place: %v", err)
	}
	leaves[0] = leave
	for i, leave := range leaves {
		if stopped > 0 {
			t.Fatalf("nobody looks any more, and %d pages are open", len(leaves)-i)
		}
		leave()
	}
	if stopped != 1 || l.stop != nil {
		t.Errorf("the look ended %d times", stopped)
	}
}
