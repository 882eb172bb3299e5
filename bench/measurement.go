package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// measurement is what a scenario saw.
type measurement struct {
	latencies []time.Duration // of successes
	elapsed   time.Duration   // zero = no rate
	completed int             // in that time, where it is not the number of latencies; 0 = it is
	errors    int
	err       error // the last one
}

func merge(parts []measurement) measurement {
	var total measurement
	for _, part := range parts {
		total.latencies = append(total.latencies, part.latencies...)
		total.errors += part.errors
		if part.err != nil {
			total.err = part.err
		}
	}
	return total
}

// problem makes a measurement with more than one failure in a hundred worthless.
func (m measurement) problem() error {
	if m.errors*100 > len(m.latencies) {
		return fmt.Errorf("%d of %d attempts failed; the last: %w", m.errors, m.errors+len(m.latencies), m.err)
	}
	return nil
}

func (m measurement) result(memory int64) Result {
	slices.Sort(m.latencies)
	result := Result{
		P50: m.percentile(50), P95: m.percentile(95), P99: m.percentile(99), RSS: round(float64(memory) / (1 << 20)),
	}
	if m.elapsed > 0 {
		result.PerSecond = round(float64(cmp.Or(m.completed, len(m.latencies))) / m.elapsed.Seconds())
	}
	return result
}

// percentile is by nearest rank, in milliseconds.
func (m measurement) percentile(percent int) float64 {
	if len(m.latencies) == 0 {
		return 0
	}
	rank := (len(m.latencies)*percent + 99) / 100
	return round(float64(m.latencies[max(rank-1, 0)]) / float64(time.Millisecond))
}

func round(value float64) float64 { return math.Round(value*10) / 10 }
