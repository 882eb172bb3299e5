// Package hook asks a program of the operator over HTTP about the run of a model, and tells it what happened in it: the
// mediator, the completion policy and the observer of the loop (agent runtime contract, sections 3 and 4.6) for those who write no
// Go. It posts signed JSON and reads answers; what an answer means is said by the agent that asks. The wire format is described in
// docs/agents/hooks.md.
package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents/runtime/value"
	"inbox/agents/upstream"
	"inbox/internal/clock"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/internal/telemetry"
	"inbox/internal/webhooksignature"
)

// DefaultTimeout is Options.Timeout when it is zero.
const DefaultTimeout = 5 * time.Second

// Bounds of one exchange, in bytes.
const (
	MaxRequestBytes = 4 << 20 // the arguments of a call, which are in it three times, may have 1 MiB
	MaxAnswerBytes  = 1 << 20
	maxAnswerDepth  = 64
)

// attempts is how often one request is sent within its time.
const (
	attempts   = 3
	firstPause = 100 * time.Millisecond // doubles
)

// Options configure a Hook. URL, Secret and Client are required.
type Options struct {
	URL            string           // http or https, without user, password and fragment
	Secret         string           // key of the HMAC-SHA256 signature over the body
	PreviousSecret string           // the key before it, until the program has the new one; empty = none
	Client         *safehttp.Client // the hook makes itself a copy that also trusts the host and port of URL
	Timeout        time.Duration    // for one request with its repetitions; zero = DefaultTimeout
}

// Hook speaks with one program. It is safe for concurrent use.
type Hook struct{ options Options }

// New checks the options and fills in the defaults. Its faults are fault.Malformed and name the setting.
func New(options Options) (*Hook, error) {
	destination, err := upstream.Destination(options.URL, "https://hooks.example.org/agent", "the signature already proves who calls")
	switch {
	case err != nil:
		return nil, err
	case options.Secret == "":
		return nil, fault.InField("secret", "is required: the program checks with it that a request comes from this server")
	case options.PreviousSecret == options.Secret:
		return nil, fault.InField("previous_secret", "must be another one than secret")
	case options.Client == nil:
		return nil, fault.InField("client", "is required")
	case options.Timeout < 0:
		return nil, fault.InField("timeout", "must not be negative")
	}

	if options.Timeout == 0 {
		options.Timeout = DefaultTimeout
	}

	options.Client = options.Client.Trusting(destination).Limit(MaxAnswerBytes)
	return &Hook{options}, nil
}

// Close drops idle connections to the program.
func (h *Hook) Close() { h.options.Client.Close() }

var (
	// hook: tool_call, tool_result, turn, events. outcome: answered, failed
	requests = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_hook_requests_total", Help: "Requests to hooks by hook and outcome; repetitions of a request are not counted.",
	}, []string{"hook", "outcome"})
	errRefused = errors.New("the hook refuses the request")
)

// Ask posts a question and returns the object of the answer. It repeats what may pass (no connection, 429, 5xx) within
// Options.Timeout. Every error means that there is no answer; a status other than 200 and an answer that is not a JSON object of at
// most MaxAnswerBytes are such errors.
func (h *Hook) Ask(ctx context.Context, question Question) (answer map[string]any, err error) {
	body, err := json.Marshal(question)
	if err != nil {
		return nil, fmt.Errorf("write the question: %w", err)
	}

	err = h.exchange(ctx, question.Hook, question.ID, body, func(response *http.Response) error {
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%w: it answered %s instead of 200", errRefused, response.Status)
		}
		answer, err = readAnswer(response.Body)
		return err
	})
	return answer, err
}

func readAnswer(body io.Reader) (map[string]any, error) {
	content, err := io.ReadAll(body)
	if errors.Is(err, safehttp.ErrTooLarge) {
		return nil, fmt.Errorf("%w: its answer is over %d MiB", errRefused, MaxAnswerBytes>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}

	given, err := value.Decode(content, value.Limits{Bytes: MaxAnswerBytes, Depth: maxAnswerDepth})
	if err != nil {
		return nil, fmt.Errorf("%w: its answer is not JSON: %w", errRefused, err)
	}

	object, is := given.(map[string]any)
	if !is {
		return nil, fmt.Errorf("%w: its answer is not a JSON object", errRefused)
	}
	return object, nil
}

// Tell posts events; every answer of 2xx will do. It repeats as Ask does.
func (h *Hook) Tell(ctx context.Context, events Events) error {
	body, err := json.Marshal(events)
	if err != nil {
		return fmt.Errorf("write events: %w", err)
	}

	return h.exchange(ctx, KindEvents, events.ID, body, func(response *http.Response) error {
		if response.StatusCode/100 != 2 {
			return fmt.Errorf("%w: it answered %s", errRefused, response.Status)
		}
		return nil
	})
}

// exchange sends one body until it was answered, repetitions do not help or the time is over.
func (h *Hook) exchange(ctx context.Context, kind, id string, body []byte, read func(*http.Response) error) (err error) {
	defer func() {
		outcome := "answered"
		if err != nil {
			outcome = "failed"
		}
		requests.WithLabelValues(kind, outcome).Inc()
	}()

	if len(body) > MaxRequestBytes {
		return fmt.Errorf("the request is over %d MiB", MaxRequestBytes>>20)
	}

	ctx, cancel := context.WithTimeout(ctx, h.options.Timeout)
	defer cancel()
	pause := firstPause
	for attempt := 1; ; attempt++ {
		err = h.send(ctx, id, body, read)
		if err == nil || errors.Is(err, errRefused) || attempt == attempts || clock.Sleep(ctx, pause) != nil {
			return err
		}
		pause *= 2
	}
}

func (h *Hook) send(ctx context.Context, id string, body []byte, read func(*http.Response) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.options.URL, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}

	request.Header.Set("Content-Type", "application/json")
	telemetry.Inject(ctx, request.Header)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Idempotency-Key", id)
	request.Header.Set(webhooksignature.Header, webhooksignature.SignRotating(h.options.Secret, h.options.PreviousSecret, body))
	response, err := h.options.Client.Do(request)
	if err != nil {
		return fmt.Errorf("the hook cannot be reached: %w", err)
	}
	defer response.Body.Close()

	if response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= http.StatusInternalServerError {
		return errors.New("the hook answered " + response.Status)
	}
	return read(response)
}
