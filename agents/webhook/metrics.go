package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents/upstream"
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
	exchanges.WithLabelValues(upstream.Outcome(err)).Inc()
}
