package pipeline

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
)

// TestRefusalsOfTheStore: a run of refused messages is reported until a message is stored; without damage also until a while has passed.
// Neither a refusal by a rule nor a duplicate ends the run.
func TestRefusalsOfTheStore(t *testing.T) {
	full := fmt.Errorf("store message: %w", fault.Wrap(fault.Unavailable, "later", fault.ErrStore))
	broken := fault.Wrap(fault.Unavailable, "later", errors.Join(fault.ErrStore, fault.ErrDamaged))
	left := fault.Wrap(fault.Unavailable, "later", errors.Join(fault.ErrStore, context.Canceled))
	policy := fault.New(fault.Forbidden, "not you")
	const stored = exchange.StateAccepted

	type result struct {
		outcome string
		err     error
	}
	for name, row := range map[string]struct {
		results []result
		at      time.Duration // after the last result
		refuses bool
	}{
		"nothing came":                  {nil, 0, false},
		"two of them":                   {[]result{{"", full}, {"", full}}, 0, false},
		"three of them":                 {[]result{{"", full}, {"", full}, {"", full}}, 0, true},
		"others are stored between":     {[]result{{"", full}, {"", full}, {stored, nil}, {"", full}}, 0, false},
		"rules and repeats between":     {[]result{{"", full}, {outcomeRefused, policy}, {"", full}, {outcomeDuplicate, nil}, {"", full}}, 0, true},
		"callers who left":              {[]result{{"", left}, {"", left}, {"", left}}, 0, false},
		"a while ago":                   {[]result{{"", full}, {"", full}, {"", full}}, refusalQuiet, false},
		"damage a while ago":            {[]result{{"", full}, {"", full}, {"", broken}}, 24 * time.Hour, true},
		"damage, then a stored message": {[]result{{"", broken}, {"", broken}, {"", broken}, {stored, nil}}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			var r refusals
			now := time.Now()
			for _, one := range row.results {
				r.note(one.outcome, one.err, now)
			}
			if err := r.check(now.Add(row.at)); (err != nil) != row.refuses {
				t.Errorf("refuses: %v, want %v", err, row.refuses)
			}
		})
	}
}
