package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/bridge/contract"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/telemetry"
)

// Limits of a request and defaults of Options.
const (
	maxBodyBytes        = 1 << 20
	maxImportBytes      = 16 << 20
	defaultWaitLimit    = 50 * time.Second // proxies in front of us give up at 60 s
	defaultKeepAlive    = 15 * time.Second
	defaultWriteTimeout = 10 * time.Second
)

type handler func(w http.ResponseWriter, r *http.Request, c caller) error

// edge does what comes before every operation: the caller, its scope, and afterwards the count and the error.
func (a *access) edge(operation, scope string, handle handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := a.verify(r)
		if err == nil {
			err = c.allow(scope)
		}
		if err == nil {
			r = r.WithContext(telemetry.With(r.Context(), "principal", c.owner))
			err = handle(w, r, c)
		}
		finish(w, operation, err)
	})
}

var requests = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_bridge_requests_total",
	Help: "Requests of bridges, connectors and owners of sessions, by operation and outcome (done, refused, failed).",
}, []string{"operation", "outcome"})

func finish(w http.ResponseWriter, operation string, err error) {
	outcome := "done"
	switch f := fault.Of(classed(err)); {
	case err == nil:
	case f.Kind == fault.Internal, f.Kind == fault.Unavailable:
		outcome = "failed"
	default:
		outcome = "refused"
	}

	requests.WithLabelValues(operation, outcome).Inc()
	if err == nil {
		return
	}

	err = classed(err)
	if fault.Is(err, fault.Unauthenticated) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="bridge"`)
	}

	writeError(w, err)
}

// coded is an error with a code of the agent runtime contract.
type coded interface {
	error
	ErrorCode() string
}

var _ coded = (*contract.Error)(nil)

// classed returns an error of the contract with the kind of its code.
func classed(err error) error {
	if _, is := errors.AsType[*fault.Fault](err); is || err == nil {
		return err
	}

	known, is := errors.AsType[coded](err)
	switch {
	case !is:
		return err
	case known.ErrorCode() == contract.CodeFull:
		return &fault.Fault{Kind: fault.RateLimited, Public: known.Error(), RetryAfter: time.Minute, Cause: err}
	case strings.HasSuffix(known.ErrorCode(), "_not_found"):
		return fault.Wrap(fault.NotFound, known.Error(), err)
	case strings.HasSuffix(known.ErrorCode(), "_already_started"):
		return fault.Wrap(fault.Conflict, known.Error(), err)
	}

	return fault.Wrap(fault.Malformed, known.Error(), err)
}

// writeError answers with the code of the contract where there is one.
func writeError(w http.ResponseWriter, err error) {
	if errors.Is(err, errBundle) {
		httpserver.WriteError(w, http.StatusUnprocessableEntity, httpserver.ErrorDetail{Code: string(errBundle.Kind), Message: errBundle.Public})
		return
	}

	known, is := errors.AsType[coded](err)
	if !is {
		httpserver.WriteFault(w, err)
		return
	}

	f := fault.Of(err)
	httpserver.SetRetry(w.Header(), f)
	httpserver.WriteError(w, httpserver.Status(f.Kind), httpserver.ErrorDetail{Code: known.ErrorCode(), Message: f.Public, Field: f.Field})
}

// readBody takes the whole body of a caller that is known.
func readBody(r *http.Request, limit int) ([]byte, error) {
	httpserver.Proven(r)
	body, err := httpserver.ReadBody(r, int64(limit))
	if fault.Is(err, fault.TooLarge) {
		return nil, fault.Newf(fault.TooLarge, "the body is over %d MiB", limit>>20)
	}
	return body, err
}

// readObject reads a body that is a JSON object; none at all is an empty one.
func readObject(r *http.Request) (map[string]any, []byte, error) {
	body, err := readBody(r, maxBodyBytes)
	if err != nil {
		return nil, nil, err
	}
	if bare := bytes.TrimSpace(body); len(bare) == 0 || string(bare) == "null" {
		return map[string]any{}, body, nil
	}
	if err := httpserver.RefuseDuplicates(body); err != nil {
		return nil, nil, err
	}
	object, err := decodeObject(body)
	return object, body, err
}

// maxDepth bounds how deep a request nests.
const maxDepth = 64

func decodeObject(body []byte) (map[string]any, error) {
	given, err := value.Decode(body, value.Limits{Bytes: maxBodyBytes, Depth: maxDepth})
	if err != nil {
		return nil, fault.Wrap(fault.Malformed, "the body is not JSON", err)
	}
	object, is := value.Object(given)
	if !is {
		return nil, fault.New(fault.Malformed, "the body must be a JSON object")
	}
	return object, nil
}

// text reads the first of the members that is there, trimmed.
func text(object map[string]any, members ...string) string {
	for _, member := range members {
		if found := value.Trim(value.Scalar(object[member])); found != "" {
			return found
		}
	}
	return ""
}

// wait is the member of the body, or the parameter of the address.
func (s *site) wait(r *http.Request, body map[string]any) (time.Duration, error) {
	if given, there := body["wait"]; there {
		if flag, is := given.(bool); is {
			return s.patience(strconv.FormatBool(flag))
		}
		return s.patience(value.Scalar(given))
	}
	return s.patience(r.URL.Query().Get("wait"))
}

// patience reads how long a request wants to wait: "20s", 20, or true for the longest.
func (s *site) patience(text string) (time.Duration, error) {
	switch text = strings.TrimSpace(text); text {
	case "", "0", "false", "no":
		return 0, nil
	case "true", "yes":
		return s.options.WaitLimit, nil
	}

	if strings.Trim(text, "0123456789") == "" {
		text += "s"
	}

	length, err := time.ParseDuration(text)
	if err != nil || length < 0 {
		return 0, fault.InField("wait", "must be a time such as 30s")
	}

	return min(length, s.options.WaitLimit), nil
}

// limitOf reads a number of rows.
func limitOf(given string, most int) (int, error) {
	if given == "" {
		return 0, nil
	}
	number, err := strconv.Atoi(given)
	if err != nil {
		return 0, fault.InField("limit", "must be a number")
	}
	return min(max(number, 1), most), nil
}

func compact(value any) json.RawMessage {
	encoded, err := json.Marshal(value)
	if err != nil {
		panic(err) // a value of ours that cannot be encoded
	}
	return encoded
}

// wantsStream reports whether the program asks for server-sent events.
func wantsStream(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}

func (s *site) openEvents(ctx context.Context, w http.ResponseWriter, stop func()) *httpserver.EventWriter {
	return httpserver.OpenEvents(ctx, w, httpserver.EventOptions{
		KeepAlive: s.options.KeepAlive, WriteTimeout: s.options.WriteTimeout, Dropped: dropped.Inc,
	}, stop)
}

var dropped = promauto.NewCounter(prometheus.CounterOpts{
	Name: "inbox_bridge_readers_dropped_total", Help: "Readers of streams that were gone or too slow.",
})

// event is one server-sent event with its data as JSON.
func event(name, id string, data any) httpserver.Event {
	return httpserver.Event{Name: name, ID: id, Data: compact(data)}
}
