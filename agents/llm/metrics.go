package llm

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/fault"
	"inbox/internal/telemetry"
)

var (
	// outcome: answered, retry, failed, stopped
	modelRequests = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_model_requests_total", Help: "Requests to model providers by outcome, each attempt counted.",
	}, []string{"outcome"})
	modelSeconds = promauto.NewHistogram(prometheus.HistogramOpts{
		Name: "inbox_model_seconds", Help: "Time from a request to a model provider to the end of its answer.",
		Buckets: telemetry.NetworkSeconds,
	})
	// kind: input, output, cache_read, cache_write
	modelTokens = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_model_tokens_total", Help: "Tokens that model providers counted; input holds those of the cache.",
	}, []string{"kind"})
)

func observeRequest(started time.Time, err error) {
	modelSeconds.Observe(time.Since(started).Seconds())
	outcome := "answered"
	carried, faulty := errors.AsType[*fault.Fault](err)
	switch {
	case faulty && carried.Permanent:
		outcome = "failed"
	case faulty:
		outcome = "retry"
	case err != nil:
		outcome = "stopped"
	}
	modelRequests.WithLabelValues(outcome).Inc()
}

func observeTokens(usage Usage) {
	for kind, count := range map[string]int64{
		"input": usage.Input, "output": usage.Output, "cache_read": usage.CacheRead, "cache_write": usage.CacheWrite,
	} {
		modelTokens.WithLabelValues(kind).Add(float64(max(0, count)))
	}
}
