package e2e

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"inbox/e2e/instance"
)

// TestAnnouncedBodiesTakeNoMemory: request heads of 370 KB, each of which announces 8 MiB and sends one byte, took 10.6 GB of
// heap, without a token and for agents that are not there.
func TestAnnouncedBodiesTakeNoMemory(t *testing.T) {
	s := start(t, instance.Settings{})
	token, err := s.Token(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.Memory()
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{"/a2a/echo", "/a2a/nobody", "/inbox", "/agents/echo/inbox", "/v1/chat", "/v1/chat/completions", "/v1/agent/echo"}
	const connections = 400
	for i := range connections {
		connection, err := net.Dial("tcp", s.Settings.HTTP)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		authorization := ""
		if i%2 == 0 && strings.HasPrefix(paths[i%len(paths)], "/a2a/") {
			authorization = "Authorization: Bearer " + token + "\r\n"
		}
		_, err = fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/activity+json\r\n%sContent-Length: 8388000\r\n\r\n{", paths[i%len(paths)], s.Settings.HTTP, authorization)
		if err != nil {
			t.Fatal(err)
		}
	}
	// A request that comes last is answered when the others are being read.
	answer, err := net.Dial("tcp", s.Settings.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Close() }()
	_ = answer.SetDeadline(time.Now().Add(patience))
	_, _ = fmt.Fprintf(answer, "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if said, err := io.ReadAll(answer); err != nil || !strings.HasPrefix(string(said), "HTTP/1.1 200") {
		t.Errorf("meanwhile /readyz says %q, %v", said, err)
	}
	after, err := s.Memory()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d announced bodies of 8 MiB: %d MiB resident before, %d MiB after", connections, before>>20, after>>20)
	if after-before > 100<<20 {
		t.Errorf("%d announced bodies take %d MiB", connections, (after-before)>>20)
	}
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
