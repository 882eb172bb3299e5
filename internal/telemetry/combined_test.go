package telemetry

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestCombined(t *testing.T) {
	gauges := map[string]*Combined{
		"sum":     NewSum(prometheus.GaugeOpts{Name: "test_combined_sum"}, "kind"),
		"largest": NewLargest(prometheus.GaugeOpts{Name: "test_combined_largest"}, "kind"),
		"least":   NewLeast(prometheus.GaugeOpts{Name: "test_combined_least"}, "kind"),
	}
	for name, want := range map[string][4]float64{"sum": {2, 7, 5, 0}, "largest": {2, 5, 5, 0}, "least": {2, 2, 5, 0}} {
		gauge := gauges[name]
		shows := func(step int, kind string, value float64) {
			t.Helper()
			gauge.Show(kind)
			if got := shown(t, "test_combined_"+name, kind); got != value {
				t.Errorf("%s shows %g after step %d, want %g", name, got, step, value)
			}
		}
		gauge.Set("first", 9, "turn")
		gauge.Set("first", 2, "turn")
		shows(0, "turn", want[0])
		gauge.Set("second", 5, "turn")
		shows(1, "turn", want[1])
		shows(1, "other", 0)
		gauge.Leave("first")
		shows(2, "turn", want[2])
		gauge.Leave("second")
		shows(3, "turn", want[3])
	}

	plain := NewLeast(prometheus.GaugeOpts{Name: "test_combined_plain"})
	plain.Set("first", 3)
	if got := shown(t, "test_combined_plain", ""); got != 3 {
		t.Errorf("a gauge without labels shows %g", got)
	}
}

// shown is the value of a series, with the label's value where it has one.
func shown(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, one := range family.GetMetric() {
			if family.GetName() == name && (label == "" || one.GetLabel()[0].GetValue() == label) {
				return one.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no series %s of %q", name, label)
	return 0
}
