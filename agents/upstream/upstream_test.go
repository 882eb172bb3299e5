package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
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

// TestOnlyAMissingConnectionIsDown: what a message may cause does not say that the program is down.
func TestOnlyAMissingConnectionIsDown(t *testing.T) {
	client := safehttp.New(safehttp.Options{AllowPrivate: true})
	t.Cleanup(client.Close)
	get := func(address string) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		return Interrupted(t.Context(), err)
	}

	cuts := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(cuts.Close)
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()

	for name, test := range map[string]struct {
		err  error
		down bool
	}{
		"refused":               {get(closed.URL), true},
		"no such name":          {get("http://nowhere.invalid/"), true},
		"no trusted address":    {get(untrusted.URL), true},
		"http instead of https": {get("https" + strings.TrimPrefix(cuts.URL, "http")), true},
		"a cut connection":      {get(cuts.URL), false},
		"500":                   {Status(500, 0, io.EOF), false},
		"502":                   {Status(502, 0, io.EOF), false},
		"503":                   {Status(503, 0, io.EOF), false},
		"429":                   {Status(429, 0, io.EOF), false},
	} {
		if got := errors.Is(test.err, ErrDown); got != test.down {
			t.Errorf("%s: down is %t: %v", name, got, test.err)
		}
	}

	if err := Dial(t.Context(), client, strings.TrimPrefix(closed.URL, "http://")); !errors.Is(err, ErrDown) {
		t.Errorf("a port that is closed: %v", err)
	}
	if err := Dial(t.Context(), client, strings.TrimPrefix(cuts.URL, "http://")); err != nil {
		t.Errorf("a port that is open: %v", err)
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
