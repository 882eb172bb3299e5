package telemetry

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Buckets for histograms, so that panels of different rooms can be laid over each other. They must not be changed.
var (
	// FastSeconds is for work inside the process and the database: 50 µs to 1 s.
	FastSeconds = []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1}
	// NetworkSeconds is for one exchange with a peer: 500 µs to 60 s.
	NetworkSeconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60}
	// RunSeconds is for runs of agents and whole conversations: 5 ms to 1 h.
	RunSeconds = []float64{.005, .025, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600}
	// Bytes is for sizes: 256 B to 64 MiB.
	Bytes = []float64{1 << 8, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}
)

// CertificateNotAfter is when the certificate of a name ends, wherever it came from. label name: a host of the settings, or of
// the operator's certificate file.
var CertificateNotAfter = promauto.NewGaugeVec(prometheus.GaugeOpts{
	Name: "inbox_certificate_not_after_seconds",
	Help: "When the certificate of a name ends, in seconds since 1970.",
}, []string{"name"})

// MetricsHandler serves all metrics of the process in the Prometheus and OpenMetrics formats.
func MetricsHandler() http.Handler { return promhttp.Handler() }
