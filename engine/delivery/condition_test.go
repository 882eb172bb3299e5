package delivery

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// shared is the part of the store that all nodes have: destinations that fail.
type shared struct {
	Store
	mu    sync.Mutex
	known map[string]Condition
}

func newShared() *shared { return &shared{known: map[string]Condition{}} }

func (s *shared) Conditions(context.Context, int) ([]Condition, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Condition
	for _, one := range s.known {
		list = append(list, one)
	}
	return list, nil
}

func (s *shared) InTx(_ context.Context, work func(Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return work(sharedTx{shared: s})
}

type sharedTx struct {
	Tx
	shared *shared
}

func (t sharedTx) ClearCondition(_ context.Context, channel, key string) error {
	delete(t.shared.known, conditionKey(channel, key))
	return nil
}

func (t sharedTx) WorsenCondition(_ context.Context, failure Condition, deadAfter int) error {
	old := t.shared.known[conditionKey(failure.Channel, failure.Key)]
	failure.FailingDays, failure.DeadAt = old.FailingDays, old.DeadAt
	if old.FailedDay != failure.FailedDay {
		failure.FailingDays++
	}
	if failure.FailingDays >= deadAfter && failure.DeadAt.IsZero() {
		failure.DeadAt = failure.UpdatedAt
	}
	t.shared.known[conditionKey(failure.Channel, failure.Key)] = failure
	return nil
}

func (s *shared) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known)
}

const fediverse, host = "activitypub", "peer.example"

func node(store Store) *Service { return limited(store, exchange.DeliveryLimits{}) }

func limited(store Store, limits exchange.DeliveryLimits) *Service {
	return New(Options{Store: store, Channels: exchange.NewChannels(exchange.Module{
		Name: fediverse, Policy: exchange.Policy{Schedule: []time.Duration{time.Hour, 12 * time.Hour}, Limits: limits},
	})})
}

var errDown = errors.New("connection refused")

// tries makes attempts and returns how many reached the destination.
func tries(t *testing.T, s *Service, times int, result error) (reached int) {
	t.Helper()
	for range times {
		err := s.Guard(t.Context(), queue.Job{Attempt: 1}, fediverse, exchange.Destination{Key: host}, func(context.Context) error { reached++; return result })
		if err == nil && result != nil {
			t.Error("a failure was no failure")
		}
	}
	return reached
}

// TestBreakerIsAdoptedAfterARestart: the next process, and any other node, waits as long as the one that saw the failures.
func TestBreakerIsAdoptedAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newShared()
		if reached := tries(t, node(store), failureLimit+3, errDown); reached != failureLimit {
			t.Fatalf("%d attempts, want %d", reached, failureLimit)
		}
		restarted := node(store)
		if reached := tries(t, restarted, 3, errDown); reached != 0 {
			t.Fatalf("%d attempts after the restart, while the breaker is open", reached)
		}
		<-time.After(pauses[0] + time.Second)
		if reached := tries(t, restarted, 3, errDown); reached != 1 {
			t.Fatalf("%d probes after the pause, want 1", reached)
		}
		<-time.After(pauses[0] + time.Second)
		if reached := tries(t, restarted, 1, nil); reached != 0 {
			t.Fatal("the second pause is no longer than the first")
		}
		<-time.After(pauses[1])
		if reached := tries(t, restarted, 3, nil); reached != 3 || store.count() != 0 {
			t.Errorf("%d attempts, %d rows after it took something again", reached, store.count())
		}
	})
}

// TestRevivalByInbound: who failed on seven days is given up, and lives again with the first thing that comes from there.
func TestRevivalByInbound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newShared()
		s := node(store)
		for range deadAfter {
			tries(t, s, 1, errDown)
			<-time.After(24 * time.Hour)
		}
		err := s.Guard(t.Context(), queue.Job{Attempt: 1}, fediverse, exchange.Destination{Key: host}, func(context.Context) error {
			t.Error("an attempt to a dead destination")
			return nil
		})
		if err == nil || !s.Dead(t.Context(), fediverse, host) {
			t.Fatalf("not dead after %d days: %v", deadAfter, err)
		}
		s.Alive(t.Context(), fediverse, "other.example")
		if !s.Dead(t.Context(), fediverse, host) {
			t.Fatal("another server's life revived it")
		}
		s.Alive(t.Context(), fediverse, host)
		if s.Dead(t.Context(), fediverse, host) || store.count() != 0 {
			t.Fatalf("still dead, %d rows", store.count())
		}
		if reached := tries(t, s, 1, nil); reached != 1 {
			t.Error("no attempt after the revival")
		}
	})
}

// TestAliveKeepsAPause: a server that asked us to wait may write to us meanwhile.
func TestAliveKeepsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newShared()
		s := limited(store, exchange.DeliveryLimits{WaitsTogether: true})
		tries(t, s, 1, fault.RetryIn(10*time.Minute, "429", nil))
		s.Alive(t.Context(), fediverse, host)
		if reached := tries(t, s, 1, nil); reached != 0 {
			t.Error("the pause is over too early")
		}
		<-time.After(10 * time.Minute)
		if reached := tries(t, s, 1, nil); reached != 1 {
			t.Error("the pause did not end")
		}
	})
}

// TestRatePerHost: five a second to one server, a second's worth at once after a quiet while; another server is not slowed.
func TestRatePerHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limited(newShared(), exchange.DeliveryLimits{PerSecond: 5})
		begun := time.Now()
		var at []time.Duration
		for range 11 {
			if err := s.Guard(t.Context(), queue.Job{Attempt: 1}, fediverse, exchange.Destination{Key: host}, func(context.Context) error {
				at = append(at, time.Since(begun))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		for i, when := range at {
			if want := time.Duration(max(0, i-4)) * 200 * time.Millisecond; when != want {
				t.Errorf("attempt %d after %v, want %v", i+1, when, want)
			}
		}
		other := time.Now()
		if err := s.Guard(t.Context(), queue.Job{Attempt: 1}, fediverse, exchange.Destination{Key: "other.example"}, func(context.Context) error { return nil }); err != nil || time.Since(other) != 0 {
			t.Errorf("another server waited %v: %v", time.Since(other), err)
		}
	})
}

// TestRatesAreBounded: keys are forgotten, and an attempt that would wait too long reserves nothing.
func TestRatesAreBounded(t *testing.T) {
	p, now := newRateLimiter(), time.Now()
	for i := range maxKeys + 50 {
		p.take(time.Duration(i).String(), 5, 0, now, time.Second)
	}
	if len(p.next) > maxKeys {
		t.Errorf("%d keys are remembered", len(p.next))
	}
	for range 5 {
		p.take("a", 5, 0, now, 0)
	}
	first, ok := p.take("a", 5, 0, now, 0)
	if again, _ := p.take("a", 5, 0, now, 0); ok || first != again || first != 200*time.Millisecond {
		t.Errorf("wait %v, then %v; ok %v", first, again, ok)
	}
}

// TestSlotsBoundOneHost: an attempt that finds no slot waits a moment and leaves its worker; another server has slots of its own.
func TestSlotsBoundOneHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := limited(newShared(), exchange.DeliveryLimits{Concurrency: 1})
		nothing := func(context.Context) error { return nil }
		err := s.Guard(t.Context(), queue.Job{Attempt: 1}, fediverse, exchange.Destination{Key: host}, func(ctx context.Context) error {
			begun := time.Now()
			if err := s.Guard(ctx, queue.Job{Attempt: 1}, fediverse, exchange.Destination{Key: host}, nothing); err == nil || time.Since(begun) != slotWait {
				t.Errorf("second attempt: %v after %v", err, time.Since(begun))
			}
			return s.Guard(ctx, queue.Job{Attempt: 1}, fediverse, exchange.Destination{Key: "other.example"}, nothing)
		})
		if err != nil || s.perKey.InUse() != 0 {
			t.Errorf("%v, %d keys left over", err, s.perKey.InUse())
		}
	})
}

func TestBreakerPausesAFailingKey(t *testing.T) {
	b, now := newBreakers(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range failureLimit {
		if wait := b.pause("a", "", now); wait != 0 {
			t.Fatalf("paused after %d failures", i)
		}
		b.failure("a", failedOnce{at: now}, time.Hour)
	}
	if wait := b.pause("a", "", now); wait != time.Minute {
		t.Fatalf("pause %v, want 1m", wait)
	}
	if wait := b.pause("b", "", now); wait != 0 {
		t.Fatal("another key is paused")
	}
	now = now.Add(time.Minute)
	if b.pause("a", "", now) != 0 || b.pause("a", "", now) == 0 {
		t.Fatal("after the pause exactly one probe may go")
	}
	b.failure("a", failedOnce{at: now}, time.Hour)
	if wait := b.pause("a", "", now); wait != 5*time.Minute {
		t.Fatalf("second pause %v, want 5m", wait)
	}
	b.success("a")
	if b.pause("a", "", now) != 0 {
		t.Fatal("paused after a success")
	}
}

func TestBreakerForgetsOldFailures(t *testing.T) {
	b, now := newBreakers(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 2 * failureLimit {
		b.failure("a", failedOnce{at: now}, time.Hour)
		now = now.Add(failureWindow / 2)
	}
	if b.pause("a", "", now) != 0 {
		t.Fatal("failures that are far apart opened the breaker")
	}
}

func TestBreakersAreBounded(t *testing.T) {
	b, now := newBreakers(), time.Now()
	for i := range maxKeys + 50 {
		b.failure(time.Duration(i).String(), failedOnce{at: now}, time.Hour)
	}
	if b.keys.Len() > maxKeys {
		t.Fatalf("%d keys are remembered", b.keys.Len())
	}
}
