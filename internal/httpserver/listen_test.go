package httpserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inbox/internal/await"
)

// TestGate: what is over the limit is closed, and each end makes room.
func TestGate(t *testing.T) {
	listener, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	g, is := listener.(*gate)
	if !is {
		t.Fatalf("Listen gives %T", listener)
	}
	g.most = 2
	accepted := make(chan net.Conn, 4)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- connection
		}
	}()
	dial := func() net.Conn {
		connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		return connection
	}
	dial()
	dial()
	first, second := await.Receive(t, accepted, "the first connection"), await.Receive(t, accepted, "the second connection")
	if _, err := dial().Read(make([]byte, 1)); err == nil {
		t.Error("the third connection stays")
	}
	_ = first.Close()
	_ = first.Close() // counts once
	dial()
	third := await.Receive(t, accepted, "the connection after one left")
	if _, err := dial().Read(make([]byte, 1)); err == nil {
		t.Error("there is room for more after one left")
	}
	_, _ = second.Close(), third.Close()
	if _, sends := first.(io.ReaderFrom); !sends {
		t.Error("a connection cannot send files any more")
	}
}

func TestSourcesOfConnections(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7:80": "192.0.2.7/32", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64", "[::ffff:192.0.2.7]:80": "192.0.2.7/32",
		"127.0.0.1:80": "", "10.1.2.3:80": "", "[::1]:80": "", "[fd00::1]:80": "", "[fe80::1%eth0]:80": "", "@": "",
	} {
		if got := sourceOf(addressed{text: address}); got.IsValid() != (want != "") || got.IsValid() && got.String() != want {
			t.Errorf("%s is of %v, want %q", address, got, want)
		}
	}
	g := newGate(nil)
	g.others = 1
	network := netip.MustParsePrefix("192.0.2.7/32")
	if !g.enter(network) || g.enter(network) || !g.enter(netip.MustParsePrefix("192.0.2.8/32")) {
		t.Error("the limit of one address")
	}
	g.leave(network)
	if len(g.from) != 1 || !g.enter(network) {
		t.Error("no room after a leave")
	}
}

func TestPace(t *testing.T) {
	at := netip.MustParseAddr
	limiter := NewClientLimiter([]Rate{{Requests: 2, Window: time.Hour}}, Networks{Inside: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	for i, want := range []bool{false, false, true} {
		if wait := limiter(at("192.0.2.7")); wait > 0 != want {
			t.Errorf("request %d waits %v", i+1, wait)
		}
		if wait := limiter(at("10.0.0.1")); wait > 0 {
			t.Errorf("the operator waits %v", wait)
		}
	}
	if wait := limiter(at("192.0.2.8")); wait > 0 {
		t.Errorf("another address waits %v", wait)
	}
	if wait := NewClientLimiter(nil, Networks{})(at("192.0.2.7")); wait > 0 {
		t.Errorf("without a limit it waits %v", wait)
	}
}

type addressed struct {
	net.Conn
	text string
}

func (a addressed) RemoteAddr() net.Addr { return a }
func (a addressed) Network() string      { return "tcp" }
func (a addressed) String() string       { return a.text }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// say answers with the parameter, so that a test sees which route was taken.
func say(text string, params ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range params {
			text += fmt.Sprintf(" %s=%q", name, Param(r, name))
		}
		_, _ = w.Write([]byte(text))
	})
}

func newServer(t testing.TB, options Options) *Server {
	t.Helper()
	server, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func ask(handler http.Handler, method, target string) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(method, target, nil))
	return recorder
}

func TestRouting(t *testing.T) {
	tests := []struct {
		method, target string
		status         int
		body           string
	}{
		{"GET", "/agents/echo", 200, `actor agent="echo"`},
		{"HEAD", "/agents/echo", 200, `actor agent="echo"`},
		{"GET", "/agents/a%2Fb", 200, `actor agent="a/b"`},
		{"GET", "/agents/ec%68o", 200, `actor agent="echo"`},
		{"GET", "/agents/%25zz", 200, `actor agent="%zz"`},
		{"POST", "/agents/echo/inbox", 200, `inbox`},
		{"GET", "/any/deep/path", 200, `any *="deep/path"`},
		{"PUT", "/any/x", 200, `any *="x"`},
		{"GET", "/nowhere", 404, `{"error":{"code":"not_found","message":"nothing is at this address","documentation":"/docs/reference/errors#not_found"}}`},
		{"GET", "/agents/echo/", 404, `{"error":{"code":"not_found","message":"nothing is at this address","documentation":"/docs/reference/errors#not_found"}}`},
		{"DELETE", "/agents/echo", 405, `{"error":{"code":"method_not_allowed","message":"this address takes GET, HEAD","documentation":"/docs/reference/errors#method_not_allowed"}}`},
		{"GET", "/agents/echo/inbox", 405, `{"error":{"code":"method_not_allowed","message":"this address takes POST","documentation":"/docs/reference/errors#method_not_allowed"}}`},
	}
	for _, test := range tests {
		t.Run(test.method+" "+test.target, func(t *testing.T) {
			server := newServer(t, Options{Routes: []Route{
				{"GET", "/agents/{agent}", say("actor", "agent")},
				{"POST", "/agents/{agent}/inbox", say("inbox")},
				{"", "/any/*", say("any", "*")},
			}})
			got := ask(server.Handler(), test.method, test.target)
			if got.Code != test.status || strings.TrimSpace(got.Body.String()) != test.body {
				t.Errorf("%d %s, want %d %s", got.Code, got.Body.String(), test.status, test.body)
			}
			if test.status == 405 && got.Header().Get("Allow") == "" {
				t.Error("405 without Allow")
			}
		})
	}
}

func TestBadRoutes(t *testing.T) {
	tests := map[string]struct {
		routes []Route
		want   string
	}{
		"twice":         {[]Route{{"GET", "/a", say("")}, {"GET", "/a", say("")}}, "GET /a is a duplicate"},
		"health taken":  {[]Route{{"GET", "/readyz", say("")}}, "GET /readyz is a duplicate"},
		"no slash":      {[]Route{{"GET", "a", say("")}}, `route "GET a"`},
		"open brace":    {[]Route{{"GET", "/{a", say("")}}, `route "GET /{a"`},
		"unknown verb":  {[]Route{{"FETCH", "/a", say("")}}, `route "FETCH /a"`},
		"star inside":   {[]Route{{"GET", "/*/a", say("")}}, `route "GET /*/a"`},
		"name repeated": {[]Route{{"GET", "/{a}/{a}", say("")}}, `route "GET /{a}/{a}"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := New(Options{Routes: test.routes}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// Below /v1 clients of OpenAI's API read message, type, param and code of an error, also of an operation that is not here.
func TestRefusalsBelowV1(t *testing.T) {
	server := newServer(t, Options{Routes: []Route{{"POST", "/v1/chat", say("chat")}, {"", "/any/*", say("any", "*")}}})
	for _, c := range []struct {
		method, target string
		status         int
		code           string
	}{
		{"POST", "/v1/embeddings", 404, "not_found"}, {"GET", "/v1/", 404, "not_found"}, {"POST", "/v1/files/x/content", 404, "not_found"},
		{"GET", "/v1/chat", 405, "method_not_allowed"},
	} {
		got := ask(server.Handler(), c.method, c.target)
		var body struct{ Error map[string]any }
		if err := json.Unmarshal(got.Body.Bytes(), &body); err != nil || got.Code != c.status {
			t.Errorf("%s %s: %d %s", c.method, c.target, got.Code, got.Body)
			continue
		}
		param, has := body.Error["param"]
		if body.Error["code"] != c.code || body.Error["type"] != "invalid_request_error" || body.Error["message"] == "" || !has || param != nil {
			t.Errorf("%s %s: %s", c.method, c.target, got.Body)
		}
	}
}

// TestListenLeavesOthersAlone: neither a file nor a socket on which a process listens is replaced, and the error says what to do.
func TestListenLeavesOthersAlone(t *testing.T) {
	directory := t.TempDir()
	file, busy := filepath.Join(directory, "file"), filepath.Join(directory, "busy.sock")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := net.Listen("unix", busy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })

	for path, want := range map[string]string{file: "write another path", busy: "write another path", filepath.Join(directory, "none", "http.sock"): "make its directory"} {
		server, err := New(Options{Listen: "unix:" + path})
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Listen(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "kept" {
		t.Errorf("%q %v", content, err)
	}
	if connection, err := net.Dial("unix", busy); err != nil {
		t.Errorf("the other listener is gone: %v", err)
	} else {
		_ = connection.Close()
	}
}
