package delivery

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"inbox/exchange"
	"inbox/internal/clock"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// Guard makes an attempt of other work for a destination under the rules of deliveries: it waits while the destination
// is paused or busy, counts failures, and repeats on the channel's schedule. to.Address is whom or what the work is for behind the
// destination, who pays for what they cause (exchange.Reach). job.Attempt counts. The work's errors are classed with fault.RetryIn and fault.GiveUp.
func (s *Service) Guard(ctx context.Context, job queue.Job, channel string, to exchange.Destination, work func(context.Context) error) error {
	record := Record{Channel: channel, Key: to.Key, recipient: to.Address}
	leave, dead, err := s.enter(ctx, record)
	switch {
	case dead != nil:
		return queue.GiveUp(fault.Of(dead).Public, dead)
	case err != nil:
		return err
	}

	defer leave()
	err = work(ctx)
	if ctx.Err() != nil && err != nil {
		return ctx.Err()
	}
	return s.judge(ctx, job, record, err)
}

func (s *Service) judge(ctx context.Context, job queue.Job, record Record, err error) error {
	if err == nil || errors.Is(err, queue.ErrSettled) {
		if failure := s.also(ctx, s.recovered(ctx, record)); failure != nil {
			s.options.Logger.WarnContext(ctx, "a destination that recovered could not be noted", "destination", record.Key, "error", failure)
		}
		return err
	}

	if failure := s.also(ctx, s.failed(ctx, record, reasonOf(err), err)); failure != nil {
		s.options.Logger.WarnContext(ctx, "a failing destination could not be noted", "destination", record.Key, "error", failure)
	}

	f, schedule := fault.Of(err), s.schedule(record.Channel)
	if f.Permanent || job.Attempt > len(schedule) {
		return queue.GiveUp(f.Public, err)
	}

	return queue.RetryAfter(max(jitter(schedule[job.Attempt-1]), f.RetryAfter, time.Millisecond), err)
}

// also does a change of its own transaction; nil = none.
func (s *Service) also(ctx context.Context, change func(Tx) error) error {
	if change == nil {
		return nil
	}
	return s.options.Store.InTx(ctx, change)
}

// slotWait is how long a worker waits for a busy destination before it takes other work instead: a quick host frees
// a slot within it, a slow one must not hold the workers.
const slotWait = 250 * time.Millisecond

// enter waits until an attempt to a destination may begin. Its error holds the job back; dead means that an attempt makes
// no sense.
func (s *Service) enter(ctx context.Context, record Record) (leave func(), dead, err error) {
	channel, name := record.Channel, record.Key
	key, now, limits := conditionKey(channel, name), time.Now(), s.limits(channel)
	if condition, found := s.conditions.of(ctx, channel, name, now); found {
		if !condition.DeadAt.IsZero() {
			return nil, errDead(condition.DeadAt), nil
		}
		s.breakers.adopt(key, condition.Opened, condition.PausedUntil)
		if wait := condition.PausedUntil.Sub(now); wait > 0 {
			attempts.WithLabelValues(channel, "paused").Inc()
			return nil, nil, queue.SnoozeFor(wait + rand.N(time.Second))
		}
	}

	if wait := s.pause(record, now); wait > 0 {
		attempts.WithLabelValues(channel, "paused").Inc()
		return nil, nil, queue.SnoozeFor(wait + rand.N(time.Second))
	}

	if leave, err = s.slot(ctx, record, limits, now); err != nil { // what is not tried is no probe
		s.breakers.leave(key)
		s.recipients.leave(recipientKey(record))
	}
	return leave, nil, err
}

// pause asks the breaker of the recipient, and then that of the destination, whose probe is for those who may go.
func (s *Service) pause(record Record, now time.Time) (wait time.Duration) {
	recipient := recipientKey(record)
	if record.recipient != "" {
		wait = s.recipients.pause(recipient, "", now)
	}
	if wait > 0 {
		return wait
	}
	if wait = s.breakers.pause(conditionKey(record.Channel, record.Key), record.recipient, now); wait > 0 {
		s.recipients.leave(recipient)
	}
	return wait
}

// slot waits for what bounds the attempts to a destination and those of the node. Its error holds the job back.
func (s *Service) slot(ctx context.Context, record Record, limits exchange.DeliveryLimits, now time.Time) (leave func(), err error) {
	release, err := s.place(ctx, record, limits.Concurrency)
	if err != nil {
		return nil, queue.SnoozeFor(time.Second + rand.N(time.Second))
	}

	key := conditionKey(record.Channel, record.Key)

	wait, ok := s.rate.take(key, limits.PerSecond, limits.Burst, now, slotWait)
	if !ok {
		release()
		return nil, queue.SnoozeFor(wait + rand.N(wait/4+1))
	}
	if err := clock.Sleep(ctx, wait); err != nil {
		release()
		return nil, err
	}

	leaveActive, err := s.active.take(ctx)
	if err != nil {
		release()
		return nil, err
	}

	return func() { leaveActive(); release() }, nil
}

// place takes one of the places of a destination. One recipient leaves a place to others, and all for whom attempts failed lately leave them
// half: each of theirs may last as long as an attempt can.
func (s *Service) place(ctx context.Context, record Record, most int) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, slotWait)
	defer cancel()
	if record.recipient == "" {
		return s.perKey.Acquire(ctx, conditionKey(record.Channel, record.Key), most)
	}

	share, shared := recipientKey(record), max(1, most-1)
	if s.recipients.failing(share, time.Now()) {
		share, shared = conditionKey(record.Channel, record.Key)+" ", max(1, most/2)
	}
	leaveShare, err := s.perKey.Acquire(ctx, share, shared)
	if err != nil {
		return nil, err
	}
	leave, err := s.perKey.Acquire(ctx, conditionKey(record.Channel, record.Key), most)
	if err != nil {
		leaveShare()
		return nil, err
	}
	return func() { leave(); leaveShare() }, nil
}

// rateLimiter spaces the attempts to one key: so many in a second, and as many at once when it was quiet before.
type rateLimiter struct {
	mu   sync.Mutex
	next map[string]time.Time // when the allowance of the key is whole again
}

func newRateLimiter() *rateLimiter { return &rateLimiter{next: map[string]time.Time{}} }

// take reserves an attempt and returns how long to wait for it. A wait of more than patience reserves nothing.
func (l *rateLimiter) take(key string, perSecond float64, atOnce int, now time.Time, patience time.Duration) (wait time.Duration, ok bool) {
	if perSecond <= 0 {
		return 0, true
	}

	step := time.Duration(float64(time.Second) / perSecond)
	burst := max(time.Second-step, 0)
	if atOnce > 0 {
		burst = step * time.Duration(atOnce-1)
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	if len(l.next) >= maxKeys {
		l.forgetIdle(now)
	}

	whole := l.next[key]
	if whole.Before(now) {
		whole = now
	}
	if wait = whole.Sub(now) - burst; wait > patience {
		return wait, false
	}

	l.next[key] = whole.Add(step)
	return max(wait, 0), true
}

func (l *rateLimiter) forgetIdle(now time.Time) {
	for key, whole := range l.next {
		if whole.Before(now) {
			delete(l.next, key)
		}
	}
	if len(l.next) >= maxKeys {
		clear(l.next)
	}
}

// slotTime is how long an attempt keeps its slot of the node: to wait for a slow peer costs no processor, so the slot then
// goes to the next attempt, and peers that are dead or slow delay no other delivery.
const slotTime = time.Second

// activeSemaphore bounds the attempts that work at once on this node. A nil one bounds nothing.
type activeSemaphore chan struct{}

// take waits for a slot. The returned function frees it; that happens by itself after slotTime.
func (s activeSemaphore) take(ctx context.Context) (leave func(), err error) {
	if s == nil {
		return func() {}, nil
	}

	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}

	release := sync.OnceFunc(func() { <-s })
	timer := time.AfterFunc(slotTime, release)
	return func() { timer.Stop(); release() }, nil
}
