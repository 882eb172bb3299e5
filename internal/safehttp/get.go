package safehttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// ErrRedirects reports that there were more redirects than allowed, or a circle.
var ErrRedirects = errors.New("too many redirects")

const defaultRedirects = 3

// GetOptions are the particulars of one fetch.
type GetOptions struct {
	Accept       string                    // Accept header; empty = none
	Sign         func(*http.Request) error // called for each hop, after all headers are set; may be nil
	MaxBytes     int64                     // of the final body; 0 = that of the client
	MaxRedirects int                       // 0 = 3, negative = none
}

// Get fetches an address and follows redirects, each checked and signed anew; the total time of the client covers
// all of them. The final address is response.Request.URL. Errors as for Do, and ErrRedirects.
func (c *Client) Get(ctx context.Context, address string, options GetOptions) (*http.Response, error) {
	target, err := url.Parse(address)
	if err != nil {
		return nil, &Refused{Target: "address", Reason: "not a URL"}
	}

	options.MaxRedirects = cmp.Or(options.MaxRedirects, defaultRedirects)
	options.MaxBytes = cmp.Or(options.MaxBytes, c.options.MaxBytes)
	ctx, cancel := context.WithTimeoutCause(ctx, c.options.Timeout, ErrTimeout)
	response, err := c.follow(ctx, target, options)
	requests.WithLabelValues(outcome(err)).Inc()
	if err != nil {
		cancel()
		return nil, err
	}

	response.Body = &hops{response.Body, cancel}
	return response, nil
}

// hops ends the time of all hops together with the last body.
type hops struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (h *hops) Close() error {
	defer h.cancel()
	return h.ReadCloser.Close()
}

func (c *Client) follow(ctx context.Context, target *url.URL, options GetOptions) (*http.Response, error) {
	seen := map[string]bool{}
	for left := options.MaxRedirects; ; left-- {
		seen[target.String()] = true
		response, err := c.hop(ctx, target, options)
		if err != nil || !redirects(response) {
			return response, err
		}

		next, err := location(response)
		if err != nil {
			return nil, err
		}
		if left <= 0 || seen[next.String()] {
			return nil, fmt.Errorf("%s: %w", target.Redacted(), ErrRedirects)
		}
		target = next
	}
}

func (c *Client) hop(ctx context.Context, target *url.URL, options GetOptions) (*http.Response, error) {
	request := (&http.Request{Method: http.MethodGet, URL: target, Host: target.Host, Header: http.Header{}}).WithContext(ctx)
	if options.Accept != "" {
		request.Header.Set("Accept", options.Accept)
	}

	request.Header.Set("User-Agent", c.options.UserAgent)
	if err := c.CheckURL(target); err != nil {
		return nil, err
	}

	if options.Sign != nil {
		if err := options.Sign(request); err != nil {
			return nil, fmt.Errorf("sign request: %w", err)
		}
	}

	return c.do(request, options.MaxBytes)
}

func redirects(response *http.Response) bool {
	switch response.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return response.Header.Get("Location") != ""
	}
	return false
}

// location reads where a redirect points and returns the connection; a long redirect page costs the connection.
func location(response *http.Response) (*url.URL, error) {
	_, _ = io.CopyN(io.Discard, response.Body, 4<<10)
	_ = response.Body.Close()
	next, err := response.Location()
	if err != nil {
		return nil, &Refused{Target: "redirect", Reason: "not a URL"}
	}
	next.Fragment = ""
	return next, nil
}
