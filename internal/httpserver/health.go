package httpserver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"inbox/internal/fault"
	"inbox/internal/telemetry"
)

// Check is one condition of readiness. Run returns nil when it holds, in two seconds at most; a fault's public text is shown to every caller that
// asks, everything else only goes to the log.
type Check struct {
	Name string
	Run  func(ctx context.Context) error
	// Remedy is what the operator can do when it does not hold.
	Remedy string
	// Bystander says that the node takes messages all the same: the check is shown, and a balancer keeps the node.
	Bystander bool
	// State says instead of "ok" what else there is to know of a condition that holds; nil or empty = nothing. It must not block.
	State func() string
}

const (
	checkTimeout = 2 * time.Second
	checkEvery   = time.Second // more questions than this get the same answer, so that strangers cannot load the store
)

// Readiness asks conditions for a page, as /readyz does: at most once a second, for all that ask. It is safe for use by many goroutines.
type Readiness struct{ health }

// NewReadiness makes one. What fails is in the log of /readyz already.
func NewReadiness(checks []Check) *Readiness {
	return &Readiness{health{checks: checks, logger: slog.New(slog.DiscardHandler)}}
}

// Look returns what was found of every condition, in two seconds at most.
func (r *Readiness) Look(ctx context.Context) []Detail {
	return r.check(context.WithoutCancel(ctx)).Details
}

// health answers /healthz, /readyz and /metrics.
type health struct {
	checks   []Check
	metrics  func(*http.Request) error // refuses who may not read them; nil = they are not here
	logger   *slog.Logger
	stopping <-chan struct{}

	mutex   sync.Mutex
	checked time.Time
	last    readiness
	asked   []chan error // of the checks that have not come back
}

type readiness struct {
	Ready  bool              `json:"ready"`
	Reason string            `json:"reason,omitempty"`
	Checks map[string]string `json:"checks,omitempty"` // "ok" or what is wrong

	Details []Detail `json:"details,omitempty"` // the same, with what to do
}

// Detail is what was found of one Check.
type Detail struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Required bool   `json:"required"` // without it the node is not ready
	Reason   string `json:"reason,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
}

func (h *health) routes() []Route {
	routes := []Route{
		{http.MethodGet, "/healthz", http.HandlerFunc(h.alive)},
		{http.MethodGet, "/readyz", http.HandlerFunc(h.ready)},
	}
	if h.metrics != nil {
		routes = append(routes, Route{http.MethodGet, "/metrics", http.HandlerFunc(h.showMetrics)})
	}
	return routes
}

// Inside refuses clients outside of the operator's networks (Options.Inside).
func Inside(r *http.Request) error {
	if !inside(r) {
		return fault.New(fault.Forbidden, "metrics are shown to the networks of http.inside, to operators' tokens and at admin.listen")
	}
	return nil
}

func (h *health) showMetrics(w http.ResponseWriter, r *http.Request) {
	if err := h.metrics(r); err != nil {
		WriteFault(w, err)
		return
	}
	telemetry.MetricsHandler().ServeHTTP(w, r)
}

func (h *health) alive(w http.ResponseWriter, _ *http.Request) {
	WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (h *health) ready(w http.ResponseWriter, r *http.Request) {
	answer := h.stopped()
	if answer.Ready {
		answer = h.check(context.WithoutCancel(r.Context()))
	}

	status := http.StatusOK
	if !answer.Ready {
		status = http.StatusServiceUnavailable
		setRetryAfter(w.Header(), 0)
	}
	WriteJSON(w, status, answer)
}

func (h *health) stopped() readiness {
	select {
	case <-h.stopping:
		return readiness{Reason: "the server is stopping"}
	default:
		return readiness{Ready: true}
	}
}

// check runs the conditions side by side, at most once a second, and waits for them no longer than checkTimeout.
func (h *health) check(ctx context.Context) readiness {
	h.mutex.Lock()
	defer h.mutex.Unlock()

	if time.Since(h.checked) < checkEvery {
		return h.last
	}

	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()

	if h.asked == nil {
		h.asked = make([]chan error, len(h.checks))
	}

	results := make([]error, len(h.checks))
	var group sync.WaitGroup
	for i := range h.checks {
		group.Go(func() { results[i] = h.ask(ctx, i) })
	}

	group.Wait()
	before := h.last
	h.last, h.checked = h.summary(results), time.Now()
	h.logChange(ctx, before, results)
	return h.last
}

// ask runs a condition until ctx ends. One that hangs all the same, as a write does on a disk that does not answer, is not
// asked again before it has come back.
func (h *health) ask(ctx context.Context, i int) error {
	if len(h.asked[i]) > 0 { // it came too late to count
		h.asked[i] = nil
	}

	if h.asked[i] == nil {
		answer := make(chan error, 1)
		h.asked[i] = answer
		go func() { answer <- h.checks[i].Run(ctx) }()
	}

	select {
	case err := <-h.asked[i]:
		h.asked[i] = nil
		return err
	case <-ctx.Done():
		return fault.Wrap(fault.Unavailable, "no answer in time", ctx.Err())
	}
}

func (h *health) summary(results []error) readiness {
	summary := readiness{Ready: true, Checks: make(map[string]string, len(results))}
	for i, err := range results {
		check := h.checks[i]
		shown := Detail{Name: check.Name, OK: err == nil, Required: !check.Bystander}
		summary.Checks[check.Name] = "ok"
		if check.State != nil {
			summary.Checks[check.Name] = cmp.Or(check.State(), "ok")
		}
		if err != nil {
			summary.Ready = summary.Ready && check.Bystander
			shown.Reason, shown.Remedy = publicReason(err), check.Remedy
			summary.Checks[check.Name] = shown.Reason
		}
		summary.Details = append(summary.Details, shown)
	}
	return summary
}

func publicReason(err error) string {
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		return f.Public
	}
	return "not available"
}

func (h *health) logChange(ctx context.Context, before readiness, results []error) {
	for i, err := range results {
		check := h.checks[i]
		if err == nil || before.Checks[check.Name] == h.last.Checks[check.Name] {
			continue
		}
		if check.Bystander {
			h.logger.WarnContext(ctx, "ready, but a check fails", "check", check.Name, "error", err, "remedy", check.Remedy)
			continue
		}
		h.logger.WarnContext(ctx, "not ready", "check", check.Name, "error", err, "remedy", check.Remedy)
	}
}
