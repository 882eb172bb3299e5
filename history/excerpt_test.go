package history

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/normalized"
)

// read makes the excerpt that a reader makes who follows Policy.Need and Policy.Enough, with up to extra turns more.
func read(turns []normalized.HistoricalMessage, policy Policy, extra int) Thread {
	head, tail := policy.Need()
	thread := Thread{Total: len(turns), Opened: len(turns) > 0 && turns[0].Role == normalized.RoleAssistant}
	begin, enough := len(turns), policy.Enough()
	for begin > max(len(turns)-tail, 0) {
		begin--
		if enough(turns[begin]) {
			break
		}
	}
	begin = max(begin-extra, 0)
	thread.Head, thread.Tail = turns[:min(head+extra, len(turns))], turns[begin:]
	if extra == 0 {
		thread.Head = turns[:min(head, begin)]
	}
	return thread
}

func TestExcerptGivesTheSameBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		turns, policy := drawThread(t, 0), drawPolicy(t)
		policy.MaxAge = time.Duration(rapid.SampledFrom([]int{0, 0, 10, 30}).Draw(t, "age")) * time.Minute
		now := start.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "now")) * time.Minute)
		want, wantBreakpoint := Trim(turns, policy, now)
		opened := len(turns) > 0 && turns[0].Role == normalized.RoleAssistant
		thread := read(dropOld(turns, policy.Since(now)), policy, rapid.IntRange(0, 5).Draw(t, "extra"))
		thread.Opened = opened
		got, breakpoint := TrimThread(thread, policy)
		if d := cmp.Diff(written(t, want), written(t, got)); d != "" || at(wantBreakpoint) != at(breakpoint) {
			t.Fatal(d, at(wantBreakpoint), at(breakpoint))
		}
	})
}

// TestLittleIsRead: a reader needs no more than the policy's turns of a long thread, and less of a heavy one.
func TestLittleIsRead(t *testing.T) {
	turns := thread(strings.Repeat("ua", 500))
	if thread := read(turns, DefaultPolicy(), 0); len(thread.Head) != 2+answerWithin || len(thread.Tail) != 20 {
		t.Errorf("%d and %d turns", len(thread.Head), len(thread.Tail))
	}
	for i := range turns {
		turns[i].Parts = []normalized.Part{normalized.Text(strings.Repeat(".", 100_000))}
	}
	if thread := read(turns, DefaultPolicy(), 0); len(thread.Tail) != 12 {
		t.Errorf("%d turns", len(thread.Tail))
	}
}

// TestPrefixStaysBetweenWindowMoves grows a thread turn by turn: while the window begins at the same turn, what was
// given before stays but for the last turn, with which the next may merge.
func TestPrefixStaysBetweenWindowMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		turns, policy := drawThread(t, 2), drawPolicy(t)
		policy.MaxBytes = 0
		n := rapid.IntRange(1, len(turns)-1).Draw(t, "n")
		begin := func(n int) window {
			return selectTurns(outline(excerpt[normalized.HistoricalMessage]{tail: turns[:n]}.normal()), policy.normal())
		}
		before, after := begin(n), begin(n+1)
		if before.start != after.start || before.head != after.head {
			return
		}
		first, _ := Trim(turns[:n], policy, start)
		second, _ := Trim(turns[:n+1], policy, start)
		if len(first) < 2 {
			return
		}
		stays := len(first) - 1
		if d := cmp.Diff(written(t, first[:stays]), written(t, second[:stays])); d != "" {
			t.Fatal(d)
		}
	})
}

func TestWindowMovesEverySlide(t *testing.T) {
	turns, policy, moves := thread(strings.Repeat("ua", 200)), DefaultPolicy(), 0
	last := ""
	for n := 23; n <= len(turns); n++ {
		kept, _ := Trim(turns[:n], policy, start)
		if first := kept[policy.KeepHead].ID; first != last {
			last, moves = first, moves+1
		}
	}
	if moves != 38 { // ⌈(400-22)/10⌉
		t.Errorf("the window moved %d times", moves)
	}
}

// TestAnyHeadIsStable grows threads of question and answer turn by turn with heads of every length: once turns are left out, the
// head is the same in every history, and the cache breaks behind it or later.
func TestAnyHeadIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := Policy{KeepHead: rapid.IntRange(1, 7).Draw(t, "head"), Window: rapid.IntRange(2, 8).Draw(t, "window"), Slide: rapid.IntRange(1, 5).Draw(t, "slide")}
		if rapid.Bool().Draw(t, "drop") {
			policy.Alternation = AlternationDrop
		}
		first := "u"
		if rapid.Bool().Draw(t, "opened") {
			first = "au"
		}
		turns := thread(first + strings.Repeat("au", 30))
		head := policy.KeepHead
		if turns[head-1].Role == normalized.RoleUser {
			head++
		}
		want := written(t, turns[:head])
		for n := head + policy.Window + 2*policy.Slide; n <= len(turns); n++ {
			kept, breakpoint := Trim(turns[:n], policy, start)
			if d := cmp.Diff(want, written(t, kept[:head])); d != "" {
				t.Fatalf("of %d turns: %s", n, d)
			}
			if at(breakpoint) < head-1 {
				t.Fatalf("of %d turns the cache breaks after %d, before the end of the head %d", n, at(breakpoint), head-1)
			}
		}
	})
}

// TestShortExcerpt: what was not read is left out by whole slides, and nothing fails.
func TestShortExcerpt(t *testing.T) {
	turns := thread("uauauauauaua")
	kept, _ := TrimThread(Thread{Head: turns[:1], Tail: turns[9:], Total: 12}, Policy{KeepHead: 2, Window: 6, Slide: 2})
	if got := story(kept); got != "u0+u10 a11" {
		t.Errorf("%q", got)
	}
	if kept, breakpoint := TrimThread(Thread{Total: 9}, DefaultPolicy()); len(kept) != 0 || breakpoint != nil {
		t.Errorf("%q", story(kept))
	}
}

// TestFirstQuestionTakenBack: the answer that remains does not begin the history, unless the agent opened the thread.
func TestFirstQuestionTakenBack(t *testing.T) {
	turns := thread("uaua")[1:]
	for opened, want := range map[bool]string{false: "u2 a3", true: "a1 u2 a3"} {
		if kept, _ := TrimThread(Thread{Tail: turns, Total: 3, Opened: opened}, DefaultPolicy()); story(kept) != want {
			t.Errorf("opened %v: %q", opened, story(kept))
		}
	}
}
