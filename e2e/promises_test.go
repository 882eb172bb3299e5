package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"inbox/e2e/instance"
)

// heap is what the Go heap of a server holds, as /metrics says: room that was made and never written to is not resident.
func (s *server) heap() int64 {
	s.t.Helper()
	response, err := http.Get(s.URL() + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	scanner := bufio.NewScanner(response.Body)
	for scanner.Scan() {
		if value, is := strings.CutPrefix(scanner.Text(), "go_memstats_heap_alloc_bytes "); is {
			bytes, err := strconv.ParseFloat(value, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return int64(bytes)
		}
	}
	s.t.Fatalf("/metrics says nothing of the heap: %v", scanner.Err())
	return 0
}

// TestAnnouncedBodiesTakeNoMemory: request heads of 370 KB, each of which announces megabytes and sends one byte, took 10.6 GB
// of heap.
func TestAnnouncedBodiesTakeNoMemory(t *testing.T) {
	s := start(t, instance.Settings{})
	token, err := s.Token(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	before := s.heap()
	doors := []struct {
		path, media string
		announced   int
	}{
		{"/a2a/echo", "application/json", 8_000_000}, {"/v1/chat/completions", "application/json", 8_000_000},
		{"/v1/chat", "application/json", 1_000_000}, {"/v1/agent/echo", "application/json", 1_000_000},
		{"/agents/echo/inbox", "application/activity+json", 1_000_000}, {"/inbox", "application/activity+json", 1_000_000},
	}
	const connections = 600
	promised := 0
	for i := range connections {
		door := doors[i%len(doors)]
		promised += door.announced
		connection, err := net.Dial("tcp", s.Settings.HTTP)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		if _, err = fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n{",
			door.path, s.Settings.HTTP, door.media, token, door.announced); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all of them are being read", func() bool { return s.inFlight() >= connections })
	after := s.heap()
	t.Logf("%d requests promise %d MiB: the heap holds %d MiB before, %d MiB after", connections, promised>>20, before>>20, after>>20)
	if after-before > 100<<20 {
		t.Errorf("%d promised MiB take %d MiB of heap", promised>>20, (after-before)>>20)
	}
}

// inFlight is how many requests are being answered.
func (s *server) inFlight() (requests int) {
	s.t.Helper()
	response, err := http.Get(s.URL() + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\ninbox_http_requests_in_flight ")
	_, _ = fmt.Sscan(rest, &requests)
	return requests
}

// TestMetricsBehindAnUndeclaredProxy: a proxy on the same machine that passes strangers on without X-Forwarded-For opened
// /metrics and turned the limits off.
func TestMetricsBehindAnUndeclaredProxy(t *testing.T) {
	s := start(t, instance.Settings{Strict: true, Domain: "inbox.example.org", More: "[limits]\nhttp = [\"40/1h\"]\n"})
	if got := s.status("/metrics"); got != 403 {
		t.Errorf("/metrics says %d, want 403", got)
	}
	last := 0
	for range 60 {
		last = s.status("/.well-known/nodeinfo")
	}
	if last != 429 {
		t.Errorf("the sixtieth request hears %d, want 429", last)
	}
	if !strings.Contains(s.Log(), "http.trusted_proxies") {
		t.Error("the log does not warn of a proxy that nobody declared")
	}
}
