package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"

	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/internal/telemetry"
	"inbox/normalized"
)

// wire is the connection of one call to one agent.
type wire struct {
	options   CallerOptions
	token     string
	assert    func(context.Context) (string, error) // instead of token; nil = nothing is shown
	transport a2aclient.Transport
	version   a2a.ProtocolVersion

	status     int           // of the last answer
	retryAfter time.Duration // as the last answer asked
	said       string        // error text of the last answer that was no success
	long       bool          // the last answer is longer than what is read of one
}

func (c *Caller) wire(domain string, found peer, agent string) *wire {
	w := &wire{options: c.options, version: found.version}
	if c.options.Tokens != nil {
		w.token = c.options.Tokens(domain)
	}
	if w.token == "" && c.options.Assert != nil && !found.open {
		w.assert = func(ctx context.Context) (string, error) { return c.options.Assert(ctx, agent, found.address) }
	}

	client := &http.Client{Transport: w, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if found.version == a2av0.Version {
		w.transport = a2av0.NewJSONRPCTransport(a2av0.JSONRPCTransportConfig{URL: found.endpoint, Client: client})
	} else {
		w.transport = a2aclient.NewJSONRPCTransport(found.endpoint, client)
	}

	return w
}

const (
	maxSaidBytes  = 500 // of a peer's words in a response
	maxRetryAfter = time.Hour
)

// send waits for the end of the task, or takes the task at once.
func (w *wire) send(ctx context.Context, message *a2a.Message, immediately bool) (a2a.SendMessageResult, error) {
	none := 0
	return w.transport.SendMessage(ctx, w.params(), &a2a.SendMessageRequest{
		Message: message, Config: &a2a.SendMessageConfig{HistoryLength: &none, ReturnImmediately: immediately},
	})
}

func (w *wire) get(ctx context.Context, id a2a.TaskID) (*a2a.Task, error) {
	none := 0
	return w.transport.GetTask(ctx, w.params(), &a2a.GetTaskRequest{ID: id, HistoryLength: &none})
}

func (w *wire) params() a2aclient.ServiceParams {
	return a2aclient.ServiceParams{
		a2a.SvcParamVersion:    {string(w.version)},
		a2a.SvcParamExtensions: {strings.Join([]string{identity.EvidenceExtension, extensions[0].URI}, ", ")},
	}
}

// RoundTrip adds the token and remembers what the SDK's errors do not say. The SDK reads whole bodies: they are capped.
func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Accept", mimeJSON)
	telemetry.Inject(request.Context(), request.Header)
	token := w.token
	if w.assert != nil {
		var err error
		if token, err = w.assert(request.Context()); err != nil {
			return nil, fault.RetryIn(0, "who calls cannot be signed right now", err)
		}
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}

	response, err := w.options.Client.Do(request)
	w.status, w.retryAfter, w.said, w.long = 0, 0, "", false
	if err != nil {
		return nil, err
	}

	w.status, w.retryAfter = response.StatusCode, retryAfter(response.Header)
	if response.StatusCode != http.StatusOK {
		w.said = errorText(io.LimitReader(response.Body, maxErrorBytes))
	}

	response.Body = &callBody{ReadCloser: response.Body, left: maxCallBytes, long: &w.long}
	return response, nil
}

// callBody records that a body exceeded its limit, because the SDK drops the error of the reader.
type callBody struct {
	io.ReadCloser

	left int
	long *bool
}

func (b *callBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if b.left -= n; b.left < 0 {
		err = safehttp.ErrTooLarge
	}
	*b.long = *b.long || errors.Is(err, safehttp.ErrTooLarge)
	return n, err
}

// retryAfter reads the header in seconds, at most an hour; a date is not read.
func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}

// errorText reads what a refusing server says, in one line.
func errorText(body io.Reader) string {
	var answer struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.NewDecoder(body).Decode(&answer) != nil {
		return ""
	}
	return oneLine(answer.Error.Message)
}

// oldVersion reports whether the other side speaks 0.3 only.
func (w *wire) oldVersion(err error) bool {
	return w.version != a2av0.Version && (errors.Is(err, a2a.ErrMethodNotFound) || errors.Is(err, a2a.ErrVersionNotSupported))
}

// refusal turns a failed request into a response or a classed error. No text of ours about it holds the token: the
// SDK's errors name the method and the status only.
func (w *wire) refusal(to identity.Address, err error) (normalized.Response, error) {
	switch {
	case w.status == http.StatusUnauthorized, w.status == http.StatusForbidden,
		errors.Is(err, a2a.ErrUnauthenticated), errors.Is(err, a2a.ErrUnauthorized):
		return refused(to, w.said), nil
	case w.status == http.StatusTooManyRequests, w.status >= http.StatusInternalServerError:
		return normalized.Response{}, fault.RetryIn(w.retryAfter, "the other agent cannot take the message right now", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return normalized.Response{}, fault.RetryIn(0, "the other agent did not answer in time", err)
	}

	if known, ok := errors.AsType[*fault.Fault](err); ok {
		return normalized.Response{}, known
	}
	if w.status == 0 {
		return normalized.Response{}, unreachable(err)
	}

	return normalized.Response{}, fault.GiveUp("the other agent does not understand the message", err)
}

func textOf(message *a2a.Message) string {
	if message == nil {
		return ""
	}
	for _, part := range message.Parts {
		if part != nil && part.Text() != "" {
			return oneLine(part.Text())
		}
	}
	return ""
}

func oneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	if len(text) > maxSaidBytes {
		text = strings.ToValidUTF8(text[:maxSaidBytes], "") + "…"
	}
	return text
}
