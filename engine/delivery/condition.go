package delivery

import (
	"context"
	"slices"
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

// worsened makes the row of a failure, where there is something new to write: the first failure of a day, a pause, or
// an open breaker. Everything else stays in memory.
func (s *Service) worsened(record Record, reason string, cause error, now time.Time) (Condition, bool) {
	key, retryAfter := conditionKey(record.Channel, record.Key), fault.Of(cause).RetryAfter
	failure := Condition{Channel: record.Channel, Key: record.Key, FailedDay: dayOf(now), Reason: reason, UpdatedAt: now}
	blamed, limit := "", longest(s.schedule(record.Channel))
	if record.Address != "" && exchange.ReachOf(cause) == exchange.ReachSession {
		blamed = record.Address
	}
	s.breakers.failure(recipientKey(record), now, limit, "")
	until, opened := s.breakers.failure(key, now, limit, blamed)
	failure.Opened, failure.PausedUntil = opened, until

	if asked := now.Add(retryAfter); retryAfter > 0 && s.limits(record.Channel).WaitsTogether && asked.After(failure.PausedUntil) {
		failure.PausedUntil = asked
	}

	s.conditions.mu.Lock()
	known, found := s.conditions.known[key]
	s.conditions.mu.Unlock()
	if found && known.FailedDay == failure.FailedDay && !failure.PausedUntil.After(known.PausedUntil) {
		return failure, false
	}

	return failure, true
}

// recipientKey names one recipient of a destination, who has a breaker of their own: what they cause stops no one else there.
func recipientKey(record Record) string {
	return conditionKey(record.Channel, record.Key) + " " + record.Address
}

const (
	failureLimit  = 5                // failures inside failureWindow open the breaker
	failureWindow = 10 * time.Minute //
	probeTime     = time.Minute      // a probe that reported nothing in this time was cut off; another may go
	maxKeys       = 10000            // remembered destinations; beyond it the idle ones are forgotten
)

var pauses = []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute}

// breakers pause destinations that keep failing, so that one dead host does not eat the workers. Failures are counted
// in memory; an open breaker is a Condition too, so that other nodes and a restart know it.
type breakers struct {
	mu   sync.Mutex
	keys map[string]*breaker
}

type breaker struct {
	failures []failure
	opened   int // how often it opened in a row
	until    time.Time
	probing  time.Time // when the one attempt after a pause began; zero = none
}

// failure is one that counts. Those that a recipient may have caused count once for each recipient.
type failure struct {
	at     time.Time
	blamed string // the recipient; empty = the destination
}

func newBreakers() *breakers { return &breakers{keys: map[string]*breaker{}} }

// pause returns how long to wait before the next attempt to the key; zero = go. After a pause one probe goes through.
func (b *breakers) pause(key string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	state, ok := b.keys[key]
	if !ok || state.opened == 0 {
		return 0
	}
	if wait := state.until.Sub(now); wait > 0 {
		return wait
	}
	if now.Sub(state.probing) < probeTime {
		return time.Second
	}

	state.probing = now
	return 0
}

// adopt takes over what another node, or this one before it stopped, knew of a key.
func (b *breakers) adopt(key string, opened int, until, now time.Time) {
	if opened == 0 {
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	state, ok := b.keys[key]
	if !ok {
		b.makeRoom(now)
		state = &breaker{}
		b.keys[key] = state
	}
	if opened > state.opened {
		state.opened, state.until, state.failures = opened, until, nil
	}
}

func (b *breakers) success(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.keys, key)
}

// failure counts; limit bounds the pause, so that a short retry schedule is not outlasted by the breaker, and blamed is the recipient who may
// have caused it. It returns until when, and for how often in a row, the breaker is open; both are zero while it is closed.
func (b *breakers) failure(key string, now time.Time, limit time.Duration, blamed string) (until time.Time, opened int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	state, ok := b.keys[key]
	if !ok {
		b.makeRoom(now)
		state = &breaker{}
		b.keys[key] = state
	}

	state.failures = recent(state.failures, now)
	if known := slices.ContainsFunc(state.failures, func(f failure) bool { return f.blamed == blamed }); blamed == "" || !known {
		state.failures = append(state.failures, failure{now, blamed})
	}
	if state.probing.IsZero() && len(state.failures) < failureLimit {
		return state.until, state.opened
	}

	state.until = now.Add(min(pauses[min(state.opened, len(pauses)-1)], limit))
	state.opened++
	state.probing = time.Time{}
	state.failures = nil
	return state.until, state.opened
}

func recent(failures []failure, now time.Time) []failure {
	return slices.DeleteFunc(failures, func(f failure) bool { return now.Sub(f.at) >= failureWindow })
}

// makeRoom forgets closed breakers, and when that is not enough any one.
func (b *breakers) makeRoom(now time.Time) {
	if len(b.keys) < maxKeys {
		return
	}

	for key, state := range b.keys {
		if now.After(state.until) && len(recent(state.failures, now)) == 0 {
			delete(b.keys, key)
		}
	}

	for key := range b.keys {
		if len(b.keys) < maxKeys {
			return
		}
		delete(b.keys, key)
	}
}
