package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"inbox/internal/safehttp"
)

const (
	streamLifetime = 24 * time.Hour // a stream of announcements is opened anew after it
	streamBytes    = 1 << 40        // single messages of a stream are limited by the SDK
	refusalBytes   = 64 << 10       // of an answer with an error status
)

// web sends the SDK's requests through the one HTTP client of the house, with the operator's token.
type web struct {
	client *safehttp.Client
	token  string
	limit  int
}

func newWeb(settings Server, client *safehttp.Client, limit int) (*web, error) {
	destination, err := settings.destination()
	if err != nil {
		return nil, err
	}
	return &web{client: client.Trusting(destination).Limit(streamBytes), token: settings.Token, limit: limit}, nil
}

// httpClient follows no redirect: the token is for the operator's address alone.
func (w *web) httpClient() *http.Client {
	return &http.Client{
		Transport:     w,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// RoundTrip sends one request. Calls come with the deadline of their tool; streams of announcements come without one
// and get a long one, for without any the client would give them that of an ordinary request.
func (w *web) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := request.Context(), context.CancelFunc(func() {})
	if _, bounded := ctx.Deadline(); !bounded {
		ctx, cancel = context.WithTimeout(ctx, streamLifetime)
	}

	sent := request.Clone(ctx)
	if w.token != "" {
		sent.Header.Set("Authorization", "Bearer "+w.token)
	}

	response, err := w.client.Do(sent)
	if err != nil {
		cancel()
		return nil, withoutAddress(err)
	}

	response.Body = w.bound(request, response, cancel)
	return response, nil
}

// bound limits a body by what it is.
func (w *web) bound(request *http.Request, response *http.Response, done func()) io.ReadCloser {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	from := &closing{response.Body, done}
	switch {
	case response.StatusCode/100 != 2:
		return &limited{io.LimitReader(from, refusalBytes), from}
	case kind == "text/event-stream":
		return from
	default:
		return &limited{&whole{from: from, limit: w.limit, request: request}, from}
	}
}

// closing calls done when the body is closed.
type closing struct {
	io.ReadCloser
	done func()
}

// Close ends the request.
func (c *closing) Close() error {
	defer c.done()
	return c.ReadCloser.Close()
}

type limited struct {
	io.Reader
	io.Closer
}

// whole is a body of one message. If it is over the limit, an error for the call stands in its place.
type whole struct {
	from    io.Reader
	limit   int
	request *http.Request
	ready   io.Reader
}

// Read reads everything first.
func (b *whole) Read(into []byte) (int, error) {
	if b.ready == nil {
		content, err := io.ReadAll(io.LimitReader(b.from, int64(b.limit)+1))
		switch {
		case err != nil:
			return 0, err
		case len(content) > b.limit:
			content = b.replacement()
		}
		b.ready = bytes.NewReader(content)
	}
	return b.ready.Read(into)
}

func (b *whole) replacement() []byte {
	var sent struct {
		ID json.Number `json:"id"`
	}
	if b.request.GetBody != nil {
		if body, err := b.request.GetBody(); err == nil {
			_ = json.NewDecoder(body).Decode(&sent) // without an id the answer is understood by no one, which ends the connection
		}
	}
	return tooLarge(sent.ID.String(), b.limit)
}

// withoutAddress takes the address out of an error: operators write keys into addresses, and errors go to logs.
func withoutAddress(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("%s: %w", failed.Op, failed.Err)
	}
	return err
}
