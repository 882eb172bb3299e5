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

// TestFloodOfManyIPv6Networks: who rents a /48 gets at most sixteen times the rate of a /64, not one for each of its
// 65,536 networks. What is refused counts, too.
func TestFloodOfManyIPv6Networks(t *testing.T) {
	f := newFlood(nil, []Rate{{10, time.Minute}}).(*flood)
	f.now = func() time.Time { return time.Unix(1_700_000_000, 0).Truncate(time.Minute) }
	let := func(form func(i uint16) [16]byte) (count int) {
		for i := range uint16(5000) {
			if f.take(netip.AddrFrom16(form(i))) == 0 {
				count++
			}
		}
		return count
	}
	if got := let(func(i uint16) [16]byte { return [16]byte{0x20, 1, 0xd, 0xb8, 0, 1, byte(i >> 8), byte(i), 15: 1} }); got > 160 || got < 10 {
		t.Errorf("a /48 made %d requests, want at most 160", got)
	}
	if got := let(func(i uint16) [16]byte { return [16]byte{0x20, 1, 0xd, 0xb9, byte(i >> 8), byte(i), 15: 1} }); got > 640 || got < 10 {
		t.Errorf("a /32 made %d requests, want at most 640", got)
	}
	if wait := f.take(netip.MustParseAddr("2001:dba::1")); wait != 0 {
		t.Errorf("another network waits %v", wait)
	}
}

// TestFullFloodTableForgetsTheOldest: a flood of addresses does not let one go on that is over its rate.
func TestFullFloodTableForgetsTheOldest(t *testing.T) {
	f := newFlood(nil, []Rate{{1, time.Minute}}).(*flood)
	f.now = func() time.Time { return time.Unix(1_700_000_000, 0).Truncate(time.Minute) }
	loud, quiet := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	f.take(loud)
	f.take(quiet)
	for i := range uint32(maxFloodNetworks + 10) {
		f.take(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
		if i%1000 == 0 && f.take(loud) == 0 {
			t.Fatalf("after %d addresses the loud one is forgotten", i)
		}
	}
	if n := len(f.tables[0].counts); n != maxFloodNetworks || f.tables[0].recent.Len() != n {
		t.Errorf("%d networks are counted, want %d", n, maxFloodNetworks)
	}
	if f.take(loud) == 0 {
		t.Error("the loud one is forgotten")
	}
	if f.take(quiet) != 0 {
		t.Error("the one that was quiet for longest is not forgotten")
	}
}
