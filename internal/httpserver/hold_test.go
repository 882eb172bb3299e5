package httpserver

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"inbox/internal/await"
	"inbox/internal/fault"
)

// TestNothingIsAnsweredToACredentialThatEnded: an answer that has not begun is a refusal, and one that has begun ends.
func TestNothingIsAnsweredToACredentialThatEnded(t *testing.T) {
	ended := make(chan context.CancelCauseFunc, 1)
	hold := func(r *http.Request) (context.Context, func()) {
		ctx, end := context.WithCancelCause(r.Context())
		ended <- end
		return ctx, func() {}
	}
	reached := make(chan struct{}, 1)
	handlers := map[string]http.HandlerFunc{
		"/says": func(w http.ResponseWriter, r *http.Request) {
			reached <- struct{}{}
			<-r.Context().Done()
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "the words")
		},
		"/silent": func(_ http.ResponseWriter, r *http.Request) {
			reached <- struct{}{}
			<-r.Context().Done()
		},
		"/streams": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "begun ")
			_ = http.NewResponseController(w).Flush()
			reached <- struct{}{}
			<-r.Context().Done()
			if _, err := io.WriteString(w, "the words"); err == nil {
				t.Error("the handler is not told")
			}
		},
	}
	var routes []Route
	for pattern, handler := range handlers {
		routes = append(routes, Route{Method: http.MethodGet, Pattern: pattern, Handler: handler})
	}
	server := start(t, Options{Routes: routes, Hold: hold})

	for path := range handlers {
		type answer struct {
			status    int
			challenge string
			body      string
		}
		answers := make(chan answer, 1)
		go func() {
			response, err := client().Get(server.url + path)
			if err != nil {
				answers <- answer{body: err.Error()}
				return
			}
			defer func() { _ = response.Body.Close() }()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Error(err)
			}
			answers <- answer{response.StatusCode, response.Header.Get("WWW-Authenticate"), string(body)}
		}()
		end := await.Receive(t, ended, "the request for "+path)
		await.Receive(t, reached, "the handler of "+path)
		end(fault.New(fault.Unauthenticated, "the token was revoked"))
		got := await.Receive(t, answers, "the answer of "+path)
		refused := got.status == http.StatusUnauthorized && got.challenge != "" && strings.Contains(got.body, "the token was revoked")
		if path == "/streams" && got.body != "begun " || path != "/streams" && !refused || strings.Contains(got.body, "the words") {
			t.Errorf("%s is answered %+v", path, got)
		}
	}
}
