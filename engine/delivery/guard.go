package delivery

import (
	"context"
	"errors"
	"time"

	"inbox/internal/fault"
	"inbox/internal/queue"
)

// Guard makes an attempt of other work for a destination under the rules of deliveries: it waits while the destination
// is paused or busy, counts failures, and repeats on the channel's schedule. job.Attempt counts. The work's errors are
// classed with fault.RetryIn and fault.GiveUp.
func (s *Service) Guard(ctx context.Context, job queue.Job, channel, key string, work func(context.Context) error) error {
	leave, dead, err := s.enter(ctx, channel, key)
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
	return s.judge(ctx, job, Record{Channel: channel, Key: key}, err)
}

func (s *Service) judge(ctx context.Context, job queue.Job, record Record, err error) error {
	if err == nil || errors.Is(err, queue.ErrSettled) {
		if failure := s.also(ctx, s.recovered(ctx, record.Channel, record.Key)); failure != nil {
			s.options.Logger.WarnContext(ctx, "a destination that recovered could not be noted", "destination", record.Key, "error", failure)
		}
		return err
	}
	f, schedule := fault.Of(err), s.schedule(record.Channel)
	if f.Permanent || job.Attempt > len(schedule) {
		return queue.GiveUp(f.Public, err)
	}
	if failure := s.also(ctx, s.failed(ctx, record, reasonOf(err), f.RetryAfter)); failure != nil {
		s.options.Logger.WarnContext(ctx, "a failing destination could not be noted", "destination", record.Key, "error", failure)
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
