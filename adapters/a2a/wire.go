package a2a

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"

	"inbox/identity"
	"inbox/internal/fault"
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

// RoundTrip adds the token and remembers what the SDK's errors do not say. The SDK reads whole bodies: they are capped.
func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Accept", mimeJSON)
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
	w.status, w.retryAfter, w.said = 0, 0, ""
	if err != nil {
		return nil, err
	}
	w.status, w.retryAfter = response.StatusCode, retryAfter(response.Header)
	if response.StatusCode != http.StatusOK {
		w.said = errorText(io.LimitReader(response.Body, maxErrorBytes))
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, maxCallBytes), response.Body}
	return response, nil
}

func (w *wire) params() a2aclient.ServiceParams {
	return a2aclient.ServiceParams{
		a2a.SvcParamVersion:    {string(w.version)},
		a2a.SvcParamExtensions: {strings.Join([]string{identity.EvidenceExtension, extensions[0].URI}, ", ")},
	}
}

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

// oldVersion reports whether the other side speaks 0.3 only.
func (w *wire) oldVersion(err error) bool {
	return w.version != a2av0.Version && (errors.Is(err, a2a.ErrMethodNotFound) || errors.Is(err, a2a.ErrVersionNotSupported))
}
