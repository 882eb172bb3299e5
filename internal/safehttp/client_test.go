package safehttp

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/internal/await"
)

// peer is a server on loopback, and a client for which it is an ordinary public host.
func peer(t *testing.T, options Options, handler http.HandlerFunc) (*httptest.Server, *Client) {
	t.Helper()
	server := httptest.NewServer(handler)
	options.AllowPrivate = true
	client := New(options)
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return server, client
}

func do(t *testing.T, client *Client, address string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	return readAll(client.Do(request))
}

func readAll(response *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(response.Body)
	return string(content), errors.Join(err, response.Body.Close())
}

func TestDo(t *testing.T) {
	server, client := peer(t, Options{UserAgent: "inbox/test"}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write([]byte(r.Method + " " + r.UserAgent() + " " + string(body)))
	})
	if got, err := do(t, client, server.URL); err != nil || got != "POST inbox/test body" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestProductionRefusesLoopback(t *testing.T) {
	var asked atomic.Int64
	server, _ := peer(t, Options{}, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	client := New(Options{})
	if _, err := do(t, client, server.URL); !errors.Is(err, ErrRefused) {
		t.Errorf("do: %v", err)
	}
	if _, err := client.Get(t.Context(), server.URL, GetOptions{}); !errors.Is(err, ErrRefused) {
		t.Errorf("get: %v", err)
	}
	if _, err := client.DialContext(t.Context(), "tcp", server.Listener.Addr().String()); !errors.Is(err, ErrRefused) {
		t.Errorf("dial: %v", err)
	}
	if asked.Load() != 0 {
		t.Error("the server was reached")
	}
}

func TestTrustingReachesOnlyWhatIsWritten(t *testing.T) {
	server, _ := peer(t, Options{}, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	other, _ := peer(t, Options{}, func(http.ResponseWriter, *http.Request) { t.Error("the other server was reached") })
	client := New(Options{}).Trusting(server.Listener.Addr().String())
	defer client.Close()
	if got, err := do(t, client, server.URL); err != nil || got != "ok" {
		t.Errorf("%q, %v", got, err)
	}
	if connection, err := client.DialContext(t.Context(), "tcp", server.Listener.Addr().String()); err != nil {
		t.Error(err)
	} else {
		_ = connection.Close()
	}
	if _, err := do(t, client, other.URL); !errors.Is(err, ErrRefused) {
		t.Errorf("another port: %v", err)
	}
}

func TestDoDoesNotFollowRedirects(t *testing.T) {
	server, client := peer(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/next" {
			t.Error("the redirect was followed")
		}
		http.Redirect(w, r, "/next", http.StatusTemporaryRedirect)
	})
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("x"))
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusTemporaryRedirect {
		t.Errorf("status %d", response.StatusCode)
	}
}

func TestGetFollowsAndSignsEachHop(t *testing.T) {
	server, client := peer(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Signature") != r.URL.Path || r.Header.Get("Accept") != "application/activity+json" {
			t.Errorf("%s: headers %v", r.URL.Path, r.Header)
		}
		switch r.URL.Path {
		case "/a":
			http.Redirect(w, r, "b#part", http.StatusMovedPermanently)
		case "/b":
			http.Redirect(w, r, "/c", http.StatusSeeOther)
		default:
			_, _ = w.Write([]byte("found"))
		}
	})
	var signed []string
	sign := func(r *http.Request) error {
		signed = append(signed, r.URL.Path)
		r.Header.Set("Signature", r.URL.Path)
		return nil
	}
	response, err := client.Get(t.Context(), server.URL+"/a", GetOptions{Accept: "application/activity+json", Sign: sign})
	if err != nil {
		t.Fatal(err)
	}
	if got := response.Request.URL.Path; got != "/c" {
		t.Errorf("ended at %s", got)
	}
	if got, err := readAll(response, nil); err != nil || got != "found" {
		t.Errorf("%q, %v", got, err)
	}
	if diff := cmp.Diff([]string{"/a", "/b", "/c"}, signed); diff != "" {
		t.Error(diff)
	}
}

func TestRedirectLimits(t *testing.T) {
	var asked atomic.Int64
	server, client := peer(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		target := map[string]string{"/circle": "/circle2", "/circle2": "/circle"}[r.URL.Path]
		if target == "" {
			target = r.URL.Path + "x"
		}
		http.Redirect(w, r, target, http.StatusFound)
	})
	tests := map[string]struct {
		path    string
		options GetOptions
		asked   int64
	}{
		"default": {"/long", GetOptions{}, 4},
		"one":     {"/long", GetOptions{MaxRedirects: 1}, 2},
		"none":    {"/long", GetOptions{MaxRedirects: -1}, 1},
		"circle":  {"/circle", GetOptions{MaxRedirects: 10}, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			asked.Store(0)
			if _, err := client.Get(t.Context(), server.URL+test.path, test.options); !errors.Is(err, ErrRedirects) {
				t.Errorf("got %v", err)
			}
			if asked.Load() != test.asked {
				t.Errorf("asked %d times, want %d", asked.Load(), test.asked)
			}
		})
	}
}

func TestRedirectToPrivateIsRefused(t *testing.T) {
	inside, _ := peer(t, Options{}, func(http.ResponseWriter, *http.Request) { t.Error("the inner server was reached") })
	_, port, _ := net.SplitHostPort(inside.Listener.Addr().String())
	resolver := nameServer(t, func(name string, _ uint16, _ int64) []string { return []string{name + " 0 IN A 127.0.0.1"} })
	for _, target := range []string{
		inside.URL, "http://localhost:" + port + "/", "https://10.0.0.1/", "https://inside.example/", "ftp://example.com/", "//169.254.169.254/",
	} {
		outside, _ := peer(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", target)
			w.WriteHeader(http.StatusFound)
		})
		client := New(Options{Resolver: resolver}).Trusting(outside.Listener.Addr().String())
		if _, err := client.Get(t.Context(), outside.URL, GetOptions{}); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", target, err)
		}
		client.Close()
	}
}

func TestProxyOfTheEnvironmentIsIgnored(t *testing.T) {
	proxy, _ := peer(t, Options{}, func(http.ResponseWriter, *http.Request) { t.Error("the proxy was used") })
	server, client := peer(t, Options{}, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("ALL_PROXY", proxy.URL)
	if got, err := do(t, client, server.URL); err != nil || got != "ok" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestBodyCap(t *testing.T) {
	zeros := make([]byte, 1<<20)
	server, client := peer(t, Options{MaxBytes: 1000}, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/exact":
			_, _ = w.Write(zeros[:1000])
		case "/huge":
			_, _ = w.Write(zeros)
		case "/bomb": // 1 MiB of zeros in about 1 KiB
			w.Header().Set("Content-Encoding", "gzip")
			zip := gzip.NewWriter(w)
			_, _ = zip.Write(zeros)
			_ = zip.Close()
		}
	})
	for path, want := range map[string]error{"/exact": nil, "/huge": ErrTooLarge, "/bomb": ErrTooLarge} {
		got, err := do(t, client, server.URL+path)
		if !errors.Is(err, want) || len(got) > 1000 {
			t.Errorf("%s: %d bytes, %v", path, len(got), err)
		}
	}
	if got, err := do(t, client.Limit(2<<20), server.URL+"/huge"); err != nil || len(got) != 1<<20 {
		t.Errorf("with a higher limit: %d bytes, %v", len(got), err)
	}
	response, err := client.Get(t.Context(), server.URL+"/exact", GetOptions{MaxBytes: 999})
	if _, err := readAll(response, err); !errors.Is(err, ErrTooLarge) {
		t.Errorf("with a limit of the fetch: %v", err)
	}
}

func TestHeaderCap(t *testing.T) {
	server, client := peer(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 100<<10))
	})
	if _, err := do(t, client, server.URL); err == nil {
		t.Error("a header of 100 KiB was taken")
	}
}

func TestSlowPeers(t *testing.T) {
	hold := make(chan struct{})
	server, client := peer(t, Options{Timeout: time.Second}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			_, _ = w.Write([]byte("half"))
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	})
	defer close(hold)
	hasty := New(Options{AllowPrivate: true, HeaderTimeout: 20 * time.Millisecond})
	defer hasty.Close()
	if _, err := do(t, hasty, server.URL+"/header"); !errors.Is(err, ErrTimeout) {
		t.Errorf("slow header: %v", err)
	}
	if got, err := do(t, client, server.URL+"/body"); !errors.Is(err, ErrTimeout) || got != "half" {
		t.Errorf("slow body: %q, %v", got, err)
	}
	response, err := client.Get(t.Context(), server.URL+"/body", GetOptions{})
	if _, err := readAll(response, err); !errors.Is(err, ErrTimeout) {
		t.Errorf("slow body of a fetch: %v", err)
	}
}

// An agent behind a webhook may think longer than any peer: its caller's deadline is the only limit.
func TestTrustedServicesMayTakeTheirTime(t *testing.T) {
	server, _ := peer(t, Options{}, func(w http.ResponseWriter, _ *http.Request) {
		<-time.After(60 * time.Millisecond)
		_, _ = w.Write([]byte("thought"))
	})
	client := New(Options{HeaderTimeout: 10 * time.Millisecond, Timeout: 20 * time.Millisecond}).Trusting(server.Listener.Addr().String())
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, _ := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, nil)
	if got, err := readAll(client.Do(request)); err != nil || got != "thought" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestConnectionsAreReused(t *testing.T) {
	var opened atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	client := New(Options{AllowPrivate: true})
	defer client.Close()
	done := make(chan error, 8)
	for range 8 {
		go func() {
			var err error
			for range 25 {
				_, err = readAll(client.Do(mustRequest(server.URL)))
			}
			done <- err
		}()
	}
	for range 8 {
		if err := await.Receive(t, done, "the end of all clients"); err != nil {
			t.Error(err)
		}
	}
	if opened.Load() > 8 {
		t.Errorf("200 deliveries opened %d connections", opened.Load())
	}
}

func mustRequest(address string) *http.Request {
	target, _ := url.Parse(address)
	return &http.Request{Method: http.MethodPost, URL: target, Header: http.Header{}}
}

func TestSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(3, 2)
		enter := func(host string) (func(), error) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, ErrBusy)
			defer cancel()
			return s.enter(ctx, host)
		}
		must := func(host string) func() {
			release, err := enter(host)
			if err != nil {
				t.Fatal(err)
			}
			return release
		}
		first, second := must("a:443"), must("a:443")
		if _, err := enter("a:443"); !errors.Is(err, ErrBusy) {
			t.Errorf("third request to one host: %v", err)
		}
		third := must("b:443")
		if _, err := enter("c:443"); !errors.Is(err, ErrBusy) {
			t.Errorf("fourth request in all: %v", err)
		}
		waiting := make(chan func())
		go func() { waiting <- must("c:443") }()
		synctest.Wait()
		first()
		(<-waiting)()
		second()
		third()
		if s.hosts.InUse() != 0 || len(s.all) != 0 {
			t.Errorf("left over: %d hosts, %d slots", s.hosts.InUse(), len(s.all))
		}
	})
}

func TestSlotsComeBackInEveryCase(t *testing.T) {
	server, client := peer(t, Options{MaxBytes: 10, MaxConcurrent: 1, MaxPerHost: 1, Timeout: 5 * time.Second}, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/cut":
			panic(http.ErrAbortHandler)
		case "/huge":
			_, _ = w.Write(make([]byte, 100))
		}
	})
	for range 3 {
		_, _ = do(t, client, server.URL+"/cut")
		_, _ = do(t, client, server.URL+"/huge")
		_, _ = do(t, client, "http://127.0.0.1:1/") // nothing listens there
		if _, err := do(t, client, server.URL+"/fine"); err != nil {
			t.Fatal(err)
		}
		response, err := client.Get(t.Context(), server.URL+"/fine", GetOptions{})
		if _, err := readAll(response, err); err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkDo(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }))
	defer server.Close()
	client := New(Options{AllowPrivate: true})
	defer client.Close()
	run := func(send func(*http.Request) (*http.Response, error)) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := readAll(send(mustRequest(server.URL))); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	plain := &http.Client{Transport: &http.Transport{}}
	defer plain.CloseIdleConnections()
	b.Run("plain", run(plain.Do))
	b.Run("safe", run(client.Do))
}
