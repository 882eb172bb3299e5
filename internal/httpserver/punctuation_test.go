package httpserver

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestLinksWithThePunctuationOfTheirSentence: a browser comes to the page; programs, forms and searches get what they asked for.
func TestLinksWithThePunctuationOfTheirSentence(t *testing.T) {
	handler := withoutPunctuation(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.RequestURI()) }))
	const html, json = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "application/json"
	for _, test := range []struct{ method, target, accept, to string }{
		{http.MethodGet, "/policy/abc.", html, "/policy/abc"},
		{http.MethodGet, "/policy/abc).", html, "/policy/abc"},
		{http.MethodGet, "/@helper%E2%80%9D", html, "/@helper"},
		{http.MethodGet, "/a%2520b!", html, "/a%2520b"},
		{http.MethodGet, "//other.example/.", html, "/other.example/"},
		{http.MethodGet, "/policy/abc", html, ""},
		{http.MethodGet, "/policy/abc.", json, ""},
		{http.MethodPost, "/policy/abc.", html, ""},
		{http.MethodGet, "/search?q=why.", html, ""},
		{http.MethodGet, "/", html, ""},
		{http.MethodGet, "/...", html, "/"},
	} {
		request := httptest.NewRequest(test.method, test.target, nil)
		request.Header.Set("Accept", test.accept)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if to := answer.Header().Get("Location"); to != test.to || (to == "") != (answer.Code == http.StatusOK) {
			t.Errorf("%s %s for %s: %d to %q, want %q", test.method, test.target, test.accept, answer.Code, to, test.to)
		}
	}
}
