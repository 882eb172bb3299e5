package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/fault"
	"inbox/internal/telemetry"
)

var (
	// outcome: answered, retry, failed
	exchanges = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_webhook_exchanges_total", Help: "Requests to webhook agents by outcome.",
	}, []string{"outcome"})
	exchangeSeconds = promauto.NewHistogram(prometheus.HistogramOpts{
		Name: "inbox_webhook_seconds", Help: "Time from the request to a webhook agent to the end of its answer.",
		Buckets: telemetry.NetworkSeconds,
	})
)

func observe(started time.Time, err error) {
	exchangeSeconds.Observe(time.Since(started).Seconds())
	outcome := "answered"
	if err != nil {
		outcome = "retry"
		if fault.Of(err).Permanent {
			outcome = "failed"
		}
	}
	exchanges.WithLabelValues(outcome).Inc()
}
