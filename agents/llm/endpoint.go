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
