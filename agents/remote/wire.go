package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"

	"inbox/agents/upstream"
	"inbox/identity"
	"inbox/internal/telemetry"
	"inbox/policypart"
)

const (
	mimeJSON   = "application/json"
	mimeA2A    = "application/a2a+json"
	mimeEvents = "text/event-stream"

	maxErrorBytes = 32 << 10 // of an answer that is no success
)

// sighting is what the SDK's errors do not say about one request.
type sighting struct {
	status     int           // 0 = no answer came
	retryAfter time.Duration // as the answer asked
	said       string        // of an answer that was no success, for the operator
	cut        error         // why the body could not be read to its end
}

type sightingKey struct{}

func watched(ctx context.Context) (context.Context, *sighting) {
	seen := &sighting{}
	return context.WithValue(ctx, sightingKey{}, seen), seen
}

// wire carries the requests of one turn: it adds the credentials, bounds what comes back and mends answers that the SDK
// would misread.
type wire struct {
	agent     *Agent
	peer      *peer
	asker     string // which of our agents asks
	transport a2aclient.Transport
}

func (a *Agent) wire(p *peer, asker string) (*wire, error) {
	w := &wire{agent: a, peer: p, asker: asker}
	client := &http.Client{Transport: w, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	var err error
	switch {
	case p.rest && p.old():
		w.transport, err = a2av0.NewRESTTransport(a2av0.RESTTransportConfig{URL: p.url.String(), Client: client})
	case p.rest:
		w.transport = a2aclient.NewRESTTransport(p.url, client)
	case p.old():
		w.transport = a2av0.NewJSONRPCTransport(a2av0.JSONRPCTransportConfig{URL: p.url.String(), Client: client})
	default:
		w.transport = a2aclient.NewJSONRPCTransport(p.url.String(), client)
	}

	return w, err
}

// params are the headers of every request.
func (w *wire) params() a2aclient.ServiceParams {
	extensions := []string{policypart.Extension, toolEventsExtension}
	if w.agent.options.Sign != nil {
		extensions = append(extensions, identity.EvidenceExtension)
	}
	return a2aclient.ServiceParams{
		a2a.SvcParamVersion:    {string(w.peer.version)},
		a2a.SvcParamExtensions: {strings.Join(extensions, ", ")},
	}
}

// RoundTrip does one request.
func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	seen, _ := request.Context().Value(sightingKey{}).(*sighting)
	if seen == nil {
		seen = &sighting{}
	}

	ctx, cancel := context.WithCancelCause(request.Context())
	request = request.Clone(ctx)
	telemetry.Inject(ctx, request.Header)
	if request.Header.Get("Accept") == "" {
		request.Header.Set("Accept", mimeJSON)
	}

	if err := w.authenticate(request); err != nil {
		cancel(nil)
		return nil, err
	}

	response, err := w.peer.client.Do(request)
	if err != nil {
		cancel(nil)
		return nil, err
	}

	*seen = sighting{status: response.StatusCode, retryAfter: upstream.RetryAfter(response.Header)}
	response.Body = &watchedBody{source: response.Body, seen: seen, limit: w.agent.options.IdleLimit, cancel: cancel}

	if err := w.mend(request, response, seen); err != nil {
		_ = response.Body.Close()
		return nil, err
	}

	return response, nil
}

// authenticate shows the operator's credentials, or what our own server signs for the agent that asks.
func (w *wire) authenticate(request *http.Request) error {
	assert := w.agent.options.Assert
	if w.agent.credentials.any() || assert == nil || !w.peer.card.guarded() {
		return w.agent.credentials.show(request)
	}

	token, err := assert(request.Context(), w.asker, w.peer.card.audience(w.agent.card))
	if err != nil {
		return upstream.Down(0, fmt.Errorf("sign who asks: %w", err))
	}

	request.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// mend brings an answer into the one form that the SDK reads.
func (w *wire) mend(request *http.Request, response *http.Response, seen *sighting) error {
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode != http.StatusOK {
		w.mendError(response, seen)
	}
	if response.StatusCode == http.StatusOK {
		w.knownAnswer(response, mediaType)
	}
	if response.StatusCode != http.StatusOK || request.Header.Get("Accept") != mimeEvents || mediaType == mimeEvents {
		return nil
	}

	// A whole answer where a stream was asked for: usually the reason why there is none.
	whole, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}

	var line bytes.Buffer
	line.WriteString("data: ")

	if err := json.Compact(&line, whole); err != nil {
		return upstream.NotUsable(fmt.Errorf("the answer is of type %q, want %s or JSON", excerpt(mediaType), mimeEvents))
	}

	line.WriteString("\n\n")
	replaceBody(response, line.Bytes())
	return nil
}

// mendError keeps the reason of a refusal. Many servers put errors of JSON-RPC under a status other than 200, which the
// SDK does not read, and the types of the other binding's errors are several.
func (w *wire) mendError(response *http.Response, seen *sighting) {
	body := readStart(response.Body, maxErrorBytes)
	_ = response.Body.Close()
	replaceBody(response, body)
	var said struct {
		Error struct {
			Code    json.Number `json:"code"`
			Message string      `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &said) != nil {
		seen.said = excerpt(string(body))
		return
	}

	seen.said = excerpt(said.Error.Message)
	response.Header.Set("Content-Type", mimeJSON)

	if !w.peer.rest && said.Error.Code != "" && speaksOfRequest(response.StatusCode) {
		response.StatusCode, seen.status = http.StatusOK, http.StatusOK
	}
}

// speaksOfRequest reports whether a status is about the request itself and not about who asks, how often, or the server.
func speaksOfRequest(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusUnauthorized && status != http.StatusForbidden &&
		status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
}

func replaceBody(response *http.Response, content []byte) {
	response.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(content), response.Body}
	response.ContentLength = int64(len(content))
}

// watchedBody remembers why reading failed and gives up when one read takes longer than the limit. The clock stands
// still between reads, because the time that the engine needs for a delta is not the agent's.
type watchedBody struct {
	source io.ReadCloser
	seen   *sighting
	limit  time.Duration
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func (b *watchedBody) Read(into []byte) (int, error) {
	if b.timer == nil {
		b.timer = time.AfterFunc(b.limit, func() { b.cancel(errIdle) })
	} else {
		b.timer.Reset(b.limit)
	}

	n, err := b.source.Read(into)
	b.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		b.seen.cut = err
	}
	return n, err
}

// Close ends the request.
func (b *watchedBody) Close() error {
	if b.timer != nil {
		b.timer.Stop()
	}
	err := b.source.Close()
	b.cancel(nil)
	return err
}
