package load

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Ledger joins what a server acknowledged with the replies that came back. A reply that comes twice with one wire id
// is the recognisable repeat that receivers drop; two wire ids for one message are two replies.
type Ledger struct {
	mu      sync.Mutex
	entries map[string]*entry
	changed chan struct{} // closed and replaced with every change
}

type entry struct {
	protocol     string
	sent         time.Time
	acknowledged bool
	replied      time.Time
	replies      map[string]int
	answered     chan struct{} // closed with the first reply
}

// NewLedger makes an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{entries: map[string]*entry{}, changed: make(chan struct{})}
}

func (l *Ledger) find(id string) *entry {
	found, exists := l.entries[id]
	if !exists {
		found = &entry{replies: map[string]int{}, answered: make(chan struct{})}
		l.entries[id] = found
	}
	return found
}

func (l *Ledger) announce() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Sent notes the moment of the first attempt.
func (l *Ledger) Sent(protocol, id string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.find(id)
	found.protocol = protocol
	if found.sent.IsZero() {
		found.sent = at
	}
}

// Acknowledged notes that the server took responsibility for the message.
func (l *Ledger) Acknowledged(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.find(id).acknowledged = true
	l.announce()
}

// Taken returns the messages that the server took responsibility for until now.
func (l *Ledger) Taken() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := map[string]bool{}
	for id, found := range l.entries {
		if found.acknowledged {
			taken[id] = true
		}
	}
	return taken
}

// Replies counts the replies to a message: different wire ids, and how often one of them was seen again.
func (l *Ledger) Replies(id string) (replies, repeats int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, times := range l.find(id).replies {
		replies, repeats = replies+1, repeats+times-1
	}
	return replies, repeats
}

// Replied notes a reply with its wire id.
func (l *Ledger) Replied(id, wireID string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.find(id)
	found.replies[wireID]++
	if found.replied.IsZero() {
		found.replied = at
		close(found.answered)
	}
	l.announce()
}

// Answered returns a channel that is closed with the first reply to a message.
func (l *Ledger) Answered(id string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.find(id).answered
}

// Changed returns a channel that is closed with the next acknowledgement or reply.
func (l *Ledger) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Counts is the state of a ledger, of one protocol or of all.
type Counts struct {
	Sent, Acknowledged, Replied int
	Missing                     int      // acknowledged and not replied
	Doubled                     int      // more than one wire id
	Repeated                    int      // one wire id, seen again
	Unasked                     int      // replies to messages that were never sent
	Examples                    []string // a few ids of missing, doubled and unasked, with the reason
}

// String is one line for a report.
func (c Counts) String() string {
	return fmt.Sprintf("sent %d, acknowledged %d, replied %d, missing %d, doubled %d, recognisable repeats %d, unasked %d",
		c.Sent, c.Acknowledged, c.Replied, c.Missing, c.Doubled, c.Repeated, c.Unasked)
}

const maxExamples = 10

func (c *Counts) note(why, id string) {
	if len(c.Examples) < maxExamples {
		c.Examples = append(c.Examples, why+" "+id)
	}
}

// Count sums up; an empty protocol means all of them.
func (l *Ledger) Count(protocol string) Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	var counts Counts
	for id, found := range l.entries {
		if protocol == "" || found.protocol == protocol {
			counts.add(id, found)
		}
	}

	slices.Sort(counts.Examples)
	return counts
}

func (c *Counts) add(id string, found *entry) {
	if found.sent.IsZero() {
		c.Unasked++
		c.note("unasked", id)
		return
	}

	c.Sent++
	if found.acknowledged {
		c.Acknowledged++
	}

	if len(found.replies) > 0 {
		c.Replied++
	} else if found.acknowledged {
		c.Missing++
		c.note("missing", id)
	}

	if len(found.replies) > 1 {
		c.Doubled++
		c.note("doubled", id)
	}

	for _, times := range found.replies {
		c.Repeated += times - 1
	}
}

// Latencies returns the time from the first attempt to the first reply of every message that has one.
func (l *Ledger) Latencies(protocol string) []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var latencies []time.Duration
	for _, found := range l.entries {
		if found.protocol == protocol && !found.replied.IsZero() && !found.sent.IsZero() {
			latencies = append(latencies, found.replied.Sub(found.sent))
		}
	}
	return latencies
}
