package httpserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
)

// TestUntrustedForward: a proxy that the settings do not name is counted, and nothing else.
func TestUntrustedForward(t *testing.T) {
	networks := Networks{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for _, test := range []struct {
		remote, forwarded string
		want              bool
	}{
		{"10.0.0.1:1", "203.0.113.1", false}, {"192.168.0.1:1", "203.0.113.1", true}, {"192.168.0.1:1", "", false}, {"10.0.0.1:1", "", false}, {"odd", "203.0.113.1", true},
	} {
		request := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		request.RemoteAddr = test.remote
		if test.forwarded != "" {
			request.Header.Set("X-Forwarded-For", test.forwarded)
		}
		if got := networks.untrustedForward(request); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// TestSocketPeers: who connects by a socket of this machine is believed about the client like a trusted proxy, and is inside only without any
// proxy's headers.
func TestSocketPeers(t *testing.T) {
	proxy := netip.MustParsePrefix("10.0.0.0/8")
	for name, c := range map[string]struct {
		socket    bool
		forwarded string
		want      string
		inside    bool
	}{
		"a program on this machine":    {true, "", "127.0.0.1", true},
		"a proxy":                      {true, "203.0.113.1", "203.0.113.1", false},
		"what the client forged":       {true, "192.0.2.9, 203.0.113.1", "203.0.113.1", false},
		"a proxy behind a trusted one": {true, "203.0.113.1, 10.0.0.2", "203.0.113.1", false},
		"a proxy that says nonsense":   {true, "nonsense", "127.0.0.1", false},
		"no socket":                    {false, "203.0.113.1", "invalid IP", false},
	} {
		t.Run(name, func(t *testing.T) {
			networks := Networks{Trusted: []netip.Prefix{proxy}, Inside: loopback, Socket: c.socket}
			request := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			request.RemoteAddr = "@"
			if c.forwarded != "" {
				request.Header.Set("X-Forwarded-For", c.forwarded)
			}
			request = request.WithContext(context.WithValue(request.Context(), requestKey{}, &known{access: &access{networks: networks}}))
			if got := ClientIP(request).String(); got != c.want {
				t.Errorf("the client is %s", got)
			}
			if got := inside(request); got != c.inside {
				t.Errorf("inside: %v", got)
			}
			if got := networks.untrustedForward(request); got != (!c.socket && c.forwarded != "") {
				t.Errorf("untrusted: %v", got)
			}
		})
	}
}
