package safehttp_test

import (
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"inbox/internal/safehttp"
)

// listening is a server that does something with each connection, and nothing else.
func listening(t *testing.T, do func(net.Conn)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { do(connection); _ = connection.Close() }()
		}
	}()
	return listener.Addr().String()
}

// TestUnconnected: only what fails before there is a connection for the request cannot be its fault.
func TestUnconnected(t *testing.T) {
	client := safehttp.New(safehttp.Options{AllowPrivate: true, TLSTimeout: 100 * time.Millisecond})
	t.Cleanup(client.Close)
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })

	refused := listening(t, func(net.Conn) {})
	closes := listening(t, func(connection net.Conn) { _, _ = connection.Read(make([]byte, 1)) })
	hangs := listening(t, func(net.Conn) { <-ended })
	alerts := listening(t, func(connection net.Conn) {
		_, _ = connection.Read(make([]byte, 1<<10))
		_, _ = connection.Write([]byte{21, 3, 3, 0, 2, 2, 40}) // handshake_failure
	})
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	cuts := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		if request.URL.Path == "/cut" {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(cuts.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()

	for name, test := range map[string]struct {
		address string
		header  string
		want    bool
	}{
		"a closed port":                       {gone.URL, "", true},
		"no such name":                        {"http://nowhere.invalid/", "", true},
		"a certificate of someone else":       {untrusted.URL, "", true},
		"http behind https":                   {"https" + strings.TrimPrefix(cuts.URL, "http"), "", true},
		"TLS that is refused":                 {"https://" + alerts, "", true},
		"a connection that is closed in TLS":  {"https://" + closes, "", true},
		"TLS that does not go on":             {"https://" + hangs, "", true},
		"a connection that is cut":            {cuts.URL + "/cut", "", false},
		"a connection that is closed at once": {"http://" + refused, "", false},
		"a request that cannot be sent":       {cuts.URL, "a\nb", false},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // over a new connection, and over one that was used, where there is one
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, test.address, bytes.NewReader([]byte("body")))
				if err != nil {
					t.Fatal(err)
				}
				if test.header != "" {
					request.Header["X"] = []string{test.header}
				}
				response, err := client.Do(request)
				if err == nil {
					_ = response.Body.Close()
					t.Fatal("no error")
				}
				if got := safehttp.Unconnected(err); got != test.want {
					t.Errorf("%t: %v", got, err)
				}
				if response, err := http.Get(cuts.URL); err == nil {
					_ = response.Body.Close()
				}
			}
		})
	}
}
