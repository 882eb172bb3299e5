package llm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"inbox/agents/upstream"
	"inbox/internal/clock"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/internal/telemetry"
)

var (
	errTimeLimit = errors.New("the model provider did not finish its answer within the time limit")
	errIdleLimit = errors.New("the model provider sent nothing for too long")
)

// endpoint is one address of a provider: how to get there, how long it may take and what is read back.
type endpoint struct {
	address string
	models  string // address of the list of models
	host    string // with the port
	header  http.Header
	key     string // never to be shown
	client  *safehttp.Client
	time    time.Duration
	idle    time.Duration
}

// codec reads the answers of one API. Both ways give the same deltas. They return errStreamCut when the end came too
// early, io errors as they are, a *refusal for an error of the provider, and anything else for nonsense.
type codec interface {
	stream(events *eventReader, emit emitter) error
	document(data []byte, emit emitter) error
}

// emitter hands one delta on. errEnough means that no more is wanted.
type emitter func(Delta) error

var errEnough = errors.New("enough")

// ask posts a request and reads the answer. Its errors are faults, except for the end of ctx and errEnough.
func (e *endpoint) ask(ctx context.Context, body any, answer codec, emit emitter) (err error) {
	started := time.Now()
	defer func() { observeRequest(started, err) }()
	limited, stop := context.WithTimeoutCause(ctx, e.time, errTimeLimit)
	defer stop()
	limited, cancel := context.WithCancelCause(limited)
	defer cancel(nil)
	request, err := e.request(limited, body)
	if err != nil {
		return unusable(err)
	}

	response, err := e.client.Do(request)
	if err != nil {
		return interrupted(ctx, limited, unsent(err))
	}
	defer response.Body.Close()

	patient := &patientReader{source: response.Body, limit: e.idle, giveUp: func() { cancel(errIdleLimit) }}
	if response.StatusCode != http.StatusOK {
		return e.refused(response, patient)
	}

	err = e.read(response, patient, answer, emit)
	return e.class(ctx, limited, patient.err, err)
}

// class brings the error of a codec into its form. failed is what the body's reader said last.
func (e *endpoint) class(ctx, limited context.Context, failed, err error) error {
	if err == nil || errors.Is(err, errEnough) {
		return err
	}
	if said, is := errors.AsType[*refusal](err); is {
		said.message = excerpt(said.message, e.key)
		return said.fault(0)
	}
	if failed != nil && !errors.Is(failed, io.EOF) {
		return interrupted(ctx, limited, failed)
	}
	if errors.Is(err, errStreamCut) || errors.Is(err, io.EOF) {
		return cut(errStreamCut)
	}
	if errors.Is(err, errAmbiguous) {
		return cut(err)
	}

	return unusable(err)
}

func (e *endpoint) request(ctx context.Context, body any) (*http.Request, error) {
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)

	if err := encoder.Encode(body); err != nil {
		return nil, fmt.Errorf("encode model request: %w", err)
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.address, &encoded)
	if err != nil {
		return nil, fmt.Errorf("make model request: %w", err)
	}

	request.Header = e.header.Clone()
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "text/event-stream, application/json")
	telemetry.Inject(ctx, request.Header)
	return request, nil
}

// read takes the answer in the form in which it came: some servers stream whatever was asked, some never do.
func (e *endpoint) read(response *http.Response, body io.Reader, answer codec, emit emitter) error {
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	form := mediaType
	if mediaType != mimeEvents && mediaType != mimeJSON { // proxies and small servers name another type, or none
		start := bufio.NewReader(body)
		form, body = formOf(start), start
	}

	switch form {
	case mimeEvents:
		return answer.stream(newEventReader(body), emit)
	case mimeJSON:
		data, err := io.ReadAll(body)
		if err != nil { // the start of a document is none, but its tokens are spent
			return errors.Join(err, emit(Delta{Kind: DeltaUsage, Usage: Usage{Output: int64(len(data) / tokenBytes)}}))
		}
		return answer.document(data, emit)
	default:
		return fmt.Errorf("the model provider answered with Content-Type %q; check base_url", excerpt(mediaType, e.key))
	}
}

const (
	mimeEvents = "text/event-stream"
	mimeJSON   = "application/json"
)

// formOf tells an answer by its first bytes: an object is JSON, the field of an event or a comment a stream. Empty for others, such as
// a page of HTML.
func formOf(start *bufio.Reader) string {
	for at := 1; at <= 64; at++ {
		seen, _ := start.Peek(at)
		if len(seen) < at {
			return ""
		}
		seen = bytes.TrimLeft(bytes.TrimPrefix(seen, []byte("\ufeff")), " \t\r\n")
		if bytes.HasPrefix(seen, []byte("{")) {
			return mimeJSON
		}
		for _, field := range []string{":", "data:", "event:", "id:", "retry:"} {
			if bytes.HasPrefix(seen, []byte(field)) {
				return mimeEvents
			}
		}
	}
	return ""
}

// refused reads an answer with another status than 200.
func (e *endpoint) refused(response *http.Response, body io.Reader) error {
	start, _ := io.ReadAll(io.LimitReader(body, 16<<10)) // what could be read is enough for a log
	said := &refusal{status: response.StatusCode, repeat: repeatable(response)}
	said.kind, said.message = readProblem(start)
	if response.StatusCode >= 300 && response.StatusCode < 400 {
		said.message = "redirects are not followed: " + response.Header.Get("Location")
	}
	said.kind, said.message = excerpt(said.kind, e.key), excerpt(said.message, e.key)
	return said.fault(retryAfter(response.Header, time.Now()))
}

// locate checks the operator's base URL and returns the address of the API with its host and port.
func locate(base, suffix string) (address, hostPort string, err error) {
	target, err := url.Parse(base)
	switch {
	case err != nil || target.Hostname() == "":
		return "", "", fault.InField("base_url", "must be an address such as https://api.example.org/v1")
	case target.Scheme != "http" && target.Scheme != "https":
		return "", "", fault.InField("base_url", "must begin with https:// or http://")
	case target.User != nil:
		return "", "", fault.InField("base_url", "must not carry a user or password: write the key into api_key")
	case target.Fragment != "":
		return "", "", fault.InField("base_url", "must not have a fragment")
	}

	port := target.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[target.Scheme]
	}

	return target.JoinPath(suffix).String(), net.JoinHostPort(target.Hostname(), port), nil
}

// The two wire formats that a provider may speak.
const (
	APIOpenAI    = "openai"    // chat completions, as many other services and local servers speak them
	APIAnthropic = "anthropic" // messages
)

// Defaults of Connection.
const (
	DefaultOpenAIURL        = "https://api.openai.com/v1"
	DefaultAnthropicURL     = "https://api.anthropic.com"
	DefaultTimeLimit        = 5 * time.Minute
	DefaultIdleLimit        = 2 * time.Minute
	DefaultMaxResponseBytes = 16 << 20
)

// Connection says where a model is and how to talk to it. API and Client are required.
type Connection struct {
	API     string           // APIOpenAI or APIAnthropic
	BaseURL string           // empty = the vendor's; chat/completions or v1/messages is added
	APIKey  string           // may be empty for a local server
	Client  *safehttp.Client // a copy is made that also trusts the host and port of BaseURL

	TimeLimit        time.Duration // of one call of the model; zero = DefaultTimeLimit
	IdleLimit        time.Duration // for a pause inside the answer; zero = DefaultIdleLimit
	MaxResponseBytes int64         // of one answer; zero = DefaultMaxResponseBytes
	Retry            Retry         // of what the provider refuses for now
}

// Connect makes the provider of a connection. It repeats what a provider refuses for now (429, 5xx) and what never
// reached it, see Retrying. Faults are fault.Malformed and name the setting.
func Connect(connection Connection) (Provider, error) {
	if connection.Client == nil {
		return nil, fault.InField("client", "is required")
	}
	if connection.TimeLimit < 0 || connection.IdleLimit < 0 || connection.MaxResponseBytes < 0 {
		return nil, fault.InField("time_limit", "limits must not be negative")
	}
	if connection.Retry.Attempts < 0 || connection.Retry.Base < 0 || connection.Retry.Max < 0 {
		return nil, fault.InField("retry", "bounds must not be negative")
	}
	if strings.ContainsFunc(connection.APIKey, func(char rune) bool { return char <= ' ' || char >= 0x7f }) {
		return nil, fault.InField("api_key", "must not have white space or control characters")
	}

	connection = connection.withDefaults()
	switch connection.API {
	case APIOpenAI:
		return connectOpenAI(connection)
	case APIAnthropic:
		return connectAnthropic(connection)
	}

	return nil, fault.InField("provider", `must be "openai" or "anthropic"`)
}

func (c Connection) withDefaults() Connection {
	if c.TimeLimit == 0 {
		c.TimeLimit = DefaultTimeLimit
	}
	if c.IdleLimit == 0 {
		c.IdleLimit = DefaultIdleLimit
	}
	if c.MaxResponseBytes == 0 {
		c.MaxResponseBytes = DefaultMaxResponseBytes
	}
	if c.BaseURL == "" {
		c.BaseURL = map[string]string{APIOpenAI: DefaultOpenAIURL, APIAnthropic: DefaultAnthropicURL}[c.API]
	}

	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	return c
}

// endpoint is where a provider takes exchanges, at suffix, and lists its models.
func (c Connection) endpoint(suffix, models string, header http.Header) (*endpoint, error) {
	address, hostPort, err := locate(c.BaseURL, suffix)
	if err != nil {
		return nil, err
	}
	list, _, err := locate(c.BaseURL, models)
	if err != nil {
		return nil, err
	}
	return &endpoint{
		address: address, models: list, host: hostPort, header: header, key: c.APIKey, time: c.TimeLimit, idle: c.IdleLimit,
		client: c.Client.Trusting(hostPort).Limit(c.MaxResponseBytes),
	}, nil
}

func (e *endpoint) reach(ctx context.Context) error { return upstream.Dial(ctx, e.client, e.host) }

// probe asks for the list of models, which costs nothing.
func (e *endpoint) probe(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.models, http.NoBody)
	if err != nil {
		return err
	}
	request.Header = e.header.Clone()
	return upstream.Probe(e.client, request)
}

// stream runs one exchange as a sequence of deltas.
func (e *endpoint) stream(ctx context.Context, body any, answer codec) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		stopped := false
		err := e.ask(ctx, body, answer, func(delta Delta) error {
			if !yield(delta, nil) {
				stopped = true
				return errEnough
			}
			return nil
		})
		if err != nil && !stopped && !errors.Is(err, errEnough) {
			yield(Delta{}, err)
		}
	}
}

// Retry bounds how often and when a refused request is made again. Zero fields have the defaults of the agent runtime
// contract, section 9.
type Retry struct {
	Attempts int           // the first one counts; zero = DefaultAttempts
	Base     time.Duration // pause before the second attempt, doubled each time; zero = DefaultRetryBase
	Max      time.Duration // longest pause; zero = DefaultRetryMax
}

// Defaults of Retry.
const (
	DefaultAttempts  = 5
	DefaultRetryBase = 2 * time.Second
	DefaultRetryMax  = time.Minute
)

func (r Retry) withDefaults() Retry {
	if r.Attempts == 0 {
		r.Attempts = DefaultAttempts
	}
	if r.Base == 0 {
		r.Base = DefaultRetryBase
	}
	if r.Max == 0 {
		r.Max = DefaultRetryMax
	}
	return r
}

// Retrying repeats requests that a provider refused for now (429 and 5xx) or that never reached it, within the bounds and
// as late as the provider asks. It never repeats once a piece of the answer was handed on, and it gives up early where the
// provider asks for a longer pause than Max or the context would end first; the fault then says when to come again.
func Retrying(provider Provider, bounds Retry) Provider {
	return retrying{provider, bounds.withDefaults()}
}

type retrying struct {
	provider Provider
	bounds   Retry
}

// Reach implements Reacher.
func (r retrying) Reach(ctx context.Context) error {
	if reacher, is := r.provider.(Reacher); is {
		return reacher.Reach(ctx)
	}
	return nil
}

// Probe implements Prober.
func (r retrying) Probe(ctx context.Context) error {
	if prober, is := r.provider.(Prober); is {
		return prober.Probe(ctx)
	}
	return nil
}

// Formats implements Formatter.
func (r retrying) Formats(kind string) bool {
	formatter, is := r.provider.(Formatter)
	return is && formatter.Formats(kind)
}

// Stream implements Provider.
func (r retrying) Stream(ctx context.Context, request Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) {
		for number := 1; ; number++ {
			current := attempt{request: &request}
			begun, err := r.attempt(ctx, &current, yield)
			if err == nil || errors.Is(err, errEnough) {
				return
			}

			pause, again := r.bounds.pauseAfter(ctx, err, number)
			if begun || !again {
				yield(Delta{}, err)
				return
			}
			if used := current.spent(err); used != (Usage{}) && !yield(Delta{Kind: DeltaSpent, Usage: used}, nil) {
				return
			}
			if clock.Sleep(ctx, pause) != nil {
				yield(Delta{}, fmt.Errorf("ask model: %w", &unsentError{context.Cause(ctx)}))
				return
			}
		}
	}
}

// attempt streams one answer. begun reports whether any text or call was passed on; token counts and thoughts do not count.
func (r retrying) attempt(ctx context.Context, current *attempt, yield func(Delta, error) bool) (begun bool, err error) {
	for delta, err := range r.provider.Stream(ctx, *current.request) {
		if err != nil {
			return begun, err
		}
		current.add(delta)
		begun = begun || delta.Kind != DeltaUsage && delta.Kind != DeltaThought
		if !yield(delta, nil) {
			return begun, errEnough
		}
	}
	return begun, nil
}

func (r Retry) pauseAfter(ctx context.Context, err error, attempt int) (pause time.Duration, again bool) {
	said, refused := errors.AsType[*refusal](err)
	_, unsent := errors.AsType[*unsentError](err)
	if attempt >= r.Attempts || ctx.Err() != nil || !unsent && (!refused || !said.repeat) {
		return 0, false
	}

	pause = r.pause(attempt)
	pause -= rand.N(max(1, pause/4)) // many turns must not come again at the same moment
	if carried, is := errors.AsType[*fault.Fault](err); is && carried.RetryAfter > 0 {
		pause = carried.RetryAfter
	}
	if deadline, has := ctx.Deadline(); has && time.Until(deadline) <= pause {
		return 0, false
	}

	return pause, pause <= r.Max
}

// pause doubles without overflow.
func (r Retry) pause(attempt int) time.Duration {
	pause := r.Base
	for range attempt - 1 {
		if pause >= r.Max {
			break
		}
		pause *= 2
	}
	return min(pause, r.Max)
}
