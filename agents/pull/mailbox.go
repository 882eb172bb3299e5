package pull

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"inbox/normalized"
)

// Mailbox is what the nodes share: small documents in namespaces, each with an end. PutIfAbsent decides who takes a turn
// and how it ended, so it must be atomic; a document that was acknowledged must be seen by the next List of any node.
// The store's State is one.
type Mailbox interface {
	Get(ctx context.Context, namespace, key string) (value []byte, found bool, err error)
	Put(ctx context.Context, namespace, key string, value []byte, expires time.Time) error
	PutIfAbsent(ctx context.Context, namespace, key string, value []byte, expires time.Time) (current []byte, inserted bool, err error)
	Delete(ctx context.Context, namespace, key string) error
	// List returns documents with keys after the given one, in byte order of their keys.
	List(ctx context.Context, namespace, after string, limit int) (keys []string, values [][]byte, err error)
}

// One offer of one attempt of a turn is a run; its id, a UUIDv7, is also the id of the lease. What is kept:
//
//	pull.offers/{agent}  {run}       offer     runs that no program has taken, oldest first
//	pull.turns/{agent}   {turn}      pointer   the run of a turn, for who takes the turn over from a dead node
//	pull.requests        {run}       Request   what the program gets
//	pull.run/{run}       d{number}   []Delta   deltas, by the number of the first one
//	                     s-beat      text      last sign of life
//	                     s-claim     claim     the first one to write it has the run: a program, or the node to close it
//	                     s-end       end       the first one to write it decides how the run ended
const (
	offersSpace   = "pull.offers/"
	turnsSpace    = "pull.turns/"
	requestsSpace = "pull.requests"
	runSpace      = "pull.run/"

	beatKey  = "s-beat"
	claimKey = "s-claim"
	endKey   = "s-end"
	states   = "s" // List after it leaves the deltas out
)

type offer struct {
	Turn    string    `json:"turn"`
	Attempt int       `json:"attempt"`
	Until   time.Time `json:"until"` // end of all documents of the run

	Requires []string `json:"requires,omitempty"` // labels that the program must have
}

type claim struct {
	Closed  bool      `json:"closed,omitempty"` // by the node that offered it: no program can take it any more
	Agent   string    `json:"agent,omitempty"`
	Turn    string    `json:"turn,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	Until   time.Time `json:"until,omitzero"`
}

type pointer struct {
	Run         string    `json:"run"`
	Owner       string    `json:"owner"` // of the Handle that looks after the run
	Fingerprint string    `json:"fingerprint"`
	Until       time.Time `json:"until"`
}

// Outcomes of a run.
const (
	answered    = "answered"
	retried     = "retry"       // the program gave it back
	gaveUp      = "gave_up"     // the program will never answer it
	lost        = "lost"        // no sign of life within the lease
	cancelled   = "cancelled"   // the answer is not wanted any more
	undelivered = "undelivered" // the connection broke before the program had it
)

type end struct {
	Outcome  string               `json:"outcome"`
	Response *normalized.Response `json:"response,omitempty"` // answered: complete and valid
	Left     normalized.Left      `json:"left,omitzero"`      // answered: what the response had no room for
	Digest   string               `json:"digest,omitempty"`   // answered: of the body, to recognise a repeat
	Reason   string               `json:"reason,omitempty"`   // for the operator
	After    time.Duration        `json:"after,omitempty"`    // retry
}

// status is what the documents of a run say beside its deltas.
type status struct {
	claim *claim
	end   *end
	beat  string
}

// take reads one document into the status.
func (s *status) take(key string, value []byte) error {
	switch key {
	case beatKey:
		s.beat = string(value)
	case claimKey:
		return decode(value, &s.claim)
	case endKey:
		return decode(value, &s.end)
	}
	return nil
}

func decode(value []byte, into any) error {
	if err := json.Unmarshal(value, into); err != nil {
		return fmt.Errorf("read mailbox: %w", err)
	}
	return nil
}

// rows is the mailbox with our documents.
type rows struct{ mailbox Mailbox }

func (r rows) put(ctx context.Context, namespace, key string, value any, expires time.Time) error {
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write mailbox: %w", err)
	}
	return r.mailbox.Put(ctx, namespace, key, encoded, expires)
}

// first writes a document unless one is there, and reports whether it did; current is the one that is there.
func (r rows) first(ctx context.Context, namespace, key string, value, current any, expires time.Time) (bool, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return false, fmt.Errorf("write mailbox: %w", err)
	}
	found, inserted, err := r.mailbox.PutIfAbsent(ctx, namespace, key, encoded, expires)
	if err != nil || inserted || current == nil {
		return inserted, err
	}
	return false, decode(found, current)
}

// status reads claim, end and sign of life of a run.
func (r rows) status(ctx context.Context, run string) (status, error) {
	var found status
	keys, values, err := r.mailbox.List(ctx, runSpace+run, states, 8)
	for i := 0; i < len(keys) && err == nil; i++ {
		err = found.take(keys[i], values[i])
	}
	return found, err
}

// end decides how a run ended; before is how it had ended already, nil when it is decided now.
func (r rows) end(ctx context.Context, run string, how end, expires time.Time) (before *end, err error) {
	var earlier end
	won, err := r.first(ctx, runSpace+run, endKey, how, &earlier, expires)
	if err != nil || won {
		return nil, err
	}
	return &earlier, nil
}

// beat leaves a sign of life. Its value only has to differ from the last one: clocks of nodes are never compared.
func (r rows) beat(ctx context.Context, run string, expires time.Time) error {
	return r.mailbox.Put(ctx, runSpace+run, beatKey, []byte(uuid.NewString()), expires)
}

// pageLength is how many documents one read of deltas takes.
const pageLength = 200

// deltas calls with each batch after the given key, in order, and returns the status in which they were all the deltas.
func (r rows) deltas(ctx context.Context, run, after string, each func(key string, batch []byte) error) (status, error) {
	var found status
	for {
		keys, values, err := r.mailbox.List(ctx, runSpace+run, after, pageLength)
		if err != nil {
			return found, err
		}

		for i, key := range keys {
			after = key
			if strings.HasPrefix(key, "d") {
				err = each(key, values[i])
			} else {
				err = found.take(key, values[i])
			}
			if err != nil {
				return found, err
			}
		}

		if len(keys) < pageLength {
			return found, nil
		}
	}
}

// deltaKey sorts by number: seven digits hold more deltas than a turn of the longest lease can bring.
func deltaKey(number int) string { return fmt.Sprintf("d%09d", number) }

// notifier wakes waiters on this node. A notification may be spurious or missed: a waiter also looks by itself from
// time to time.
type notifier struct {
	mu      sync.Mutex
	waiting map[string][]chan struct{} // by topic, oldest first
}

func offersTopic(agent string) string { return "offers " + agent }
func endsTopic(agent string) string   { return "ends " + agent }
func runTopic(run string) string      { return "run " + run }

// listen returns a channel that gets a value when the topic rings; leave ends it.
func (b *notifier) listen(topic string) (woken <-chan struct{}, leave func()) {
	wake := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = map[string][]chan struct{}{}
	}
	b.waiting[topic] = append(b.waiting[topic], wake)
	return wake, func() { b.leave(topic, wake) }
}

func (b *notifier) leave(topic string, wake chan struct{}) {
	b.mu.Lock()
	left := b.waiting[topic][:0:0]
	for _, other := range b.waiting[topic] {
		if other != wake {
			left = append(left, other)
		}
	}

	b.waiting[topic] = left
	if len(left) == 0 {
		delete(b.waiting, topic)
	}

	b.mu.Unlock()
	select {
	case <-wake: // it was meant for another waiter
		b.notify(topic, 1)
	default:
	}
}

// notify wakes count waiters, those who have waited longest first.
func (b *notifier) notify(topic string, count int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, wake := range b.waiting[topic] {
		if count == 0 {
			return
		}
		select {
		case wake <- struct{}{}:
			count--
		default: // it is awake already
		}
	}
}

// notifyAll wakes all waiters of a topic.
func (b *notifier) notifyAll(topic string) { b.notify(topic, -1) }
