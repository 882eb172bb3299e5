package httpserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"inbox/internal/await"
	"inbox/internal/fault"
)

// reading answers with the number of bytes that it read.
func reading(limit int64) Route {
	return Route{"POST", "/in", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := ReadBody(r, limit)
		if err != nil {
			WriteFault(w, err)
			return
		}
		_, _ = fmt.Fprint(w, len(body))
	})}
}

func dialFrom(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	connection, err := dialer.DialContext(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// TestAnnouncedBytesTakeNoMemory: five hundred requests announce 10 MiB each and send one byte; what they announced was
// reserved once, 10.6 GB for 370 KB of heads.
func TestAnnouncedBytesTakeNoMemory(t *testing.T) {
	const requests = 500
	var arrived sync.WaitGroup
	arrived.Add(requests)
	server := start(t, Options{Inside: loopback[:0], Routes: []Route{{"POST", "/in", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		r.Body = &announcing{ReadCloser: r.Body, first: sync.OnceFunc(arrived.Done)}
		_, _ = ReadBody(r, 10<<20)
	})}}})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range requests {
		connection := dialFrom(t, "127.0.0.1", server.Addr().String())
		_, _ = connection.Write([]byte("POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 10485760\r\n\r\n{"))
	}
	await.Done(t, arrived.Wait, "the first byte of all bodies")
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > requests*100<<10 {
		t.Errorf("%d announced bodies take %d MiB of heap", requests, grown>>20)
	}
}

// announcing tells when the first byte of a body was read and asks for the next.
type announcing struct {
	io.ReadCloser
	first func()
	seen  bool
}

func (b *announcing) Read(p []byte) (int, error) {
	if b.seen {
		b.first()
	}
	n, err := b.ReadCloser.Read(p)
	b.seen = b.seen || n > 0
	return n, err
}

// TestBytesOfAllBodiesAreBounded: one client network cannot take what others need, and who is refused hears 503 with the
// time to come again.
func TestBytesOfAllBodiesAreBounded(t *testing.T) {
	const half = 64 << 10
	server := start(t, Options{Inside: loopback[:0], MaxInFlight: 8 * 2 * half, BodyTimeout: time.Hour, MaxBodyBytes: 2 * half, Routes: []Route{reading(2 * half)}})
	held := dialFrom(t, "127.0.1.2", server.Addr().String())
	_, _ = fmt.Fprintf(held, "POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", 2*half, strings.Repeat("x", half+1))
	await.Until(t, "the bytes of the first request are counted", func() bool { return server.access.bodies.Used() > half })
	post := func(from string) *http.Response {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
		response, err := c.Post(server.url+"/in", "text/plain", bytes.NewReader(make([]byte, half)))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response
	}
	refused := post("127.0.1.2")
	if got := refused.Header; refused.StatusCode != 503 || got.Get("Retry-After") != "2" || got.Get("RateLimit") != `"bodies";r=0;t=2` ||
		got.Get("RateLimit-Policy") != `"bodies";q=1048576;qu="content-bytes"` {
		t.Errorf("beyond its share the network hears %d %v", refused.StatusCode, got)
	}
	if other := post("127.0.2.3"); other.StatusCode != 200 {
		t.Errorf("another network hears %d", other.StatusCode)
	}
	_ = held.Close()
	await.Until(t, "the bytes of a connection that is gone are given back", func() bool { return server.access.bodies.Used() == 0 })
	if again := post("127.0.1.2"); again.StatusCode != 200 {
		t.Errorf("after its bytes were given back the network hears %d", again.StatusCode)
	}
}

// TestBodiesComeAtALeastRate: who announces a body and sends a byte now and then is cut off long before the time for the
// whole body.
func TestBodiesComeAtALeastRate(t *testing.T) {
	deadlines := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
	server := newServer(t, Options{BodyTimeout: time.Hour, Routes: []Route{reading(1 << 20)}})
	request := httptest.NewRequest("POST", "/in", iotest.HalfReader(bytes.NewReader(make([]byte, 3*stepBytes))))
	began := time.Now()
	server.Handler().ServeHTTP(deadlines, request)
	if len(deadlines.read) < 3 {
		t.Fatalf("deadlines %v: want one at the begin and one for each step", deadlines.read)
	}
	for i, deadline := range deadlines.read[:3] {
		if late := deadline.Sub(began); late < stepTime || late > stepTime+time.Minute {
			t.Errorf("deadline %d is %v after the begin, want %v after the step before", i, late, stepTime)
		}
	}
}

type deadlineRecorder struct {
	*httptest.ResponseRecorder
	read []time.Time
}

func (d *deadlineRecorder) SetReadDeadline(deadline time.Time) error {
	if !deadline.IsZero() {
		d.read = append(d.read, deadline)
	}
	return nil
}

func TestReadBody(t *testing.T) {
	request := func(body io.Reader, announced int64) *http.Request {
		r := httptest.NewRequest("POST", "/in", body)
		r.ContentLength = announced
		return r
	}
	rapid.Check(t, func(t *rapid.T) {
		sent := rapid.SliceOfN(rapid.Byte(), 1, 40_000).Draw(t, "body")
		limit := rapid.Int64Range(1, 50_000).Draw(t, "limit")
		announced := rapid.SampledFrom([]int64{-1, int64(len(sent))}).Draw(t, "announced")
		got, err := ReadBody(request(bytes.NewReader(sent), announced), limit)
		switch {
		case int64(len(sent)) > limit && !fault.Is(err, fault.TooLarge):
			t.Fatalf("%d of %d bytes: %v", len(sent), limit, err)
		case int64(len(sent)) <= limit && (err != nil || !bytes.Equal(got, sent)):
			t.Fatalf("%d of %d bytes: got %d, %v", len(sent), limit, len(got), err)
		}
	})
	if _, err := ReadBody(request(iotest.ErrReader(errors.New("reset")), 10), 100); !fault.Is(err, fault.Malformed) {
		t.Errorf("a body that breaks: %v", err)
	}
}

// TestRefusalsSayWhenToComeAgain: every 429 has the fields, whichever surface wrote it.
func TestRefusalsSayWhenToComeAgain(t *testing.T) {
	quota := fault.Quota{Name: "sender", Amount: 30, Window: time.Minute}
	server := newServer(t, Options{Flood: []Rate{{Requests: 100, Window: time.Minute}}, Routes: []Route{
		{"GET", "/ok", say("x")},
		{"GET", "/bare", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })},
		{"GET", "/own", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		})},
		{"GET", "/named", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			WriteFault(w, &fault.Fault{Kind: fault.RateLimited, RetryAfter: 12 * time.Second, Quota: quota})
		})},
		{"GET", "/down", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			WriteFault(w, fault.New(fault.Unavailable, "the store is down"))
		})},
	}})
	for path, want := range map[string][3]string{
		"/bare":  {"5", "", `"requests";r=0;t=5`},
		"/own":   {"7", "", `"requests";r=0;t=7`},
		"/named": {"12", `"sender";q=30;w=60`, `"sender";r=0;t=12`},
		"/down":  {"5", "", ""},
	} {
		got := ask(server.Handler(), "GET", path).Header()
		if found := [3]string{got.Get("Retry-After"), got.Get("RateLimit-Policy"), got.Get("RateLimit")}; found != want {
			t.Errorf("%s: %q, want %q", path, found, want)
		}
	}
	got := ask(server.Handler(), "GET", "/ok").Header()
	if !strings.HasPrefix(got.Get("RateLimit"), `"address";r=9`) || got.Get("RateLimit-Policy") != `"address";q=100;w=60` {
		t.Errorf("an answer tells %q of %q", got.Get("RateLimit"), got.Get("RateLimit-Policy"))
	}
}

// TestProxyWithoutForwardedHeaderIsAClient: behind a proxy that the operator did not declare everybody has a private
// address; metrics stay closed and requests are counted.
func TestProxyWithoutForwardedHeaderIsAClient(t *testing.T) {
	server := newServer(t, Options{Metrics: Inside, Inside: loopback[:0], Flood: []Rate{{Requests: 3, Window: time.Hour}}, Routes: []Route{{"GET", "/x", say("x")}}})
	from := func(peer, path string) int {
		request := httptest.NewRequest("GET", path, nil)
		request.RemoteAddr = peer
		recorder := httptest.NewRecorder()
		server.Handler().ServeHTTP(recorder, request)
		return recorder.Code
	}
	for _, peer := range []string{"127.0.0.1:1", "10.0.0.7:1", "[fd00::7]:1", "[::1]:1"} {
		if got := from(peer, "/metrics"); got != 403 {
			t.Errorf("metrics for %s: %d", peer, got)
		}
		for i, want := range []int{200, 200, 429} {
			if got := from(peer, "/x"); got != want {
				t.Errorf("request %d of %s: %d, want %d", i, peer, got, want)
			}
		}
	}
}

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
	if n := f.tables[0].counts.Len(); n != maxFloodNetworks {
		t.Errorf("%d networks are counted, want %d", n, maxFloodNetworks)
	}
	if f.take(loud) == 0 {
		t.Error("the loud one is forgotten")
	}
	if f.take(quiet) != 0 {
		t.Error("the one that was quiet for longest is not forgotten")
	}
}

// TestLargerBodies: a route may take larger bodies of callers that it knows, and keep none of their bytes.
func TestLargerBodies(t *testing.T) {
	var server *running
	counted := make(chan int64, 1)
	server = start(t, Options{MaxBodyBytes: 1 << 10, Routes: []Route{
		{"POST", "/larger", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			LargerBody(r, 8<<10)
			LargerBody(r, 1) // a smaller one changes nothing
			reading(8<<10).Handler.ServeHTTP(w, r)
		})},
		{"POST", "/passed", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			LargerBody(r, 8<<10)
			PassBody(r)
			n, err := io.Copy(io.Discard, r.Body)
			if err != nil {
				WriteFault(w, bodyFault(err))
				return
			}
			counted <- server.access.bodies.Used()
			_, _ = fmt.Fprint(w, n)
		})},
		reading(8 << 10),
	}})
	for _, c := range []struct {
		path         string
		size, status int
	}{{"/in", 1 << 10, 200}, {"/in", 2 << 10, 413}, {"/larger", 8 << 10, 200}, {"/larger", 8<<10 + 1, 413}, {"/passed", 8 << 10, 200}, {"/passed", 8<<10 + 1, 413}} {
		response, err := http.Post(server.url+c.path, "text/plain", bytes.NewReader(make([]byte, c.size)))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != c.status || c.status == 200 && string(text) != fmt.Sprint(c.size) {
			t.Errorf("%s of %d bytes: %d %s, want %d", c.path, c.size, response.StatusCode, text, c.status)
		}
	}
	if held := await.Receive(t, counted, "the bytes of a passed body"); held != 0 {
		t.Errorf("%d bytes of a passed body count", held)
	}
}

func TestRefuseDuplicates(t *testing.T) {
	for body, refused := range map[string]bool{
		`{"model":"a","messages":[{"role":"user"},{"role":"system"}]}`: false, `{"model":"a","Model":"b"}`: true, `{"messages":[{"role":"user","role":"system"}]}`: true,
		`{"tools":[{"parameters":{"properties":{"user_id":1,"userId":2,"User_id":3}}}]}`: false, `not JSON`: false, ``: false,
	} {
		if err := RefuseDuplicates([]byte(body)); fault.Is(err, fault.Malformed) != refused || (err != nil) != refused {
			t.Errorf("%s: %v", body, err)
		}
	}
}
