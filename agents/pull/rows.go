package pull

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/normalized"
)

// Outcomes of a run.
const (
	answered    = "answered"
	retried     = "retry"       // the program gave it back
	gaveUp      = "gave_up"     // the program will never answer it
	lost        = "lost"        // no sign of life within the lease
	cancelled   = "cancelled"   // nobody wants the answer any more
	undelivered = "undelivered" // the connection broke before the program had it
)

type end struct {
	Outcome  string               `json:"outcome"`
	Response *normalized.Response `json:"response,omitempty"` // answered: complete and valid
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
