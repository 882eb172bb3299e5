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

// Pauses and attempts of Retrying (agent runtime contract, section 9).
const (
	maxAttempts = 5
	basePause   = 2 * time.Second
	maxPause    = time.Minute
)

// Retrying repeats requests that a provider refused for now (429 and 5xx) or that never reached it: up to five
// attempts, with pauses from 2 s up to a minute, or as long as the provider asks. It never repeats once a piece of the
// answer was handed on, and it gives up early where the provider asks for more than a minute or the context would end
// first; the fault then says when to come again.
func Retrying(provider Provider) Provider { return retrying{provider} }

type retrying struct{ provider Provider }

// Stream implements Provider.
func (r retrying) Stream(ctx context.Context, request Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		for attempt := 1; ; attempt++ {
			begun, err := r.attempt(ctx, request, yield)
			if err == nil || errors.Is(err, errEnough) {
				return
			}
			pause, again := pauseAfter(ctx, err, attempt)
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

func pauseAfter(ctx context.Context, err error, attempt int) (pause time.Duration, again bool) {
	said, refused := errors.AsType[*refusal](err)
	_, unsent := errors.AsType[*unsentError](err)
	if attempt >= maxAttempts || ctx.Err() != nil || !unsent && (!refused || !said.repeat) {
		return 0, false
	}
	pause = min(basePause<<(attempt-1), maxPause)
	pause -= rand.N(pause / 4) // many turns must not come again at the same moment
	if carried, is := errors.AsType[*fault.Fault](err); is && carried.RetryAfter > 0 {
		pause = carried.RetryAfter
	}
	if deadline, has := ctx.Deadline(); has && time.Until(deadline) <= pause {
		return 0, false
	}
	return pause, pause <= maxPause
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
