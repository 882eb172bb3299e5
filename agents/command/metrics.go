package command

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents/upstream"
	"inbox/internal/telemetry"
)

var (
	// outcome: answered, retry, failed
	runs = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_command_runs_total", Help: "Runs of the programs of command agents by outcome.",
	}, []string{"outcome"})
	runSeconds = promauto.NewHistogram(prometheus.HistogramOpts{
		Name: "inbox_command_seconds", Help: "Time from the start of a command agent's program to its end.",
		Buckets: telemetry.NetworkSeconds,
	})
)

func observe(started time.Time, err error) {
	runSeconds.Observe(time.Since(started).Seconds())
	runs.WithLabelValues(upstream.Outcome(err)).Inc()
}
