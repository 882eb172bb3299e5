package llm

import (
	"context"
)

// repeats remembers at_most_once calls beyond a crash, in the note of the turn.
type repeats struct{ job *job }

// Claim implements tool.Repeats.
func (r repeats) Claim(ctx context.Context, key string) (earlier map[string]any, claimed bool, err error) {
	if result, taken := r.job.note.Claims[key]; taken {
		return result, false, nil
	}
	r.job.note.claim(key, nil)
	if r.job.turn.Memory == nil {
		return nil, true, nil
	}
	return nil, true, r.job.save(ctx)
}

// Keep implements tool.Repeats.
func (r repeats) Keep(ctx context.Context, key string, result map[string]any) error {
	r.job.note.claim(key, result)
	if r.job.turn.Memory == nil {
		return nil
	}
	return r.job.save(ctx)
}
