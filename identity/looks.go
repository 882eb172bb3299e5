package identity

import (
	"slices"
	"time"
)

// Bounds of Looks.
const (
	MaxLooks    = 30 // in one pause, of all callers
	MaxLooksOne = 3  // in one pause of one caller, each for another key
)

// Looks counts the fetches of one issuer's keys that were made for a key it did not list. A key that no one has costs the caller who
// invented it one of its own looks; a caller with a key that is really new still has its looks. It is not safe for concurrent use.
type Looks []look

type look struct {
	caller, key string
	at          time.Time
}

// May reports whether a caller may have the keys fetched for a key: not if it did so within the pause, or has no look left. Full means
// that all callers together used the looks of the pause up, so that nothing can be said about the key.
func (l *Looks) May(caller, key string, now time.Time, pause time.Duration) (may, full bool) {
	*l = slices.DeleteFunc(*l, func(one look) bool { return !now.Before(one.at.Add(pause)) })

	own := 0
	for _, one := range *l {
		if one.caller != caller {
			continue
		}
		if own++; one.key == key || own == MaxLooksOne {
			return false, false
		}
	}
	full = len(*l) >= MaxLooks
	return !full, full
}

// Note counts a look.
func (l *Looks) Note(caller, key string, now time.Time) {
	*l = append(*l, look{caller, key, now})
}
