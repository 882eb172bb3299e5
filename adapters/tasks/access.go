package tasks

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents/runtime/task"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/telemetry"
)

var requests = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_task_requests_total", Help: "Requests about tasks and targets, by outcome (done, refused, failed).",
}, []string{"outcome"})

// access checks who calls.
type access struct {
	tokens  *bearer.Cache
	targets func() *Targets
}

// caller is the program behind a request.
type caller struct {
	task.Caller

	token exchange.Token
}

// key is the owner as rows have it.
func (c caller) key() string { return c.OwnerType + ":" + c.OwnerKey }

func refused() error {
	return fault.New(fault.Unauthenticated, "a bearer token for tasks is needed; see: inbox tokens create --tasks")
}

// verify finds the token of a request: one for tasks, or an operator's, who is the manager of all runs.
func (a *access) verify(r *http.Request) (caller, error) {
	shown := bearer.Of(r)
	if !bearer.WellFormed(shown) {
		return caller{}, refused()
	}

	token, found, err := a.tokens.Find(r.Context(), shown)
	switch {
	case err != nil:
		return caller{}, fault.Wrap(fault.Unavailable, "the token cannot be checked right now; try again", err)
	case !found, !token.Valid(time.Now()):
		return caller{}, refused()
	}

	c := caller{Caller: task.Caller{OwnerType: "token", OwnerKey: token.ID}, token: token}
	switch token.Scope {
	case exchange.TokenAdmin:
		c.OwnerType, c.Manager = "operator", true
	case exchange.TokenTaskResults:
		c.Whole = true
	case exchange.TokenTasks:
	default:
		return caller{}, refused()
	}

	if token.Agent != "" {
		c.Opens = func(target map[string]any) bool {
			return strings.EqualFold(a.targets().byID[value.Text(target["id"])].Agent, token.Agent)
		}
	}
	return c, nil
}

type handler func(w http.ResponseWriter, r *http.Request, c caller) error

// edge does what comes before every operation, and afterwards the count and the error.
func (a *access) edge(handle handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		c, err := a.verify(r)
		if err == nil {
			err = handle(w, r.WithContext(telemetry.With(r.Context(), "principal", c.key())), c)
		}
		finish(w, classed(err))
	})
}

func finish(w http.ResponseWriter, err error) {
	if err == nil {
		requests.WithLabelValues("done").Inc()
		return
	}

	f := fault.Of(err)
	outcome := "refused"
	if f.Kind == fault.Internal || f.Kind == fault.Unavailable {
		outcome = "failed"
	}
	requests.WithLabelValues(outcome).Inc()

	if f.Kind == fault.Unauthenticated {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tasks"`)
	}
	known, is := errors.AsType[*task.Error](err)
	if !is {
		httpserver.WriteFault(w, err)
		return
	}
	httpserver.WriteError(w, httpserver.Status(f.Kind), httpserver.ErrorDetail{Code: known.Code, Message: known.Message})
}

// classed returns an error of the contract with the kind of its code.
func classed(err error) error {
	known, is := errors.AsType[*task.Error](err)
	if !is {
		return err
	}

	kind := fault.Malformed
	switch known.Code {
	case task.CodeNotFound:
		kind = fault.NotFound
	case task.CodeAlreadyStarted, task.CodeNoHandler:
		kind = fault.Conflict
	}
	return fault.Wrap(kind, known.Message, err)
}
