package email

import (
	"crypto/sha256"
	"sync"
	"time"

	"inbox/internal/admission"
	"inbox/internal/bounded"
)

// room bounds the mail bytes that are in memory at once, so that nobody alone takes what all share: one address has an eighth
// of it, or one mail of the largest size, and its /24 or /48 three times as much.
func room(options Options) *admission.Bytes {
	return admission.NewBytes(options.MaxBufferedBytes, options.MaxMessageBytes+1)
}

// source is who pays for the room of a mail, and whether that is a relay of the operator's own. A relay brings the mail of many,
// so it is no single sender: the quarter that is kept from strangers is for it.
func (e envelope) source() (source admission.Source, relay bool) {
	source = admission.SourceOf(e.client())
	return source, !source.Known()
}

// tryCounter remembers how often a mail was put off because of DNS trouble, so that it is not put off for ever.
// It is bounded by count and time and lives in this process: a restart only costs the sender one more try.
type tryCounter struct {
	now func() time.Time
	mu  sync.Mutex
	by  map[[sha256.Size]byte]tries
}

type tries struct {
	count int
	until time.Time
}

const (
	maxTriesKept = 10_000
	triesLife    = 24 * time.Hour
)

func newTryCounter(now func() time.Time) *tryCounter {
	return &tryCounter{now: now, by: map[[sha256.Size]byte]tries{}}
}

// next counts one more try of the mail and gives the number.
func (t *tryCounter) next(mail []byte) int {
	key, now := sha256.Sum256(mail), t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	entry := t.by[key]
	if now.After(entry.until) {
		entry.count = 0
	}
	entry.count++
	entry.until = now.Add(triesLife)
	if len(t.by) >= maxTriesKept {
		bounded.MakeRoom(t.by, func(e tries) bool { return now.After(e.until) })
	}
	t.by[key] = entry
	return entry.count
}
