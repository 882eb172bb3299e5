package delivery

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestBreakerPausesAFailingKey(t *testing.T) {
	b, now := newBreakers(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range failureLimit {
		if wait := b.pause("a", now); wait != 0 {
			t.Fatalf("paused after %d failures", i)
		}
		b.failure("a", now, time.Hour)
	}
	if wait := b.pause("a", now); wait != time.Minute {
		t.Fatalf("pause %v, want 1m", wait)
	}
	if wait := b.pause("b", now); wait != 0 {
		t.Fatal("another key is paused")
	}
	now = now.Add(time.Minute)
	if b.pause("a", now) != 0 || b.pause("a", now) == 0 {
		t.Fatal("after the pause exactly one probe may go")
	}
	b.failure("a", now, time.Hour)
	if wait := b.pause("a", now); wait != 5*time.Minute {
		t.Fatalf("second pause %v, want 5m", wait)
	}
	b.success("a")
	if b.pause("a", now) != 0 {
		t.Fatal("paused after a success")
	}
}

func TestBreakerForgetsOldFailures(t *testing.T) {
	b, now := newBreakers(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 2 * failureLimit {
		b.failure("a", now, time.Hour)
		now = now.Add(failureWindow / 2)
	}
	if b.pause("a", now) != 0 {
		t.Fatal("failures that are far apart opened the breaker")
	}
}

func TestBreakersAreBounded(t *testing.T) {
	b, now := newBreakers(), time.Now()
	for i := range maxKeys + 50 {
		b.failure(time.Duration(i).String(), now, time.Hour)
	}
	if len(b.keys) > maxKeys {
		t.Fatalf("%d keys are remembered", len(b.keys))
	}
}

func TestSlotsBoundOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newKeyedSemaphore()
		first, ok1 := s.acquire(context.Background(), "a", 2)
		second, ok2 := s.acquire(context.Background(), "a", 2)
		if !ok1 || !ok2 {
			t.Fatal("free slots were refused")
		}
		begun := time.Now()
		if _, ok := s.acquire(context.Background(), "a", 2); ok || time.Since(begun) != slotWait {
			t.Fatalf("third slot: %v after %v", ok, time.Since(begun))
		}
		if release, ok := s.acquire(context.Background(), "b", 2); !ok {
			t.Fatal("another key waits")
		} else {
			release()
		}
		first()
		second()
		if len(s.used) != 0 {
			t.Fatalf("%d keys left", len(s.used))
		}
	})
}
