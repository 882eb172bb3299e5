package remote

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/fault"
	"inbox/internal/telemetry"
	"inbox/normalized"
)

var (
	// outcome: completed, input_required, failed, retry, given_up, stopped
	exchanges = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_remote_exchanges_total", Help: "Turns passed on to A2A agents elsewhere by outcome.",
	}, []string{"outcome"})
	exchangeSeconds = promauto.NewHistogram(prometheus.HistogramOpts{
		Name: "inbox_remote_seconds", Help: "Time from passing a turn on to the end of its answer.",
		Buckets: telemetry.NetworkSeconds,
	})
	// how: resubscribed, polled, repeated, followed
	recoveries = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_remote_recoveries_total", Help: "Answers that were cut off or could not be streamed, by how they were got.",
	}, []string{"how"})
	// outcome: valid, forged, unknown (no key of the card's origin)
	cardSignatures = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_remote_card_signatures_total", Help: "Signed cards of A2A agents elsewhere by outcome.",
	}, []string{"outcome"})
)

func observe(started time.Time, response normalized.Response, err error) {
	exchangeSeconds.Observe(time.Since(started).Seconds())
	exchanges.WithLabelValues(outcome(response, err)).Inc()
}

func outcome(response normalized.Response, err error) string {
	switch {
	case err == nil:
		return response.Outcome()
	case errors.Is(err, errStopped):
		return "stopped"
	case fault.Of(err).Permanent:
		return "given_up"
	}
	return "retry"
}
