package queue

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/telemetry"
)

// Label outcome: done, settled (by the handler's own transaction), retry, snooze, dead, lost (lease), released
// (server stopped), unsettled (the store did not take the outcome).
var (
	jobsEnded = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_jobs_total", Help: "Runs of jobs by kind and outcome.",
	}, []string{"kind", "outcome"})
	jobWait = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "inbox_job_wait_seconds", Help: "From storing a job to its first run.",
		Buckets: telemetry.NetworkSeconds,
	}, []string{"kind"})
	jobRun = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "inbox_job_run_seconds", Help: "Duration of one run.",
		Buckets: telemetry.NetworkSeconds,
	}, []string{"kind"})
	jobsRunning = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "inbox_jobs_running", Help: "Jobs that run in this process now.",
	}, []string{"kind"})
	jobsReady = telemetry.NewSum(prometheus.GaugeOpts{
		Name: "inbox_jobs_ready", Help: "Jobs of all nodes that could run now and wait for a worker, up to 100000; counted every 15 s.",
	}, "kind")
	oldestReady = telemetry.NewLargest(prometheus.GaugeOpts{
		Name: "inbox_jobs_oldest_ready_seconds", Help: "How long the oldest of these jobs could have run already.",
	}, "kind")
	claimFailures = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_job_claim_failures_total", Help: "Claims that the store did not answer.",
	}, []string{"kind"})
)

// meters are the metrics of one kind.
type meters struct {
	kind      string
	wait, run prometheus.Observer
	running   prometheus.Gauge
}

func metersOf(kind string) meters {
	for _, outcome := range []string{"done", "settled", "retry", "snooze", "dead", "lost", "released", "unsettled"} {
		jobsEnded.WithLabelValues(kind, outcome)
	}
	return meters{
		kind: kind, wait: jobWait.WithLabelValues(kind), run: jobRun.WithLabelValues(kind),
		running: jobsRunning.WithLabelValues(kind),
	}
}

func (m meters) ended(outcome string) { jobsEnded.WithLabelValues(m.kind, outcome).Inc() }
