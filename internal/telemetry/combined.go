package telemetry

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Combined is a gauge to which several owners in the process contribute, such as the domains of a server: its value is what combine makes
// of theirs.
type Combined struct {
	gauge   *prometheus.GaugeVec
	combine func(values []float64) float64

	mu    sync.Mutex
	parts map[string]map[any]float64 // by labels
}

// NewSum makes a gauge that shows the sum of what its owners set.
func NewSum(options prometheus.GaugeOpts, labels ...string) *Combined {
	return newCombined(options, labels, func(values []float64) (sum float64) {
		for _, value := range values {
			sum += value
		}
		return sum
	})
}

// NewLargest makes a gauge that shows the largest of what its owners set.
func NewLargest(options prometheus.GaugeOpts, labels ...string) *Combined {
	return newCombined(options, labels, slices.Max[[]float64])
}

// NewLeast makes a gauge that shows the smallest of what its owners set.
func NewLeast(options prometheus.GaugeOpts, labels ...string) *Combined {
	return newCombined(options, labels, slices.Min[[]float64])
}

func newCombined(options prometheus.GaugeOpts, labels []string, combine func([]float64) float64) *Combined {
	c := &Combined{gauge: prometheus.NewGaugeVec(options, labels), combine: combine, parts: map[string]map[any]float64{}}
	prometheus.MustRegister(c.gauge)
	if len(labels) == 0 {
		c.Show()
	}
	return c
}

// Set puts an owner's value for the labels, which are as many as the gauge has.
func (c *Combined) Set(owner any, value float64, labels ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := strings.Join(labels, "\x00")
	if c.parts[key] == nil {
		c.parts[key] = map[any]float64{}
	}
	c.parts[key][owner] = value
	c.show(key)
}

// Show makes the series of the labels, at 0 where no one has set it, so that an alert sees its first change.
func (c *Combined) Show(labels ...string) { c.gauge.WithLabelValues(labels...) }

// Leave takes back all values of an owner that has ended. A gauge without owners keeps its series, at 0.
func (c *Combined) Leave(owner any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, parts := range c.parts {
		if _, is := parts[owner]; is {
			delete(parts, owner)
			c.show(key)
		}
	}
}

func (c *Combined) show(key string) {
	labels, value := strings.Split(key, "\x00"), 0.0
	if key == "" {
		labels = nil
	}
	if parts := slices.Collect(maps.Values(c.parts[key])); len(parts) > 0 {
		value = c.combine(parts)
	}
	c.gauge.WithLabelValues(labels...).Set(value)
}
