package agents

import (
	"time"

	"inbox/internal/fault"
)

// RetryPolicy says what becomes of a turn while the agent's back end fails for reasons that pass.
type RetryPolicy struct {
	// Schedule are the waits before a run is repeated, the last of them again and again while its sum lasts: so long the
	// turn is kept. Nil = DefaultRetrySchedule. Waiting is the same where someone waits for the answer.
	Schedule []time.Duration
	Waiting  []time.Duration
	// Rate bounds how many turns a second each node sends to a back end that is back; zero = DefaultRetryRate.
	Rate float64
	// Probe is the pause between two probes of a back end that failed, which carry no message; zero = DefaultProbe.
	Probe time.Duration
	// StaleAfter is the age from which Stale decides about a turn that has not been answered; zero = never.
	StaleAfter time.Duration
	Stale      string // see the Stale constants; empty = answer
}

// Values of RetryPolicy.Stale.
const (
	StaleAnswer    = "answer"    // the agent answers late, and is told the age
	StaleApologise = "apologise" // the sender reads that there is no answer
	StaleHold      = "hold"      // the operator decides
	StaleDrop      = "drop"      // refused, and the sender is not written to
)

// DefaultRetryRate is the number of turns a second that a back end gets when it is back.
const DefaultRetryRate = 15

// DefaultProbe is the pause between two probes of a back end that failed.
const DefaultProbe = 10 * time.Second

// DefaultRetrySchedule keeps a turn for about a day: mail and the fediverse are used to that.
func DefaultRetrySchedule() []time.Duration {
	return []time.Duration{
		2 * time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute,
		time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 8 * time.Hour,
	}
}

// DefaultRetryWaiting ends within a minute, where someone waits on an open connection.
func DefaultRetryWaiting() []time.Duration {
	return []time.Duration{2 * time.Second, 10 * time.Second, 30 * time.Second}
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.Schedule == nil {
		p.Schedule = DefaultRetrySchedule()
	}
	if p.Waiting == nil {
		p.Waiting = DefaultRetryWaiting()
	}
	if p.Rate == 0 {
		p.Rate = DefaultRetryRate
	}
	if p.Probe == 0 {
		p.Probe = DefaultProbe
	}
	if p.Stale == "" {
		p.Stale = StaleAnswer
	}
	return p
}

func (p RetryPolicy) validate() error {
	for _, wait := range append(append([]time.Duration{}, p.Schedule...), p.Waiting...) {
		if wait <= 0 {
			return fault.InField("retry.schedule", "must be positive times")
		}
	}

	if p.Rate < 0 || p.Probe < 0 || p.StaleAfter < 0 {
		return fault.InField("retry.rate", "and stale_after must not be negative")
	}

	switch p.Stale {
	case StaleAnswer, StaleApologise, StaleHold, StaleDrop:
		return nil
	}
	return fault.InField("retry.stale", `must be "answer", "apologise", "hold" or "drop"`)
}

// Of returns the schedule of a turn for whose answer someone waits, or does not.
func (p RetryPolicy) Of(awaited bool) []time.Duration {
	if awaited {
		return p.Waiting
	}
	return p.Schedule
}
