package httpserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

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
		{"GET", "/nowhere", 404, `{"error":{"code":"not_found","message":"nothing is at this address"}}`},
		{"GET", "/agents/echo/", 404, `{"error":{"code":"not_found","message":"nothing is at this address"}}`},
		{"DELETE", "/agents/echo", 405, `{"error":{"code":"method_not_allowed","message":"this address takes GET, HEAD"}}`},
		{"GET", "/agents/echo/inbox", 405, `{"error":{"code":"method_not_allowed","message":"this address takes POST"}}`},
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
		"twice":         {[]Route{{"GET", "/a", say("")}, {"GET", "/a", say("")}}, "GET /a is there twice"},
		"health taken":  {[]Route{{"GET", "/readyz", say("")}}, "GET /readyz is there twice"},
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
