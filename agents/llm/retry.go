package llm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"inbox/internal/fault"
)

// Retry bounds how often and when a refused request is made again. Zero fields have the defaults of the agent runtime
// contract, section 9.
type Retry struct {
	Attempts int           // the first one counts; zero = DefaultAttempts
	Base     time.Duration // pause before the second attempt, doubled each time; zero = DefaultRetryBase
	Max      time.Duration // longest pause; zero = DefaultRetryMax
}

// Defaults of Retry.
const (
	DefaultAttempts  = 5
	DefaultRetryBase = 2 * time.Second
	DefaultRetryMax  = time.Minute
)

func (r Retry) withDefaults() Retry {
	if r.Attempts == 0 {
		r.Attempts = DefaultAttempts
	}
	if r.Base == 0 {
		r.Base = DefaultRetryBase
	}
	if r.Max == 0 {
		r.Max = DefaultRetryMax
	}
	return r
}

// Retrying repeats requests that a provider refused for now (429 and 5xx) or that never reached it, within the bounds and
// as late as the provider asks. It never repeats once a piece of the answer was handed on, and it gives up early where the
// provider asks for a longer pause than Max or the context would end first; the fault then says when to come again.
func Retrying(provider Provider, bounds Retry) Provider {
	return retrying{provider, bounds.withDefaults()}
}

type retrying struct {
	provider Provider
	bounds   Retry
}

// Stream implements Provider.
func (r retrying) Stream(ctx context.Context, request Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		for attempt := 1; ; attempt++ {
			begun, err := r.attempt(ctx, request, yield)
			if err == nil || errors.Is(err, errEnough) {
				return
			}
			pause, again := r.bounds.pauseAfter(ctx, err, attempt)
			if begun || !again {
				yield(Delta{}, err)
				return
			}
			if !sleep(ctx, pause) {
				yield(Delta{}, fmt.Errorf("ask model: %w", context.Cause(ctx)))
				return
			}
		}
	}
}

// attempt hands one answer on. begun says whether a piece of it was: a count of tokens is none.
func (r retrying) attempt(ctx context.Context, request Request, yield func(Delta, error) bool) (begun bool, err error) {
	for delta, err := range r.provider.Stream(ctx, request) {
		if err != nil {
			return begun, err
		}
		begun = begun || delta.Kind != DeltaUsage
		if !yield(delta, nil) {
			return begun, errEnough
		}
	}
	return begun, nil
}

func (r Retry) pauseAfter(ctx context.Context, err error, attempt int) (pause time.Duration, again bool) {
	said, refused := errors.AsType[*refusal](err)
	_, unsent := errors.AsType[*unsentError](err)
	if attempt >= r.Attempts || ctx.Err() != nil || !unsent && (!refused || !said.repeat) {
		return 0, false
	}
	pause = r.pause(attempt)
	pause -= rand.N(max(1, pause/4)) // many turns must not come again at the same moment
	if carried, is := errors.AsType[*fault.Fault](err); is && carried.RetryAfter > 0 {
		pause = carried.RetryAfter
	}
	if deadline, has := ctx.Deadline(); has && time.Until(deadline) <= pause {
		return 0, false
	}
	return pause, pause <= r.Max
}

// pause doubles without overflow.
func (r Retry) pause(attempt int) time.Duration {
	pause := r.Base
	for range attempt - 1 {
		if pause >= r.Max {
			break
		}
		pause *= 2
	}
	return min(pause, r.Max)
}

// sleep waits and says whether the context lasted.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
