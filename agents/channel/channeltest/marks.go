package channeltest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"inbox/agents/channel"
)

// MarksSetup is an empty store of marks with its clock.
type MarksSetup struct {
	Marks   channel.Marks
	Advance func(time.Duration) // moves the clock that the store reads
}

// Marks runs the suite; every test gets an empty store.
func Marks(t *testing.T, empty func(t *testing.T) MarksSetup) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, MarksSetup){
		"claims once": claimsOnce, "claims once under load": claimsOnceUnderLoad, "a mark ends": markEnds,
		"marking again begins anew": markingAgain, "claiming again does not": claimingAgain, "unmarks": unmarks,
		"keeps keys apart": keepsKeysApart,
	} {
		t.Run(name, func(t *testing.T) { test(t, empty(t)) })
	}
}

// Minute is the time to live that the suite uses.
const Minute = time.Minute

func key(provider, id string) channel.MessageKey {
	return channel.MessageKey{Provider: provider, ID: id}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func claim(t *testing.T, s MarksSetup, k channel.MessageKey, want bool) {
	t.Helper()
	first, err := s.Marks.Claim(t.Context(), k, Minute)
	must(t, err)
	if first != want {
		t.Errorf("claim %v = %v, want %v", k, first, want)
	}
}

func marked(t *testing.T, s MarksSetup, k channel.MessageKey, want bool) {
	t.Helper()
	is, err := s.Marks.Marked(t.Context(), k)
	must(t, err)
	if is != want {
		t.Errorf("marked %v = %v, want %v", k, is, want)
	}
}

func claimsOnce(t *testing.T, s MarksSetup) {
	marked(t, s, key("a", "1"), false)
	claim(t, s, key("a", "1"), true)
	marked(t, s, key("a", "1"), true)
	claim(t, s, key("a", "1"), false)
}

func claimsOnceUnderLoad(t *testing.T, s MarksSetup) {
	for round := range 10 {
		var firsts atomic.Int32
		var group sync.WaitGroup
		for range 16 {
			group.Go(func() {
				first, err := s.Marks.Claim(t.Context(), key("a", fmt.Sprint(round)), Minute)
				if err != nil {
					t.Error(err)
				}
				if first {
					firsts.Add(1)
				}
			})
		}
		group.Wait()
		if firsts.Load() != 1 {
			t.Errorf("%d callers were first", firsts.Load())
		}
	}
}

func markEnds(t *testing.T, s MarksSetup) {
	claim(t, s, key("a", "1"), true)
	s.Advance(Minute - time.Second)
	marked(t, s, key("a", "1"), true)
	claim(t, s, key("a", "1"), false)
	s.Advance(2 * time.Second)
	marked(t, s, key("a", "1"), false)
	claim(t, s, key("a", "1"), true)
	marked(t, s, key("a", "1"), true)
}

func markingAgain(t *testing.T, s MarksSetup) {
	must(t, s.Marks.Mark(t.Context(), key("a", "1"), Minute))
	s.Advance(Minute - time.Second)
	must(t, s.Marks.Mark(t.Context(), key("a", "1"), Minute))
	s.Advance(Minute - time.Second)
	marked(t, s, key("a", "1"), true)
	must(t, s.Marks.Mark(t.Context(), key("a", "1"), 2*time.Second))
	s.Advance(3 * time.Second)
	marked(t, s, key("a", "1"), false)
}

func claimingAgain(t *testing.T, s MarksSetup) {
	claim(t, s, key("a", "1"), true)
	s.Advance(Minute - time.Second)
	claim(t, s, key("a", "1"), false)
	s.Advance(2 * time.Second)
	marked(t, s, key("a", "1"), false)
}

func unmarks(t *testing.T, s MarksSetup) {
	must(t, s.Marks.Unmark(t.Context(), key("a", "1")))
	claim(t, s, key("a", "1"), true)
	must(t, s.Marks.Unmark(t.Context(), key("a", "1")))
	marked(t, s, key("a", "1"), false)
	claim(t, s, key("a", "1"), true)
}

func keepsKeysApart(t *testing.T, s MarksSetup) {
	for _, k := range []channel.MessageKey{key("a:b", "c"), key("a", "b:c"), key("a", "B:c"), key("ä", "1"), key("a", "%_"), key("a", "%x")} {
		claim(t, s, k, true)
	}
	must(t, s.Marks.Unmark(t.Context(), key("a", "b:c")))
	marked(t, s, key("a:b", "c"), true)
	marked(t, s, key("a", "B:c"), true)
}
