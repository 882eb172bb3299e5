package pull

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents"
	"inbox/internal/fault"
)

var (
	// outcome: answered, retry, failed, stopped (by the engine), returned (nobody was there any more)
	turns = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_pull_turns_total", Help: "Turns that were offered to programs behind NAT, by outcome.",
	}, []string{"outcome"})
	// outcome: taken, empty, undelivered
	takes = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_pull_takes_total", Help: "Requests for a turn by outcome; a stream counts each turn.",
	}, []string{"outcome"})
	pollers = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "inbox_pull_pollers", Help: "Requests that wait for a turn.",
	})
)

func observe(err error, stopped bool) {
	outcome := "answered"
	switch {
	case errors.Is(err, agents.ErrNoWorker):
		outcome = "returned"
	case stopped, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		outcome = "stopped"
	case err != nil && fault.Of(err).Permanent:
		outcome = "failed"
	case err != nil:
		outcome = "retry"
	}
	turns.WithLabelValues(outcome).Inc()
}
