package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

var (
	errTimeLimit = errors.New("the model provider did not finish its answer within the time limit")
	errIdleLimit = errors.New("the model provider sent nothing for too long")
)

// endpoint is one address of a provider: how to get there, how long it may take and what is read back.
type endpoint struct {
	address string
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

// emitter hands one delta on. errEnough means that nobody wants more.
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
	return request, nil
}

// read takes the answer in the form in which it came: some servers stream whatever was asked, some never do.
func (e *endpoint) read(response *http.Response, body io.Reader, answer codec, emit emitter) error {
	switch mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); mediaType {
	case "text/event-stream":
		return answer.stream(newEventReader(body), emit)
	case "application/json":
		data, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		return answer.document(data, emit)
	default:
		return fmt.Errorf("the model provider answered with Content-Type %q; check base_url", excerpt(mediaType, e.key))
	}
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

// problem is the error object of both APIs: {"error": {type, code, message}}; some servers write a text.
type problem struct {
	Type    string          `json:"type"`
	Code    json.RawMessage `json:"code"`
	Message string          `json:"message"`
}

func (p problem) kind() string {
	if p.Type != "" {
		return p.Type
	}
	return strings.Trim(string(p.Code), `"`)
}

func readProblem(body []byte) (kind, message string) {
	var document struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &document) != nil {
		return "", string(body)
	}
	if kind, message = readError(document.Error); message != "" {
		return kind, message
	}
	if document.Message != "" {
		return kind, document.Message
	}
	return kind, string(body)
}

func readError(raw json.RawMessage) (kind, message string) {
	var said problem
	if json.Unmarshal(raw, &said) == nil && (said.Message != "" || said.kind() != "") {
		return said.kind(), said.Message
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return "", text
	}
	return "", ""
}

// unsent marks a request that no provider has seen: connecting failed, so asking again does no harm.
func unsent(err error) error {
	if broken, is := errors.AsType[*net.OpError](err); is && broken.Op == "dial" {
		return &unsentError{err}
	}
	return err
}

type unsentError struct{ cause error }

// Error gives the text of the cause.
func (e *unsentError) Error() string { return e.cause.Error() }

// Unwrap gives the cause.
func (e *unsentError) Unwrap() error { return e.cause }

// patientReader gives up when one read takes longer than the limit. The clock stands still between reads, because the
// time that the engine needs for a delta is not the provider's.
type patientReader struct {
	source io.Reader
	limit  time.Duration
	giveUp func()
	timer  *time.Timer
	err    error // the last one
}

// Read reads from the source.
func (p *patientReader) Read(into []byte) (int, error) {
	if p.timer == nil {
		p.timer = time.AfterFunc(p.limit, p.giveUp)
	} else {
		p.timer.Reset(p.limit)
	}
	defer p.timer.Stop()
	n, err := p.source.Read(into)
	p.err = err
	return n, err
}

// locate checks the operator's base URL and gives the address of the API with its host and port.
func locate(base, suffix string) (address, hostPort string, err error) {
	target, err := url.Parse(base)
	switch {
	case err != nil || target.Hostname() == "":
		return "", "", fault.InField("base_url", "must be an address such as https://api.example.org/v1")
	case target.Scheme != "http" && target.Scheme != "https":
		return "", "", fault.InField("base_url", "must begin with https:// or http://")
	case target.User != nil:
		return "", "", fault.InField("base_url", "must not carry a user or password: the key belongs into api_key")
	case target.Fragment != "":
		return "", "", fault.InField("base_url", "must not have a fragment")
	}
	port := target.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[target.Scheme]
	}
	return target.JoinPath(suffix).String(), net.JoinHostPort(target.Hostname(), port), nil
}
