// Package history decides how much of a thread an agent sees: the sliding window of the message contract, section 4.
// It is pure: the same stored turns and policy result in the same bytes. It loads nothing and stores nothing.
package history

import (
	"time"

	"inbox/normalized"
)

// Alternation says what becomes of neighbours of equal role.
type Alternation string

// The alternations. With AlternationMerge and AlternationDrop the history begins with a user's turn, except in a thread
// that the agent opened.
const (
	AlternationMerge Alternation = "merge" // neighbours become one turn; the default
	AlternationDrop  Alternation = "drop"  // of neighbours the last is kept
	AlternationOff   Alternation = "off"   // turns stay as they are stored
)

// Policy is an operator's choice of how much of a thread an agent sees. The zero value is DefaultPolicy.
type Policy struct {
	KeepHead    int           // turns at the start of the thread that are always kept, with the answer to the last of them
	Window      int           // newest turns that are kept at most
	Slide       int           // the window's start moves by so many turns at once, so that prompts keep their prefix; at least 1
	MaxBytes    int           // of text in all turns; 0 = no limit
	MaxAge      time.Duration // older turns are left out, head included; 0 = no limit
	Alternation Alternation   // empty = AlternationMerge
}

// DefaultPolicy keeps 2 turns of the head and the newest 20 to 29, in at most 256 KiB of text.
func DefaultPolicy() Policy {
	return Policy{KeepHead: 2, Window: 20, Slide: 10, MaxBytes: 256 << 10, Alternation: AlternationMerge}
}

// normal repairs what would be without meaning; the zero Policy is the default.
func (p Policy) normal() Policy {
	if p == (Policy{}) {
		return DefaultPolicy()
	}
	p.KeepHead, p.Window, p.Slide = max(p.KeepHead, 0), max(p.Window, 0), max(p.Slide, 1)
	if p.Alternation == "" {
		p.Alternation = AlternationMerge
	}
	return p
}

// Need returns how many turns of a thread are enough to trim it exactly: the first head and the newest tail.
func (p Policy) Need() (head, tail int) {
	p = p.normal()
	if head = p.KeepHead; head > 0 && p.Alternation != AlternationOff {
		head += answerWithin
	}
	return head, p.Window
}

// Enough returns a function for a caller that reads a thread from its newest turn back: it is told each turn and reports when the
// older ones cannot be in the window, because it has as many turns as Need says or more text than MaxBytes.
func (p Policy) Enough() func(turn normalized.HistoricalMessage) bool {
	p = p.normal()
	turns, text := 0, 0
	return func(turn normalized.HistoricalMessage) bool {
		outline := outlineOf(&turn)
		text += outline.text
		if turns++; turns > protected && p.MaxBytes > 0 {
			text -= saved(inWindow(&outline, p.MaxBytes))
		}
		return turns >= p.Window || p.MaxBytes > 0 && text > p.MaxBytes && turns >= p.Slide+protected
	}
}

// Since is the instant before which turns are too old; zero without MaxAge.
func (p Policy) Since(now time.Time) time.Time {
	if p.MaxAge <= 0 {
		return time.Time{}
	}
	return now.Add(-p.MaxAge)
}
