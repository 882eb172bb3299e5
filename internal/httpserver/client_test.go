package httpserver

import (
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
