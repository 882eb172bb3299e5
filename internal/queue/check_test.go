package queue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"inbox/internal/fault"
	"inbox/internal/queue"
)

// TestCheckSeesAStandingQueue: only a queue that does not look for work is reported; work that waits is none of its business.
func TestCheckSeesAStandingQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle := queue.New(&memory{}, queue.Options{Logger: quiet})
		idle.Handle("work", queue.KindOptions{}, nil)
		if err := idle.Check(); err != nil {
			t.Errorf("before it runs: %v", err)
		}
		<-time.After(time.Minute)
		if err := idle.Check(); !fault.Is(err, fault.Unavailable) {
			t.Errorf("it never ran: %v", err)
		}

		release := make(chan struct{})
		r := start(t, &memory{}, queue.KindOptions{
			Concurrency: 1, Limit: func(group string) int { return map[string]int{"busy": 2}[group] },
		}, func(context.Context, queue.Job) error {
			<-release
			return nil
		})
		check := func(what string, ready bool) {
			t.Helper()
			if err := r.Check(); (err == nil) != ready || err != nil && !fault.Is(err, fault.Unavailable) {
				t.Errorf("%s: %v", what, err)
			}
		}
		check("at once", true)
		r.add(queue.NewJob{Group: "paused"}, queue.NewJob{Group: "paused"}, queue.NewJob{RunAt: time.Now().Add(24 * time.Hour)})
		<-time.After(10 * time.Minute)
		check("jobs wait for a group that takes none, and for tomorrow", true)
		r.add(queue.NewJob{Group: "busy"}, queue.NewJob{Group: "busy", Member: "other"}, queue.NewJob{Group: "busy"})
		<-time.After(10 * time.Minute)
		check("all places are taken for long", true)
		close(release)
		synctest.Wait()

		r.store.fail(errors.New("read-only"))
		<-time.After(10 * time.Second)
		check("a failure that may pass", true)
		<-time.After(20 * time.Second)
		check("nothing could be claimed for long", false)
		r.store.fail(nil)
		<-time.After(10 * time.Second)
		check("it claims again", true)
		r.end()
	})
}
