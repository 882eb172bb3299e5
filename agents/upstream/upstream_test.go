package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

func TestRetryAfter(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "-1": 0, "soon": 0, "0": 0, "90": 90 * time.Second, "4294967295": MaxRetryAfter, "99999999999999999999": 0,
		"Fri, 01 Jan 2100 00:00:00 GMT": MaxRetryAfter, "Fri, 01 Jan 1999 00:00:00 GMT": 0,
	} {
		if got := RetryAfter(http.Header{"Retry-After": {text}}); got != want {
			t.Errorf("Retry-After %q = %v, want %v", text, got, want)
		}
	}
}

func TestExcerpt(t *testing.T) {
	if got, want := Excerpt("a\r\nb\x1b[31m\u202e  c"+strings.Repeat("x", 500), 200), "a b [31m c"+strings.Repeat("x", 190); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Excerpt(strings.Repeat("é\xff", maxExcerpt), maxExcerpt); !utf8.ValidString(got) || len(got) > maxExcerpt {
		t.Errorf("%d bytes of an endless text", len(got))
	}
}

func TestStatus(t *testing.T) {
	for status, want := range map[int]struct {
		permanent bool
		public    string
	}{
		201: {true, Unusable}, 501: {true, Unusable}, 302: {true, Unreachable}, 400: {true, Refused}, 401: {true, Refused}, 422: {true, Refused},
		408: {false, Unreachable}, 425: {false, Unreachable}, 429: {false, Busy}, 500: {false, Unreachable}, 502: {false, Unreachable}, 503: {false, Busy}, 504: {false, Unreachable},
	} {
		got := fault.Of(Status(status, 7*time.Second, io.EOF))
		if got.Permanent != want.permanent || got.Public != want.public || !got.Permanent && got.RetryAfter != 7*time.Second || !errors.Is(got, io.EOF) {
			t.Errorf("%d: %+v", status, got)
		}
	}
}

func TestInterrupted(t *testing.T) {
	late := errors.New("too late")
	over, cancel := context.WithCancelCause(t.Context())
	cancel(late)
	known := fault.New(fault.NotFound, "no such thing")
	for name, test := range map[string]struct {
		ctx       context.Context
		err       error
		cause     error
		permanent bool
		public    string
	}{
		"a limit":     {over, io.EOF, late, false, Late},
		"the network": {t.Context(), io.EOF, io.EOF, false, Unreachable},
		"an address":  {t.Context(), fmt.Errorf("dial: %w", safehttp.ErrRefused), safehttp.ErrRefused, true, Unreachable},
		"redirects":   {t.Context(), safehttp.ErrRedirects, safehttp.ErrRedirects, true, Unreachable},
		"too large":   {t.Context(), safehttp.ErrTooLarge, safehttp.ErrTooLarge, true, Unusable},
		"a fault":     {over, fmt.Errorf("ask: %w", known), known, false, "no such thing"},
	} {
		got := fault.Of(Interrupted(test.ctx, test.err))
		if got.Permanent != test.permanent || got.Public != test.public || !errors.Is(got, test.cause) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestDestination(t *testing.T) {
	for address, want := range map[string]string{
		"https://a.example/x": "a.example:443", "http://a.example": "a.example:80", "http://[::1]:8081/": "[::1]:8081", "http://127.0.0.1:9": "127.0.0.1:9",
	} {
		if got, err := Destination(address, "https://agent.example.org/", "use token"); got != want || err != nil {
			t.Errorf("Destination(%q) = %q, %v; want %q", address, got, err, want)
		}
	}
}

func TestDestinationRefuses(t *testing.T) {
	for address, want := range map[string]string{
		"": "must be an address such as https://agent.example.org/", "ftp://a.example/": "must begin with https:// or http://",
		"https://u:p@a.example/": "must not carry a user or password: use token", "https://a.example/#x": "must not have a fragment",
	} {
		if _, err := Destination(address, "https://agent.example.org/", "use token"); fault.Of(err).Field != "url" || !strings.Contains(err.Error(), want) {
			t.Errorf("Destination(%q) = %v; want %q", address, err, want)
		}
	}
}
