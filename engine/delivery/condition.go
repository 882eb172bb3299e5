package delivery

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/telemetry"
)

var deadDestinations = telemetry.NewSum(prometheus.GaugeOpts{
	Name: "inbox_delivery_dead_destinations", Help: "Destinations that were given up after failing on many days.",
})

const (
	deadAfter      = 7               // failing days
	conditionsAge  = 5 * time.Second // how long this node may not see what another one noted
	maxConditions  = 10_000          // destinations that are remembered as failing
	secondsPerDay  = 24 * 60 * 60
	conditionsWait = 10 * time.Second // bounds one look into the store
)

// conditions is this node's view of the destinations that fail. It is read as a whole every few seconds, so that a
// delivery to a healthy destination costs no query.
type conditions struct {
	store   Store
	mu      sync.Mutex
	known   map[string]Condition // by channel and key
	stored  map[string]bool      // of these the store had a row at the last look
	closed  func(key string)     // is told of a destination whose row is gone: it works again, as another node or the operator knows
	read    time.Time
	reading bool
}

func newConditions(store Store, closed func(key string)) *conditions {
	return &conditions{store: store, known: map[string]Condition{}, stored: map[string]bool{}, closed: closed}
}

func conditionKey(channel, key string) string { return channel + " " + key }

// of returns what is known of a destination. An old view is read again by one caller, while the others go on with it.
func (c *conditions) of(ctx context.Context, channel, key string, now time.Time) (Condition, bool) {
	c.mu.Lock()
	stale := now.Sub(c.read) > conditionsAge && !c.reading
	c.reading = c.reading || stale
	c.mu.Unlock()

	if stale {
		c.refresh(ctx, now)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	condition, found := c.known[conditionKey(channel, key)]
	return condition, found
}

// refresh keeps the old view when the store does not answer: the deliveries themselves find out.
func (c *conditions) refresh(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), conditionsWait)
	defer cancel()
	list, err := c.store.Conditions(ctx, maxConditions)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading, c.read = false, now
	if err != nil {
		return
	}

	clear(c.known)
	before := c.stored
	c.stored = make(map[string]bool, len(list))
	dead := 0
	for _, one := range list {
		key := conditionKey(one.Channel, one.Key)
		c.known[key], c.stored[key] = one, true
		if !one.DeadAt.IsZero() {
			dead++
		}
	}

	deadDestinations.Set(c, float64(dead))
	for key := range before {
		if !c.stored[key] && len(list) < maxConditions {
			c.closed(key)
		}
	}
}

// note changes this node's view before the next look into the store.
func (c *conditions) note(failure Condition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := conditionKey(failure.Channel, failure.Key)
	known, found := c.known[key]
	if !found && len(c.known) >= maxConditions {
		return
	}

	if failure.PausedUntil.Before(known.PausedUntil) {
		failure.PausedUntil = known.PausedUntil
	}

	failure.FailingDays, failure.DeadAt = known.FailingDays, known.DeadAt
	c.known[key] = failure
	delete(c.stored, key) // the row of this failure is on its way
}

func (c *conditions) forget(channel, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, conditionKey(channel, key))
	delete(c.stored, conditionKey(channel, key))
}

func dayOf(t time.Time) int64 { return t.Unix() / secondsPerDay }

// Dead reports whether a destination was given up.
func (s *Service) Dead(ctx context.Context, channel, key string) bool {
	condition, found := s.conditions.of(ctx, channel, key, time.Now())
	return found && !condition.DeadAt.IsZero()
}

// errDead ends a delivery to a destination that was given up.
func errDead(since time.Time) error {
	return fault.GiveUp("the server has not taken anything on seven days and was given up on "+since.UTC().Format(time.DateOnly)+
		"; it is tried again as soon as something comes from there", nil)
}

// Alive is told of a proven sign of life of a destination: what made it count as failing or dead is forgotten. A pause
// that it asked for itself holds.
func (s *Service) Alive(ctx context.Context, channel, key string) {
	condition, found := s.conditions.of(ctx, channel, key, time.Now())
	if !found || condition.FailingDays == 0 && condition.DeadAt.IsZero() || condition.PausedUntil.After(time.Now()) && condition.Opened == 0 {
		return
	}

	err := s.options.Store.InTx(ctx, func(tx Tx) error { return tx.ClearCondition(ctx, channel, key) })
	if err != nil {
		s.options.Logger.WarnContext(ctx, "a destination that lives again could not be noted", "destination", key, "error", err)
		return
	}

	s.conditions.forget(channel, key)
	s.breakers.success(conditionKey(channel, key))
}

// worsened counts a failure that the destination may have caused, and makes its row, where there is something new to write: the first
// failure of a day that no recipient can have caused, a pause, or an open breaker. Everything else stays in memory.
func (s *Service) worsened(record Record, reason string, cause error, now time.Time) (Condition, bool) {
	key, limit := conditionKey(record.Channel, record.Key), longest(s.schedule(record.Channel))
	failure := Condition{Channel: record.Channel, Key: record.Key, FailedDay: dayOf(now), Reason: reason, UpdatedAt: now}
	blamed, asked := "", s.asked(record, cause)
	if exchange.ReachOf(cause) == exchange.ReachSession {
		blamed = record.recipient
	}
	pause, opened := s.breakers.failure(key, failedOnce{at: now, blamed: blamed, asked: asked}, limit)
	failure.Opened, failure.PausedUntil = opened, pause

	if blamed != "" {
		s.recipients.failure(recipientKey(record), failedOnce{at: now, asked: asked}, limit)
	}

	s.conditions.mu.Lock()
	known, found := s.conditions.known[key]
	s.conditions.mu.Unlock()
	newDay := blamed == "" && (!found || known.FailedDay != failure.FailedDay)
	return failure, newDay || failure.PausedUntil.After(known.PausedUntil)
}

// asked is how long the peer asks for a pause that holds for all deliveries to it.
func (s *Service) asked(record Record, cause error) time.Duration {
	if !s.limits(record.Channel).WaitsTogether {
		return 0
	}
	return fault.Of(cause).RetryAfter
}

// recipientKey names one recipient of a destination, who has a breaker of their own: what they cause stops no one else there.
func recipientKey(record Record) string {
	return conditionKey(record.Channel, record.Key) + " " + record.recipient
}

// recipientOf is who may have caused a failure of a delivery: the address together with the sender of the question, because many share an
// address, such as the inbox of a server, and what they wrote is in the answer.
func recipientOf(record Record, reply exchange.Reply) string {
	return record.Address + " " + reply.Message.Sender.Principal()
}
