package httpserver

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"
)

func TestFlood(t *testing.T) {
	now := time.Unix(1_700_000_000, 0).Truncate(time.Minute)
	f := newFlood(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), []Rate{{3, time.Minute}}).(*flood)
	f.now = func() time.Time { return now }
	ask := func(address string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/inbox", nil)
		r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(address), 1234).String()
		f.ServeHTTP(w, r)
		return w
	}
	for i, want := range []int{204, 204, 204, 429, 429} {
		if got := ask("203.0.113.7"); got.Code != want || want == 429 && got.Header().Get("Retry-After") != "60" {
			t.Errorf("request %d: %d %v", i, got.Code, got.Header())
		}
	}
	if got := ask("203.0.113.8"); got.Code != 204 {
		t.Errorf("another address: %d", got.Code)
	}
	for i, address := range []string{"2001:db8::1", "2001:db8::2", "2001:db8::3"} {
		if got := ask(address); got.Code != 204 {
			t.Errorf("IPv6 %d: %d", i, got.Code)
		}
	}
	if got := ask("2001:db8::ffff"); got.Code != 429 {
		t.Errorf("one network is one: %d", got.Code)
	}
	for range 9 {
		if got := ask("127.0.0.1"); got.Code != 204 {
			t.Errorf("inside: %d", got.Code)
		}
	}
	for i, want := range []int{204, 204, 204, 429} {
		if got := ask("10.0.0.1"); got.Code != want {
			t.Errorf("request %d of a private address: %d, want %d", i, got.Code, want)
		}
	}
	now = now.Add(time.Minute)
	if got := ask("203.0.113.7"); got.Code != 204 {
		t.Errorf("the next window: %d", got.Code)
	}
}
